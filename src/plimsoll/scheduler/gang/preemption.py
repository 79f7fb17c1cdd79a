"""Preemption for a pod group: select victims in the whole cluster so that the group fits.

As in kube-scheduler: all pods of lower priority are removed in a simulation; if the group then fits, as many
of them as possible are restored, those that would violate a disruption budget first, then the most important.
Pods of a group with `disruptionMode: PodGroup` are removed and restored together. Several victims are
restored at once where that is enough, which gives the same result with fewer attempts.

The number of attempts is limited, so that the scheduler is not blocked. At the limit, victims on nodes that
the group does not need are restored without trying them one by one.

DIFF: with WorkloadAwarePreemption disabled, kube-scheduler preempts for each pod of a group on its own; here
it is for the group as well, and only its priority and the disruption modes are ignored
(test_without_the_gate_pods_are_preempted_one_by_one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import pod_group_of
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.scheduling import WHOLE_GROUP, PodGroup
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.gang.cycle import GroupResult
from plimsoll.scheduler.gang.members import GroupMembers
from plimsoll.scheduler.gang.search import STEPS
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.preemption.importance import started_at
from plimsoll.scheduler.preemption.plan import NEVER
from plimsoll.scheduler.preemption.result import Preemption, PreemptionMessage
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.snapshot.snapshot import Snapshot

PREEMPTION_DISABLED = "default preemption plugin is not registered, workload aware preemption is disabled"
NO_VICTIMS = "No preemption victims found for incoming preemptor"
NOT_IN_DOMAINS = "workload aware preemption is not supported for pod groups with scheduling constraints"

#: Schedules the group on the current state of the snapshot, within a number of search steps.
Schedule = Callable[[int], GroupResult]
#: Attempts to schedule the group while victims are restored, and the steps of each search.
ATTEMPTS = 32
ATTEMPT_STEPS = 100


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """Placements of a group once the victims are gone."""

    result: GroupResult
    victims: tuple[Pod, ...]
    nodes: tuple[Preemption, ...]  #: victims by node


@dataclass(frozen=True, slots=True)
class _Victim:
    """Pods that are preempted together."""

    pods: tuple[tuple[int, Pod], ...]  #: with their rows
    priority: int
    is_group: bool = False

    @property
    def rank(self) -> tuple[int, bool, int, str]:
        """Sort key, the most important first."""
        oldest = min(started_at(pod) for _, pod in self.pods)
        return -self.priority, not self.is_group, -len(self.pods) if self.is_group else 0, oldest


def plan_group_preemption(
    group: PodGroup,
    members: Sequence[Pod],
    snapshot: Snapshot,
    schedule: Schedule,
    budgets: Iterable[PodDisruptionBudget] = (),
    *,
    attempts: int = ATTEMPTS,
) -> GroupPreemption | str:
    """Return the victims for an unschedulable group, or why preemption does not help.

    The snapshot is changed temporarily and restored.
    """
    if any(pod.spec.preemption_policy == NEVER for pod in members):
        return PreemptionMessage.POLICY_NEVER.value
    constraints = group.spec.scheduling_constraints
    if (
        constraints is not None
        and constraints.topology
        and snapshot.gates.enabled("TopologyAwareWorkloadScheduling")
    ):
        return NOT_IN_DOMAINS
    victims = _lower_victims(group_priority(group, members, snapshot), snapshot)
    if not victims:
        return NO_VICTIMS
    with ClusterSimulation(snapshot) as simulation:
        for victim in victims:
            simulation.remove(victim.pods)
        result = schedule(STEPS)
        if not result.is_scheduled:
            return PreemptionMessage.NOT_HELPFUL.value
        selection = _VictimSelection(simulation, schedule, result, attempts)
        selection.restore(_by_budget(victims, DisruptionBudgets(budgets)))
        selection.restore_elsewhere()
        chosen = sorted(selection.victims, key=lambda victim: victim.rank)
        pods = tuple(pod for victim in chosen for _, pod in victim.pods)
        by_row: dict[int, list[Pod]] = {}
        for victim in chosen:
            for row, pod in victim.pods:
                by_row.setdefault(row, []).append(pod)
        preemptors = {each.row: each.pod_info.stored for each in selection.result.placements}
        nodes = tuple(
            Preemption(snapshot.node(row).metadata.name, row, tuple(each), 0, preemptors.get(row, members[0]))
            for row, each in sorted(by_row.items())
        )
        return GroupPreemption(selection.result, pods, nodes)


def group_priority(group: PodGroup, members: Sequence[Pod], snapshot: Snapshot) -> int:
    """Return the priority of a group: its own, or that of its least important pod."""
    if snapshot.gates.enabled("WorkloadAwarePreemption"):
        return group.spec.priority or 0
    return min(pod.priority for pod in members)


def _lower_victims(priority: int, snapshot: Snapshot) -> list[_Victim]:
    """Return the pods and groups of lower priority."""
    units: list[_Victim] = []
    seen: set[tuple[str, str]] = set()
    for key in sorted(snapshot.pod_keys()):
        found = snapshot.find_pod(key)
        if found is None or key in snapshot.assumed:
            continue
        row, pod = found
        group = _indivisible_group(pod, snapshot)
        if group is None:
            if pod.priority < priority:
                units.append(_Victim(((row, pod),), pod.priority))
        elif group.metadata.key not in seen:
            seen.add(group.metadata.key)
            members = tuple(snapshot.index(GroupMembers).of(group.metadata.key).values())
            is_assumed = any(pod_key(each) in snapshot.assumed for _, each in members)
            if (group.spec.priority or 0) < priority and not is_assumed:
                units.append(_Victim(members, group.spec.priority or 0, is_group=True))
    return units


def _indivisible_group(pod: Pod, snapshot: Snapshot) -> PodGroup | None:
    """Return the group of a pod if its pods are preempted together."""
    name = pod_group_of(pod)
    if not name or not snapshot.gates.enabled("WorkloadAwarePreemption"):
        return None
    group = snapshot.find(PodGroup, pod.metadata.namespace, name)
    return group if group is not None and group.spec.disruption_mode == WHOLE_GROUP else None


def _by_budget(victims: Iterable[_Victim], budgets: DisruptionBudgets) -> list[_Victim]:
    """Return victims in the order of restoring: those that violate a budget, then by importance."""
    ranked = sorted(victims, key=lambda victim: victim.rank)
    violating, _ = budgets.split_violating([pod for victim in ranked for _, pod in victim.pods])
    keys = {pod_key(pod) for pod in violating}
    return sorted(ranked, key=lambda victim: not any(pod_key(pod) in keys for _, pod in victim.pods))


class _VictimSelection:
    """Victims that cannot be restored, and the last placement of the group."""

    def __init__(
        self, simulation: ClusterSimulation, schedule: Schedule, result: GroupResult, attempts: int
    ) -> None:
        self._simulation = simulation
        self._schedule = schedule
        self._attempts = attempts
        self._untried: list[_Victim] = []
        self.result = result
        self.victims: list[_Victim] = []

    def restore(self, victims: Sequence[_Victim]) -> None:
        """Restore victims together, or half of them and then the other half."""
        if not victims:
            return
        if not self._attempts:
            self._untried += victims
        elif self._fits_with(victims):
            return
        elif len(victims) == 1:
            self.victims += victims
        else:
            middle = len(victims) // 2
            self.restore(victims[:middle])
            self.restore(victims[middle:])

    def restore_elsewhere(self) -> None:
        """Restore the victims that were not tried and are on nodes that the group does not use."""
        used = {placement.row for placement in self.result.placements}
        elsewhere = [each for each in self._untried if not any(row in used for row, _ in each.pods)]
        if not elsewhere or not self._fits_with(elsewhere):
            elsewhere = []
        self.victims += [each for each in self._untried if each not in elsewhere]

    def _fits_with(self, victims: Sequence[_Victim]) -> bool:
        """Restore victims if the group fits nevertheless."""
        self._attempts = max(0, self._attempts - 1)
        for victim in victims:
            self._simulation.restore(victim.pods)
        result = self._schedule(ATTEMPT_STEPS)
        if result.is_scheduled:
            self.result = result
            return True
        for victim in victims:
            self._simulation.remove(victim.pods)
        return False


class ClusterSimulation:
    """Changes to any nodes of a snapshot for the duration of a `with` block."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stack = ExitStack()
        self._nodes: dict[int, NodeSimulation] = {}

    def __enter__(self) -> ClusterSimulation:
        self._stack.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        highest = self._snapshot.generation
        self._stack.close()
        # Results that were cached in the simulation must not hold afterwards.
        self._snapshot.generation = highest
        self._snapshot._bump_generation(None)

    def remove(self, pods: Iterable[tuple[int, Pod]]) -> None:
        for row, pod in pods:
            self._node(row).remove_pods([pod])

    def restore(self, pods: Iterable[tuple[int, Pod]]) -> None:
        for row, pod in pods:
            self._node(row).restore_pods([pod])

    def _node(self, row: int) -> NodeSimulation:
        node = self._nodes.get(row)
        if node is None:
            node = self._nodes[row] = NodeSimulation(self._snapshot, row)
            self._stack.enter_context(node)
        return node
