"""Who must go from a node so that a pod fits there.

Owns `select_victims`: all pods of lower priority are lifted, and if the pod fits then, as many as possible
are spared: first those whose going would break a disruption budget, then the others, most important first.
What is left is a smallest choice in this sense: none of the victims could be spared beside those that were.
`select_victims_quickly` comes to the same victims with far fewer questions; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.units import PODS
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.preemption.budgets import Budgets
from plimsoll.scheduler.preemption.importance import most_important_first, priority_of
from plimsoll.scheduler.preemption.node_filter import Examination
from plimsoll.scheduler.preemption.result import PreemptionMessage
from plimsoll.scheduler.preemption.simulated_node import Hypothesis
from plimsoll.scheduler.reasons import NodeReason, Rule

NO_VICTIMS = NodeReason(Rule.PREEMPTION, PreemptionMessage.NO_VICTIMS, VerdictCode.UNRESOLVABLE)


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that would have to leave a node, the most important first; `broken` of them break a budget."""

    row: int
    pods: tuple[Pod, ...]
    broken: int = 0


def select_victims(
    examination: Examination, row: int, budgets: Budgets, promised: Sequence[Pod] = ()
) -> Victims | tuple[NodeReason, ...]:
    """The victims on a node, or why the pod would not fit even without all the pods below it."""
    below = lower_pods(examination, row)
    if not below:
        return (NO_VICTIMS,)
    with examination.suppose(row, promised) as hypothesis:
        hypothesis.lift(below)
        answer = examination.ask_beside(promised, hypothesis)
        if not isinstance(answer, NodeFit):
            return answer
        breaking, harmless = budgets.split(below)
        _spare(
            hypothesis,
            [*breaking, *harmless],
            lambda: isinstance(examination.ask_beside(promised, hypothesis), NodeFit),
        )
        return _sum_up(hypothesis, below, breaking)


def select_victims_quickly(
    examination: Examination, row: int, budgets: Budgets, promised: Sequence[Pod] = ()
) -> Victims | tuple[NodeReason, ...]:
    """The same with few questions, where putting a pod back never makes room for another.

    For pods without claims the books alone tell who would have to go, and one question confirms it. If there
    is more to it, the least important pods are lifted, twice as many each time, until the pod fits; only they
    are asked about one by one.
    """
    below = lower_pods(examination, row)
    if not below:
        return (NO_VICTIMS,)
    if promised:
        return select_victims(examination, row, budgets, promised)
    breaking, harmless = budgets.split(below)
    order = [*breaking, *harmless]
    with examination.suppose(row) as hypothesis:
        guess = [] if examination.pod_info.claims else guess_victims(examination, row, order)
        if guess:
            hypothesis.lift(guess)
            if isinstance(examination.ask(row), NodeFit):
                return _sum_up(hypothesis, below, breaking)
        out = {pod_key(pod) for pod in guess}
        hypothesis.lift(pod for pod in order if pod_key(pod) not in out)
        answer = examination.ask(row)
        if not isinstance(answer, NodeFit):
            return answer
        last = 1
        hypothesis.put_back(order[:-last])
        while last < len(order) and not isinstance(examination.ask(row), NodeFit):
            more = min(2 * last, len(order))
            hypothesis.lift(order[-more:-last])
            last = more
        _spare(hypothesis, order[-last:], lambda: isinstance(examination.ask(row), NodeFit))
        return _sum_up(hypothesis, below, breaking)


def guess_victims(examination: Examination, row: int, order: Sequence[Pod]) -> list[Pod]:
    """Who would have to go by the books, spared in this order; for pods without claims.

    Empty if that is nobody, everybody would not be enough, or the books are more than sums.
    """
    ledger, demand = examination.snapshot.ledger(row), examination.pod_info.requests
    entries = [ledger.entries[pod_key(pod)] for pod in order]
    if any(entry.holds for entry in entries):
        return []
    wanted = {name: amount for name, amount in demand.items() if amount > 0}
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


def lower_pods(examination: Examination, row: int) -> list[Pod]:
    """The pods on a node that have a lower priority than the one that is to go there."""
    priority = examination.pod_info.priority
    pods = examination.snapshot.pods_at(row)
    return most_important_first(pod for pod in pods if priority_of(pod) < priority)


def _spare(hypothesis: Hypothesis, pods: Sequence[Pod], fits: Callable[[], bool]) -> None:
    """Put back, one by one and in this order, those of the lifted pods that can stay."""
    for pod in pods:
        hypothesis.put_back([pod])
        if not fits():
            hypothesis.lift([pod])


def _sum_up(hypothesis: Hypothesis, below: Sequence[Pod], breaking: Sequence[Pod]) -> Victims:
    out = {pod_key(pod) for pod in hypothesis.lifted}
    pods = tuple(pod for pod in below if pod_key(pod) in out)
    return Victims(hypothesis.row, pods, sum(pod_key(pod) in out for pod in breaking))
