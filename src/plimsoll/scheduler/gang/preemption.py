"""Preemption for a pod group: select victims in the whole cluster so that the group fits.

As in kube-scheduler: all pods of lower priority are removed in a simulation; if the group then fits, as many
of them as possible are restored, those that would violate a disruption budget first, then the most important.
Pods of a group with `disruptionMode: PodGroup` are removed and restored together. Several victims are
restored at once where that is enough, which gives the same result with fewer attempts.

The number of attempts is limited, and they are made in turns, so that the scheduler is not blocked. At the
limit, the victims on nodes that the group does not need are restored together, then one of every other node
at a time.

DIFF: with WorkloadAwarePreemption disabled, kube-scheduler preempts for each pod of a group on its own; here
it is for the group as well, and only its priority and the disruption modes are ignored
(test_without_the_gate_pods_are_preempted_one_by_one).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.scheduling import PodGroup
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.gang.cycle import GroupResult, finish
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
#: Members that are scheduled in one turn, in all of its attempts.
TURN_MEMBERS = 64
#: At the limit: victims of a node that are tried, each together with one of every other node.
LAYERS = 8


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
    return finish(preemption_turns(group, members, snapshot, schedule, budgets, attempts=attempts))


def preemption_turns(
    group: PodGroup,
    members: Sequence[Pod],
    snapshot: Snapshot,
    schedule: Schedule,
    budgets: Iterable[PodDisruptionBudget] = (),
    *,
    attempts: int = ATTEMPTS,
) -> Generator[None, bool | None, GroupPreemption | str]:
    """Plan as `plan_group_preemption` does, in turns; the snapshot is as it was between two of them.

    If the cluster changes in between, the victims found so far are used, if they still suffice.
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
    ordered, _ = order_by_budget(victims, DisruptionBudgets(budgets))
    selection = _VictimSelection(snapshot, schedule, ordered, attempts)
    revision, per_turn = snapshot.revision, max(1, TURN_MEMBERS // len(members))
    with selection.simulate():
        if not selection.try_schedule(ATTEMPT_STEPS):
            return PreemptionMessage.NOT_HELPFUL.value
        is_done = selection.restore(per_turn - 1)
    while not is_done:
        yield
        if snapshot.revision != revision:
            break
        with selection.simulate():
            is_done = selection.restore(per_turn)
    if snapshot.revision != revision:
        selection.forget_gone()
        with selection.simulate():
            if not selection.try_schedule(ATTEMPT_STEPS):
                return PreemptionMessage.NOT_HELPFUL.value
    return _plan(group, members, snapshot, selection)


def _plan(
    group: PodGroup, members: Sequence[Pod], snapshot: Snapshot, selection: _VictimSelection
) -> GroupPreemption:
    chosen = sorted(selection.removed, key=lambda victim: victim.rank)
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
    return GroupPreemption(selection.result, tuple(pod for each in chosen for _, pod in each.pods), nodes)


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
    """Victims that are not restored yet or cannot be, and the last placement of the group."""

    def __init__(
        self, snapshot: Snapshot, schedule: Schedule, victims: Sequence[VictimUnit], attempts: int
    ) -> None:
        """Create a selection; `victims` are in the order in which they are to be restored."""
        self._snapshot = snapshot
        self._schedule = schedule
        self._attempts = attempts
        self._simulation: ClusterSimulation | None = None
        #: Victims to restore, those to be tried next last; each list is tried together, then in halves.
        self._untried: list[Sequence[VictimUnit]] = [victims]
        self._is_arranged = False
        self.removed = list(victims)
        self.result = GroupResult(0, 0)

    @contextmanager
    def simulate(self) -> Iterator[None]:
        """Remove the victims that are not restored, for the duration of a `with` block."""
        with ClusterSimulation(self._snapshot) as simulation:
            simulation.remove(pod for victim in self.removed for pod in victim.pods)
            self._simulation = simulation
            yield
        self._simulation = None

    def try_schedule(self, steps: int) -> bool:
        """Schedule the group without the victims."""
        result = self._schedule(steps)
        if result.is_scheduled:
            self.result = result
        return result.is_scheduled

    def restore(self, attempts: int) -> bool:
        """Restore victims in so many attempts; return whether nothing is left to try."""
        for _ in range(attempts):
            if not self._attempts and not self._is_arranged:
                self._arrange_by_node()
            if not self._untried:
                break
            victims = self._untried.pop()
            self._attempts = max(0, self._attempts - 1)
            if not self._fits_with(victims) and len(victims) > 1 and not self._is_arranged:
                middle = len(victims) // 2
                self._untried += [victims[middle:], victims[:middle]]
        return not self._untried

    def _arrange_by_node(self) -> None:
        """Arrange the victims that are left: those on unused nodes, then one of each used node, and so on."""
        used = {placement.row for placement in self.result.placements}
        elsewhere: list[VictimUnit] = []
        layers: list[list[VictimUnit]] = [[] for _ in range(LAYERS)]
        depths: Counter[int] = Counter()
        for victim in (victim for each in reversed(self._untried) for victim in each):
            rows = {row for row, _ in victim.pods} & used
            depth = max((depths[row] for row in rows), default=0)
            depths.update(rows)
            if not rows:
                elsewhere.append(victim)
            elif depth < LAYERS:
                layers[depth].append(victim)
        self._untried = [each for each in (*reversed(layers), elsewhere) if each]
        self._is_arranged = True

    def forget_gone(self) -> None:
        """Drop the victims that no longer are where they were."""
        find = self._snapshot.find_pod

        def is_there(victim: VictimUnit) -> bool:
            return all(
                (found := find(pod_key(pod))) is not None and found[0] == row for row, pod in victim.pods
            )

        self.removed = [victim for victim in self.removed if is_there(victim)]
        self._untried = [[victim for victim in each if is_there(victim)] for each in self._untried]

    def _fits_with(self, victims: Sequence[VictimUnit]) -> bool:
        """Restore victims if the group fits nevertheless."""
        simulation = self._simulation
        assert simulation is not None, "only in a simulation"
        pods = [pod for victim in victims for pod in victim.pods]
        simulation.restore(pods)
        if self.try_schedule(ATTEMPT_STEPS):
            restored = {id(victim) for victim in victims}
            self.removed = [each for each in self.removed if id(each) not in restored]
            return True
        simulation.remove(pods)
        return False
