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
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.scheduling import PodGroup
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.gang.cycle import GroupResult
from plimsoll.scheduler.gang.search import STEPS
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.preemption.plan import NEVER
from plimsoll.scheduler.preemption.result import Preemption, PreemptionMessage
from plimsoll.scheduler.preemption.simulated_cluster import ClusterSimulation
from plimsoll.scheduler.preemption.victim_units import VictimUnit, order_by_budget, units_of
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
    victims = _lower_units(group_priority(group, members, snapshot), snapshot)
    if not victims:
        return NO_VICTIMS
    with ClusterSimulation(snapshot) as simulation:
        for victim in victims:
            simulation.remove(victim.pods)
        result = schedule(STEPS)
        if not result.is_scheduled:
            return PreemptionMessage.NOT_HELPFUL.value
        selection = _VictimSelection(simulation, schedule, result, attempts)
        selection.restore(order_by_budget(victims, DisruptionBudgets(budgets))[0])
        selection.restore_elsewhere()
        chosen = sorted(selection.victims, key=lambda victim: victim.rank)
        pods = tuple(pod for victim in chosen for _, pod in victim.pods)
        by_row: dict[int, list[Pod]] = {}
        for victim in chosen:
            for row, pod in victim.pods:
                by_row.setdefault(row, []).append(pod)
        preemptors = {each.row: each.pod_info.stored for each in selection.result.placements}
        nodes = tuple(
            Preemption(
                snapshot.node(row).metadata.name,
                row,
                tuple(each),
                0,
                preemptors.get(row, members[0]),
                groups=tuple(
                    victim.group for victim in chosen if victim.group is not None and victim.pods[0][0] == row
                ),
                group=group,
            )
            for row, each in sorted(by_row.items())
        )
        return GroupPreemption(selection.result, pods, nodes)


def group_priority(group: PodGroup, members: Sequence[Pod], snapshot: Snapshot) -> int:
    """Return the priority of a group: its own, or that of its least important pod."""
    if snapshot.gates.enabled("WorkloadAwarePreemption"):
        return group.spec.priority or 0
    return min(pod.priority for pod in members)


def _lower_units(priority: int, snapshot: Snapshot) -> list[VictimUnit]:
    """Return the pods and groups of lower priority, unless one of their pods is not bound yet."""
    pods = (found for key in sorted(snapshot.pod_keys()) if (found := snapshot.find_pod(key)) is not None)
    return [
        unit
        for unit in units_of(pods, snapshot)
        if unit.priority < priority and not any(pod_key(pod) in snapshot.assumed for _, pod in unit.pods)
    ]


class _VictimSelection:
    """Victims that cannot be restored, and the last placement of the group."""

    def __init__(
        self, simulation: ClusterSimulation, schedule: Schedule, result: GroupResult, attempts: int
    ) -> None:
        self._simulation = simulation
        self._schedule = schedule
        self._attempts = attempts
        self._untried: list[VictimUnit] = []
        self.result = result
        self.victims: list[VictimUnit] = []

    def restore(self, victims: Sequence[VictimUnit]) -> None:
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

    def _fits_with(self, victims: Sequence[VictimUnit]) -> bool:
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
