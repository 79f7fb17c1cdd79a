"""Required pod fields that this scheduler does not implement.

A pod with such a field stays pending; it is never scheduled as if the field were not set:

    workloadRef                                     gang scheduling of 1.35
    topologySpreadConstraints[]                     an unknown whenUnsatisfiable, nodeAffinityPolicy or
                                                    nodeTaintsPolicy

Unsupported volumes are rejected by `volume_binding`, invalid selectors by `node_affinity`,
`inter_pod_affinity` and `pod_topology_spread`. Unknown operators in tolerations and preferences are ignored.
An `extendedResourceName` of a DeviceClass is insufficient on nodes that do not have it as a resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from plimsoll.api.core import Pod, TopologySpreadConstraint
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class UnsupportedMessage(ReasonMessage):
    """Message about an unimplemented field."""

    NOT_IMPLEMENTED = "{field} {value} is not implemented by this scheduler"


_ACTIONS = frozenset({"DoNotSchedule", "ScheduleAnyway"})
_INCLUSION = frozenset({None, "Honor", "Ignore"})


class UnsupportedFilter(Filter):
    """Filter that rejects pods with unimplemented fields on all nodes."""

    rule = Rule.UNSUPPORTED
    events = frozenset()  # only an update of the pod helps
    pod_fields = frozenset({"workload_ref", "topology_spread_constraints"})

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        return unsupported(pod_info.pod)


def unsupported(pod: Pod) -> NodeReason | None:
    """Return the reason for the first unimplemented field of a pod's spec, if any."""
    spec = pod.spec
    if spec.workload_ref is not None:
        return _reason("spec.workloadRef", spec.workload_ref.name)
    for index, constraint in enumerate(spec.topology_spread_constraints):
        for name, value in _unknown_values(constraint):
            return _reason(f"spec.topologySpreadConstraints[{index}].{name}", value)
    return None


def _unknown_values(constraint: TopologySpreadConstraint) -> Iterator[tuple[str, str]]:
    if constraint.when_unsatisfiable not in _ACTIONS:
        yield "whenUnsatisfiable", constraint.when_unsatisfiable
    for name, value in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if value not in _INCLUSION:
            yield name, value or ""


def _reason(field: str, value: str) -> NodeReason:
    return NodeReason.unresolvable(
        Rule.UNSUPPORTED, UnsupportedMessage.NOT_IMPLEMENTED, field=field, value=value or repr(value)
    )
