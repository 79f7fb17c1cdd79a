"""Selection of victims on one node.

`select_victims` removes all lower-priority pods and, if the pod then fits, restores as many as possible:
first those whose eviction would violate a disruption budget, then the others, most important first. The
result is minimal: no victim could be restored in addition. `select_victims_quickly` selects the same victims
with far fewer filter runs; a test holds the two equal. `select_victim_units` is for nodes with pods of groups
that are preempted as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.scheduling import PodGroup
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.placeholders import is_placeholder
from plimsoll.ledger.units import PODS
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.preemption.importance import most_important_first
from plimsoll.scheduler.preemption.node_filter import NodeFilter
from plimsoll.scheduler.preemption.result import PreemptionMessage
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.preemption.victim_units import VictimUnit, order_by_budget, units_of
from plimsoll.scheduler.reasons import NodeReason, Rule

NO_VICTIMS = NodeReason(Rule.PREEMPTION, PreemptionMessage.NO_VICTIMS, VerdictCode.UNRESOLVABLE)


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to evict for a pod on a node, the most important first; those of groups may be elsewhere."""

    row: int
    pods: tuple[Pod, ...]
    pdb_violations: int = 0  #: number of pods whose eviction violates a disruption budget
    groups: tuple[PodGroup, ...] = ()  #: groups that are preempted as a whole


def select_victims(
    node_filter: NodeFilter, row: int, budgets: DisruptionBudgets, nominated: Sequence[Pod] = ()
) -> Victims | tuple[NodeReason, ...]:
    """Return the victims on a node, or why the pod would not fit even without all lower-priority pods."""
    lower = lower_priority_pods(node_filter, row)
    if not lower:
        return (NO_VICTIMS,)
    with node_filter.simulate(row, nominated) as simulation:
        simulation.remove_pods(lower)
        result = node_filter.run_with_nominated(nominated, simulation)
        if not isinstance(result, NodeFit):
            return result
        violating, others = budgets.split_violating(lower)
        _restore_spared(
            simulation,
            [*violating, *others],
            lambda: isinstance(node_filter.run_with_nominated(nominated, simulation), NodeFit),
        )
        return _collect_victims(simulation, lower, violating)


def select_victims_quickly(
    node_filter: NodeFilter, row: int, budgets: DisruptionBudgets, nominated: Sequence[Pod] = ()
) -> Victims | tuple[NodeReason, ...]:
    """Select the same victims with few filter runs, where restoring a pod never frees resources.

    For pods without claims the ledger determines the victims, and one run confirms them. Otherwise the least
    important pods are removed, twice as many each time, until the pod fits; only these are checked one by
    one.
    """
    lower = lower_priority_pods(node_filter, row)
    if not lower:
        return (NO_VICTIMS,)
    if nominated:
        return select_victims(node_filter, row, budgets, nominated)
    violating, others = budgets.split_violating(lower)
    order = [*violating, *others]
    with node_filter.simulate(row) as simulation:
        guess = [] if node_filter.pod_info.claims else guess_victims(node_filter, row, order)
        if guess:
            simulation.remove_pods(guess)
            if isinstance(node_filter.run(row), NodeFit):
                return _collect_victims(simulation, lower, violating)
        out = {pod_key(pod) for pod in guess}
        simulation.remove_pods(pod for pod in order if pod_key(pod) not in out)
        result = node_filter.run(row)
        if not isinstance(result, NodeFit):
            return result
        last = 1
        simulation.restore_pods(order[:-last])
        while last < len(order) and not isinstance(node_filter.run(row), NodeFit):
            more = min(2 * last, len(order))
            simulation.remove_pods(order[-more:-last])
            last = more
        _restore_spared(simulation, order[-last:], lambda: isinstance(node_filter.run(row), NodeFit))
        return _collect_victims(simulation, lower, violating)


def select_victim_units(
    node_filter: NodeFilter, row: int, budgets: DisruptionBudgets, nominated: Sequence[Pod] = ()
) -> Victims | tuple[NodeReason, ...]:
    """Return the victims if pods of the node belong to groups that are preempted as a whole."""
    snapshot = node_filter.snapshot
    units = [
        unit
        for unit in units_of([(row, pod) for pod in snapshot.pods_at(row)], snapshot)
        if unit.priority < node_filter.pod_info.priority
    ]
    if not units:
        return (NO_VICTIMS,)
    with node_filter.simulate_cluster(nominated) as cluster:
        for unit in units:
            cluster.remove(unit.pods)
        simulation = cluster.node(row)
        result = node_filter.run_with_nominated(nominated, simulation)
        if not isinstance(result, NodeFit):
            return result
        ordered, violating = order_by_budget(units, budgets)
        chosen: list[VictimUnit] = []
        for unit in ordered:
            cluster.restore(unit.pods)
            if not isinstance(node_filter.run_with_nominated(nominated, simulation), NodeFit):
                cluster.remove(unit.pods)
                chosen.append(unit)
        chosen.sort(key=lambda unit: unit.rank)
        pods = tuple(pod for unit in chosen for _, pod in unit.pods)
        groups = tuple(unit.group for unit in chosen if unit.group is not None)
        return Victims(row, pods, sum(pod_key(pod) in violating for pod in pods), groups)


def guess_victims(node_filter: NodeFilter, row: int, order: Sequence[Pod]) -> list[Pod]:
    """Return the victims by the ledger alone, for pods without claims; pods are spared in this order.

    Empty if there are none, if removing all is not enough, or if claims hold pools.
    """
    ledger, wanted = node_filter.snapshot.ledger(row), node_filter.checked_requests
    if wanted is None or ledger.has_placeholders:
        return []
    entries = [ledger.entries[pod_key(pod)] for pod in order]
    if any(entry.holds for entry in entries):
        return []
    headroom = ledger.headroom()
    left = {name: headroom.get(name, 0) + sum(e.units.get(name, 0) for e in entries) for name in wanted}
    pods = headroom.get(PODS, 0) + len(entries)
    if pods < 1 or any(left[name] < amount for name, amount in wanted.items()):
        return []
    victims = []
    for pod, entry in zip(order, entries, strict=True):
        units = entry.units
        if pods > 1 and all(left[name] - units.get(name, 0) >= amount for name, amount in wanted.items()):
            pods -= 1
            for name in left:
                left[name] -= units.get(name, 0)
        else:
            victims.append(pod)
    return victims


def lower_priority_pods(node_filter: NodeFilter, row: int) -> list[Pod]:
    """Return the pods of a node that have a lower priority, most important first.

    Placeholders are none of them: they go with the pods that they stand for.
    """
    priority = node_filter.pod_info.priority
    pods = node_filter.snapshot.pods_at(row)
    return most_important_first(pod for pod in pods if pod.priority < priority and not is_placeholder(pod))


def _restore_spared(simulation: NodeSimulation, pods: Sequence[Pod], fits: Callable[[], bool]) -> None:
    """Restore the removed pods that can stay, one by one and in this order."""
    for pod in pods:
        simulation.restore_pods([pod])
        if not fits():
            simulation.remove_pods([pod])


def _collect_victims(simulation: NodeSimulation, lower: Sequence[Pod], violating: Sequence[Pod]) -> Victims:
    out = {pod_key(pod) for pod in simulation.removed_pods}
    pods = tuple(pod for pod in lower if pod_key(pod) in out)
    return Victims(simulation.row, pods, sum(pod_key(pod) in out for pod in violating))
