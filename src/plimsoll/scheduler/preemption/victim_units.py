"""Units of preemption: a pod, or all scheduled pods of a group with `disruptionMode: PodGroup`.

A unit is evicted or spared as a whole. A group has its own priority, whatever that of its pods. As in
kube-scheduler, units are compared by priority, then pods of groups are more important than others, larger
groups than smaller ones, and earlier ones than later ones. Disruption modes count with the feature gate
WorkloadAwarePreemption only.

DIFF: kube-scheduler 1.36 ignores disruption modes if a single pod preempts; 1.37 does as is done here
(test_a_pod_preempts_a_group_as_a_whole).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import pod_group_of
from plimsoll.api.scheduling import WHOLE_GROUP, PodGroup
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.placeholders import is_placeholder
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.preemption.importance import started_at
from plimsoll.scheduler.snapshot.group_members import GroupMembers
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_GATE = "WorkloadAwarePreemption"


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """Pods that are preempted together."""

    pods: tuple[tuple[int, Pod], ...]  #: with their rows
    priority: int
    group: PodGroup | None = None  #: group that is preempted as a whole
    is_grouped: bool = False  #: whether the pods belong to a group

    @property
    def rank(self) -> tuple[int, bool, int, str]:
        """Sort key, the most important first."""
        oldest = min(started_at(pod) for _, pod in self.pods)
        return -self.priority, not self.is_grouped, -len(self.pods), oldest


def unit_of(row: int, pod: Pod, snapshot: Snapshot) -> VictimUnit:
    """Return the unit of a scheduled pod."""
    group = indivisible_group(pod, snapshot)
    if group is None:
        is_grouped = bool(pod_group_of(pod)) and snapshot.gates.enabled(_GATE)
        return VictimUnit(((row, pod),), pod.priority, is_grouped=is_grouped)
    members = tuple(snapshot.index(GroupMembers).of(group.metadata.key).values())
    return VictimUnit(members, group.spec.priority or 0, group, is_grouped=True)


def units_of(pods: Iterable[tuple[int, Pod]], snapshot: Snapshot) -> list[VictimUnit]:
    """Return the units of scheduled pods, each once; placeholders are in none."""
    units: list[VictimUnit] = []
    seen: set[tuple[str, str]] = set()
    for row, pod in pods:
        if is_placeholder(pod):
            continue
        unit = unit_of(row, pod, snapshot)
        if unit.group is not None:
            if unit.group.metadata.key in seen:
                continue
            seen.add(unit.group.metadata.key)
        units.append(unit)
    return units


def indivisible_group(pod: Pod, snapshot: Snapshot) -> PodGroup | None:
    """Return the group of a pod if its pods are preempted together."""
    name = pod_group_of(pod)
    if not name or not snapshot.gates.enabled(_GATE):
        return None
    group = snapshot.find(PodGroup, pod.metadata.namespace, name)
    return group if group is not None and group.spec.disruption_mode == WHOLE_GROUP else None


def rows_with_indivisible_groups(snapshot: Snapshot) -> set[int]:
    """Return the nodes with a pod whose group is preempted as a whole."""
    if not snapshot.gates.enabled(_GATE):
        return set()
    members, rows = snapshot.index(GroupMembers), set[int]()
    for key in members:
        group = snapshot.find(PodGroup, *key)
        if group is not None and group.spec.disruption_mode == WHOLE_GROUP:
            rows.update(row for row, _ in members.of(key).values())
    return rows


def order_by_budget(
    units: Iterable[VictimUnit], budgets: DisruptionBudgets
) -> tuple[list[VictimUnit], Collection[str]]:
    """Return units in the order of restoring, and the keys of the pods that violate a budget.

    Units with such a pod come first, then the most important.
    """
    ranked = sorted(units, key=lambda unit: unit.rank)
    violating, _ = budgets.split_violating([pod for unit in ranked for _, pod in unit.pods])
    keys = frozenset(map(pod_key, violating))
    return sorted(ranked, key=lambda unit: not any(pod_key(pod) in keys for _, pod in unit.pods)), keys
