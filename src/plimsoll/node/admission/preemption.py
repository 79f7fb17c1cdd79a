"""Preemption on the node: select victims so that a critical pod can be admitted.

Follows the kubelet: the fewest pods that free what is missing, Guaranteed pods last, and among equals those
with the smaller requests. Pure. The ledger reports what is missing, including what claims lack.

DIFF: what claims charge counts as freed with their pods; upstream considers only the spec and may preempt
more pods than needed, or none (test_claim_charges_of_victims_count_as_freed).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.api.core import Pod
from plimsoll.ledger.qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from plimsoll.ledger.units import CPU, MEMORY, PODS
from plimsoll.ledger.verdict import Reason

#: Pods of this priority and above are critical.
CRITICAL = 2_000_000_000
#: The kubelet's texts for a preempted pod.
REASON = "Preempting"
MESSAGE = "Preempted in order to admit critical pod"
CONDITION_REASON = "TerminationByKubelet"

#: Resource, and the claim whose pool it belongs to ("": the node itself).
Need = tuple[str, str]
Needs = Mapping[Need, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Pod on the node, and what terminating it would free."""

    pod: Pod
    qos: str
    frees: Needs = field(default_factory=dict)

    def get(self, need: Need) -> int:
        return 1 if need == (PODS, "") else self.frees.get(need, 0)


def is_critical(pod: Pod) -> bool:
    return (pod.spec.priority or 0) >= CRITICAL


def may_preempt(preemptor: Pod, other: Pod) -> bool:
    """Return whether a pod may preempt another: one that is not critical, or has a lower priority."""
    if is_critical(preemptor) and not is_critical(other):
        return True
    if preemptor.spec.priority is None or other.spec.priority is None:
        return False
    return preemptor.spec.priority > other.spec.priority


def needs_of(shortages: Iterable[Reason]) -> dict[Need, int]:
    """Return the amounts that have to be freed to resolve shortages."""
    found: dict[Need, int] = {}
    for reason in shortages:
        lacking = (reason.wanted or 0) - (reason.had or 0)
        if lacking > 0:
            found[reason.resource, reason.claim] = lacking
    return found


def choose_victims(preemptor: Pod, candidates: Sequence[Candidate], needs: Needs) -> tuple[Pod, ...] | None:
    """Return the pods to preempt, least important first; None if not even all of them would suffice."""
    allowed = [each for each in candidates if may_preempt(preemptor, each.pod)]
    groups = {
        qos: [each for each in allowed if each.qos == qos] for qos in (BEST_EFFORT, BURSTABLE, GUARANTEED)
    }
    lowest, middle, highest = groups[BEST_EFFORT], groups[BURSTABLE], groups[GUARANTEED]
    if _left(needs, [*lowest, *middle, *highest]):
        return None
    # From each QoS class take only what is still missing after the lower classes have freed everything.
    from_highest = _nearest(highest, _left(needs, [*lowest, *middle]))
    from_middle = _nearest(middle, _left(needs, [*lowest, *from_highest]))
    from_lowest = _nearest(lowest, _left(needs, [*from_middle, *from_highest]))
    return tuple(each.pod for each in (*from_lowest, *from_middle, *from_highest))


def _left(needs: Needs, gone: Iterable[Candidate]) -> dict[Need, int]:
    """Return what is still missing after these candidates are gone."""
    left = dict(needs)
    for each in gone:
        for need in left:
            left[need] -= each.get(need)
    return {need: amount for need, amount in left.items() if amount > 0}


def _nearest(candidates: Sequence[Candidate], needs: Needs) -> list[Candidate]:
    """Pick candidates one by one, always the one that leaves the least missing."""
    pool, chosen = list(candidates), []
    while needs and pool:
        best = 0
        for place, each in enumerate(pool):
            distance, least = _distance(each, needs), _distance(pool[best], needs)
            if place and (distance < least or (distance == least and _size(each) <= _size(pool[best]))):
                best = place
        each = pool[best]
        # The last candidate moves into the free position: ties are broken as in Kubernetes.
        pool[best] = pool[-1]
        pool.pop()
        chosen.append(each)
        needs = _left(needs, [each])
    return chosen


def _distance(candidate: Candidate, needs: Needs) -> float:
    """Return the distance of a pod from freeing everything needed; all resources have the same weight."""
    total = 0.0
    for need, amount in needs.items():
        rest = amount - candidate.get(need)
        if rest > 0:
            total += (rest / amount) ** 2
    return total


def _size(candidate: Candidate) -> tuple[int, int]:
    return candidate.get((MEMORY, "")), candidate.get((CPU, ""))
