"""Pods that ask for what this scheduler does not do.

Owns `UnsupportedFilter`, which is a refusal and never a filter: a pod whose spec has a required rule that is
not implemented, or one in words that mean nothing to us, stays where it is and is told why. It is never
placed as if the rule were not there. What such rules there are:

    schedulingGroup (1.36), workloadRef (1.35)      pods that are placed together or not at all
    topologySpreadConstraints[]                     a whenUnsatisfiable, nodeAffinityPolicy or
                                                    nodeTaintsPolicy that is neither of the two known

Volumes have refusals of their own (`volume_binding`), and so have selectors that cannot be read (`affinity`,
`inter_pod`, `spread`). Tolerations and preferences in unknown words do no harm: they tolerate nothing and
count for nothing. Resources that a DeviceClass offers by a name of their own (`extendedResourceName`) are, on
nodes that do not have them, not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from plimsoll.api.core import Pod, TopologySpreadConstraint
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_ACTIONS = frozenset({"DoNotSchedule", "ScheduleAnyway"})
_INCLUSION = frozenset({None, "Honor", "Ignore"})


class UnsupportedFilter(Filter):
    """The refusal of a pod."""

    rule = Rule.UNSUPPORTED

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        return unsupported(pod_info.pod)


def unsupported(pod: Pod) -> NodeReason | None:
    """The first rule of a pod's spec that is not implemented."""
    spec = pod.spec
    if spec.scheduling_group is not None:
        return _reason("spec.schedulingGroup", spec.scheduling_group.pod_group_name or "")
    if spec.workload_ref is not None:
        return _reason("spec.workloadRef", spec.workload_ref.name)
    for row, constraint in enumerate(spec.topology_spread_constraints):
        for name, value in _strange_words(constraint):
            return _reason(f"spec.topologySpreadConstraints[{row}].{name}", value)
    return None


def _strange_words(constraint: TopologySpreadConstraint) -> Iterator[tuple[str, str]]:
    if constraint.when_unsatisfiable not in _ACTIONS:
        yield "whenUnsatisfiable", constraint.when_unsatisfiable
    for name, value in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if value not in _INCLUSION:
            yield name, value or ""


def _reason(field: str, value: str) -> NodeReason:
    facts = {"field": field, "value": value or repr(value)}
    return NodeReason(Rule.UNSUPPORTED, ReasonMessage.NOT_IMPLEMENTED, Code.UNRESOLVABLE, facts)
