"""Selection of preemption victims for a critical pod."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.node.admission.preemption import (
    CRITICAL,
    Candidate,
    Need,
    choose_victims,
    is_critical,
    may_preempt,
    needs_of,
)
from tests.build import pod

CPU: Need = ("cpu", "")
MEMORY: Need = ("memory", "")


def of(name: str, qos: str = "Burstable", priority: int | None = 0, **frees: int) -> Candidate:
    return Candidate(pod(name, priority=priority), qos, {(key, ""): value for key, value in frees.items()})


BOSS: Pod = pod("boss", priority=CRITICAL)


def names(victims: tuple[Pod, ...] | None) -> list[str] | None:
    return None if victims is None else [victim.metadata.name for victim in victims]


def test_preemption_requires_a_critical_pod_of_higher_priority() -> None:
    assert is_critical(BOSS)
    assert not is_critical(pod("x", priority=CRITICAL - 1))
    assert may_preempt(BOSS, pod("x"))
    assert not may_preempt(BOSS, pod("x", priority=CRITICAL))
    assert may_preempt(pod("b", priority=CRITICAL + 1), BOSS)
    assert not may_preempt(pod("x"), pod("y"))


def test_the_victim_closest_to_the_shortage_is_chosen() -> None:
    candidates = [of("small", cpu=500), of("exact", cpu=1000), of("big", cpu=4000)]
    assert names(choose_victims(BOSS, candidates, {CPU: 1000})) == ["exact"]
    assert names(choose_victims(BOSS, candidates, {CPU: 400})) == ["small"]
    assert names(choose_victims(BOSS, candidates, {CPU: 5500})) == ["small", "exact", "big"][::-1]


def test_lower_qos_classes_are_preempted_first() -> None:
    candidates = [
        of("guaranteed", "Guaranteed", cpu=1000),
        of("burstable", "Burstable", cpu=1000),
        of("best-effort", "BestEffort"),
    ]
    assert names(choose_victims(BOSS, candidates, {CPU: 1000})) == ["burstable"]
    assert names(choose_victims(BOSS, candidates, {CPU: 1500})) == ["burstable", "guaranteed"]
    assert names(choose_victims(BOSS, candidates, {("pods", ""): 1})) == ["best-effort"]


def test_no_pod_is_preempted_in_vain() -> None:
    assert choose_victims(BOSS, [of("a", cpu=100)], {CPU: 200}) is None
    assert choose_victims(BOSS, [of("a", priority=CRITICAL, cpu=900)], {CPU: 200}) is None
    assert choose_victims(BOSS, [], {}) == ()


def test_required_amounts_follow_from_the_refusal() -> None:
    cpu = Reason(cause=Cause.INSUFFICIENT, resource="cpu", wanted=4000, had=1000, capacity=8000)
    pool = Reason(cause=Cause.POOL_EXHAUSTED, resource="cpu", claim="c", wanted=3000, had=-1000, capacity=1)
    fine = Reason(cause=Cause.INSUFFICIENT, resource="memory", wanted=1, had=1)
    assert needs_of([cpu, pool, fine]) == {CPU: 3000, ("cpu", "c"): 4000}


CANDIDATES = st.lists(
    st.builds(
        lambda number, qos, priority, cpu, memory: of(f"p{number}", qos, priority, cpu=cpu, memory=memory),
        st.integers(0, 99),
        st.sampled_from(["BestEffort", "Burstable", "Guaranteed"]),
        st.sampled_from([None, 0, CRITICAL - 1, CRITICAL]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    max_size=6,
    unique_by=lambda each: each.pod.metadata.name,
)


@given(CANDIDATES, st.dictionaries(st.sampled_from([CPU, MEMORY, ("pods", "")]), st.integers(1, 8)))
def test_the_set_of_victims_is_sufficient_and_minimal(
    candidates: list[Candidate], needs: dict[Need, int]
) -> None:
    chosen = choose_victims(BOSS, candidates, needs)
    allowed = [each for each in candidates if may_preempt(BOSS, each.pod)]

    def suffices(some: list[Candidate]) -> bool:
        return all(sum(each.get(need) for each in some) >= amount for need, amount in needs.items())

    possible = any(suffices(list(some)) for n in range(len(allowed) + 1) for some in combinations(allowed, n))
    assert (chosen is not None) == possible
    if chosen is None:
        return
    gone = [each for each in candidates if each.pod in chosen]
    assert suffices(gone)
    assert all(each in allowed for each in gone)
    # Guaranteed pods go only if all the others together do not suffice.
    others = [each for each in allowed if each.qos != "Guaranteed"]
    if suffices(others):
        assert all(each.qos != "Guaranteed" for each in gone)
