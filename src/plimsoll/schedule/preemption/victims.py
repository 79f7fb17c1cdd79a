"""Who must go from a node so that a pod fits there.

Owns `select_victims`: all pods of lower priority are lifted, and if the pod fits then, as many as possible
are spared: first those whose going would break a disruption budget, then the others, most important first.
What is left is a smallest choice in this sense: none of the victims could be spared beside those that were.
`select_victims_quickly` comes to the same victims with far fewer questions; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.ledger.judge import demand_of
from plimsoll.ledger.node import NodeLedger, pod_key
from plimsoll.ledger.units import PODS, Units
from plimsoll.ledger.verdict import Code
from plimsoll.schedule.devices import Fit
from plimsoll.schedule.preemption.budgets import Budgets
from plimsoll.schedule.preemption.examination import Examination
from plimsoll.schedule.preemption.hypothesis import Hypothesis
from plimsoll.schedule.preemption.importance import most_important_first, priority_of
from plimsoll.schedule.reasons import NodeReason, Rule, Sentence
from plimsoll.schedule.task import Task

NO_VICTIMS = NodeReason(Rule.PREEMPTION, Sentence.NO_VICTIMS, Code.UNRESOLVABLE)


@dataclass(frozen=True, slots=True)
class Victims:
    """The pods that would have to leave a node, the most important first; `broken` of them break a budget."""

    place: int
    pods: tuple[Pod, ...]
    broken: int = 0


def select_victims(
    examination: Examination, place: int, budgets: Budgets, promised: Sequence[Pod] = ()
) -> Victims | tuple[NodeReason, ...]:
    """The victims on a node, or why the pod would not fit even without all the pods below it."""
    below = lower_pods(examination, place)
    if not below:
        return (NO_VICTIMS,)
    with Hypothesis(examination.snapshot, place, kept_claims(examination, promised)) as hypothesis:
        hypothesis.lift(below)
        answer = examination.ask_beside(promised, hypothesis)
        if not isinstance(answer, Fit):
            return answer
        breaking, harmless = budgets.split(below)
        for pod in (*breaking, *harmless):
            hypothesis.put_back([pod])
            if not isinstance(examination.ask_beside(promised, hypothesis), Fit):
                hypothesis.lift([pod])
        return _sum_up(hypothesis, below, breaking)


def select_victims_quickly(
    examination: Examination, place: int, budgets: Budgets, promised: Sequence[Pod] = ()
) -> Victims | tuple[NodeReason, ...]:
    """The same with few questions: books alone tell of most pods whether they can be spared.

    A pod that uses no claims is put back without asking while the books have room for it beside what the
    last answer charges, and if they have none for a pod without claims, it must go. The whole choice is asked
    about once more in the end. Where that fails (a rule about other pods than the books know of) everything
    is asked about.
    """
    if promised:
        return select_victims(examination, place, budgets, promised)
    below = lower_pods(examination, place)
    if not below:
        return (NO_VICTIMS,)
    task = examination.task
    with Hypothesis(examination.snapshot, place, kept_claims(examination, promised)) as hypothesis:
        book = examination.snapshot.ledger(place)
        hypothesis.lift(below)
        answer = examination.ask(place)
        if not isinstance(answer, Fit):
            return answer
        breaking, harmless = budgets.split(below)
        demand = _demand(task, book, answer)
        unasked = False
        for pod in (*breaking, *harmless):
            plain = not hypothesis.entry(pod).bills and not pod.spec.resource_claims
            room = fits_beside(book.headroom(), demand, hypothesis.entry(pod).units)
            if plain and not room and not task.claims:
                continue
            hypothesis.put_back([pod])
            if plain and room:
                unasked = True
                continue
            again = examination.ask(place)
            if isinstance(again, Fit):
                demand = _demand(task, book, again)
            else:
                hypothesis.lift([pod])
        if not unasked or isinstance(examination.ask(place), Fit):
            return _sum_up(hypothesis, below, breaking)
    return select_victims(examination, place, budgets, promised)


def lower_pods(examination: Examination, place: int) -> list[Pod]:
    """The pods on a node that have a lower priority than the one that is to go there."""
    priority = examination.task.priority
    pods = examination.snapshot.pods_at(place)
    return most_important_first(pod for pod in pods if priority_of(pod) < priority)


def kept_claims(examination: Examination, promised: Sequence[Pod]) -> set[str]:
    """The claims of the pods that are about to come: they are in use, whoever goes."""
    tasks = [examination.task, *(examination.read(pod) for pod in promised)]
    return {claim.metadata.uid for task in tasks for claim in task.claims}


def fits_beside(headroom: Units, demand: Units, more: Units) -> bool:
    """Whether there is room for a demand and for a pod with these units, both."""
    if headroom.get(PODS, 0) < 2:
        return False
    wanted = ((name, amount) for name, amount in demand.items() if amount > 0)
    return all(headroom.get(name, 0) >= amount + more.get(name, 0) for name, amount in wanted)


def _demand(task: Task, book: NodeLedger, fit: Fit) -> Units:
    """What a node is charged for a pod that fits this way."""
    return demand_of(book, task.pod, fit.bills, task.options) if fit.bills else task.demand


def _sum_up(hypothesis: Hypothesis, below: Sequence[Pod], breaking: Sequence[Pod]) -> Victims:
    out = {pod_key(pod) for pod in hypothesis.lifted}
    pods = tuple(pod for pod in below if pod_key(pod) in out)
    return Victims(hypothesis.place, pods, sum(pod_key(pod) in out for pod in breaking))
