"""Topology spread constraints of a pod, parsed.

The pod's own values of `matchLabelKeys` are part of the selector, whether or not the API server has added
them. Defaults are the API's: node affinity is honored, taints are ignored, one domain is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.api.core import Pod, TopologySpreadConstraint
from plimsoll.api.label_selection import (
    IN,
    CompiledLabelRequirement,
    CompiledLabelSelector,
    SelectorProblem,
    compile_label_selector,
)
from plimsoll.api.quantity import INT32_MAX
from plimsoll.scheduler.topology.affinity_terms import PodSelector
from plimsoll.scheduler.topology.match_counts import PodMatcher

DO_NOT_SCHEDULE, SCHEDULE_ANYWAY = "DoNotSchedule", "ScheduleAnyway"
HONOR = "Honor"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint; `own` is 1 if the pod itself would be counted."""

    topology_key: str
    max_skew: int
    min_domains: int
    selector: CompiledLabelSelector
    honor_affinity: bool
    honor_taints: bool
    own: int
    matcher: PodMatcher

    @property
    def counts_no_pods(self) -> bool:
        """True if the selector is empty: it then counts no pods, although it matches the pod itself."""
        return self.selector.everything or self.selector.nothing


def read_constraints(pod: Pod, when: str) -> tuple[SpreadConstraint, ...] | SelectorProblem:
    """Parse the pod's constraints of one kind, DoNotSchedule or ScheduleAnyway."""
    found: list[SpreadConstraint] = []
    for number, constraint in enumerate(pod.spec.topology_spread_constraints):
        if constraint.when_unsatisfiable == when:
            read = _read(pod, constraint)
            if isinstance(read, SelectorProblem):
                field = f"topologySpreadConstraints[{number}].labelSelector.{read.field}"
                return SelectorProblem(field, read.message)
            found.append(read)
    return tuple(found)


def _read(pod: Pod, constraint: TopologySpreadConstraint) -> SpreadConstraint | SelectorProblem:
    selector = compile_label_selector(constraint.label_selector)
    if isinstance(selector, SelectorProblem):
        return selector
    labels = pod.metadata.labels
    keys = [key for key in constraint.match_label_keys if key in labels]
    if keys:
        selector = selector.narrowed(CompiledLabelRequirement(key, IN, (labels[key],)) for key in keys)
    return read_constraint(pod, constraint, selector)


def read_constraint(
    pod: Pod, constraint: TopologySpreadConstraint, selector: CompiledLabelSelector
) -> SpreadConstraint:
    """Parse a constraint that counts the pods of a selector."""
    affinity, taints = constraint.node_affinity_policy, constraint.node_taints_policy
    return SpreadConstraint(
        topology_key=constraint.topology_key,
        max_skew=min(constraint.max_skew, INT32_MAX),
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        selector=selector,
        honor_affinity=affinity is None or affinity == HONOR,
        honor_taints=taints == HONOR,
        own=int(selector.matches(pod.metadata.labels)),
        matcher=PodMatcher(
            (PodSelector(frozenset([pod.metadata.namespace]), selector),), skip_terminating=True
        ),
    )
