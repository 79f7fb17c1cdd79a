"""Order of eviction."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.quantity import Quantity
from plimsoll.node.eviction.ranking import (
    PIDS,
    EvictionCandidate,
    PodResourceUsage,
    eviction_request,
    rank_pods,
)
from tests.build import container, pod
from tests.unit.ledger.samples import charge


def using(used: str | None, memory: str = "0", **spec: Any) -> PodResourceUsage:
    given_pod = pod("p", container("a", memory=memory), **spec)
    return PodResourceUsage(given_pod, None if used is None else Quantity.parse(used))


def order(usages: list[PodResourceUsage], resource: str = "memory", **options: Any) -> list[int]:
    """Return the indexes of the usages in the order of eviction."""
    ranked = rank_pods(usages, resource, **options)
    return [next(i for i, u in enumerate(usages) if u.pod is s.pod) for s in ranked]


def test_pods_above_their_requests_go_first_then_by_priority_then_by_how_much() -> None:
    usages = [
        using("1Gi", "2Gi", priority=-5),
        using("2Gi", "1Gi", priority=10),
        using("1100Mi", "1Gi"),
        using("3Gi", "1Gi"),
        using(None, "9Gi", priority=100),
    ]
    assert order(usages) == [4, 3, 2, 1, 0]


def test_claims_protect_from_eviction() -> None:
    entry = {"resourceClaimName": "x", "containers": ["a"], "resources": {"memory": "4Gi"}}
    charged = using("4Gi", "1Gi", status={"nodeAllocatableResourceClaimStatuses": [entry]})
    greedy = using("2Gi", "1Gi")
    assert order([charged, greedy]) == [1, 0]
    assert order([charged, greedy], count_claims=False) == [0, 1]
    assert order([charged, greedy], charges=lambda pod: ()) == [0, 1]
    candidate = rank_pods([charged], "memory")[0]
    assert (str(candidate.requested), candidate.exceeds_request) == ("5Gi", False)


def test_pool_charges_protect_no_more_than_the_request() -> None:
    greedy = using("3Gi", "1Gi")
    claims = [charge("x", "a", policy="ConsumeFrom", memory="8Gi")]
    assert str(rank_pods([greedy], "memory", charges=lambda pod: claims)[0].requested) == "1Gi"


def test_inodes_are_ranked_by_inodes() -> None:
    few = using("10")
    storing = PodResourceUsage(pod("p", container("b", ephemeral_storage="1Gi")), Quantity.parse("900"))
    assert order([few, storing], "inodes") == [1, 0]


def test_process_ids_are_ranked_by_priority_first() -> None:
    usages = [using("5", priority=1), using("9"), using("20"), using(None), using(None, priority=7)]
    assert order(usages, PIDS) == [3, 2, 1, 0, 4]


def test_requested_memory_for_eviction() -> None:
    overhead = {"memory": "28Mi"}
    assert (
        str(eviction_request(pod("p", container("a", memory="100Mi"), overhead=overhead), "memory"))
        == "128Mi"
    )
    assert eviction_request(pod("p", container("a"), overhead=overhead), "memory").is_zero()
    whole = {"requests": {"memory": "50Mi"}}
    given_pod = pod("p", container("a", memory="100Mi", cpu="1"), resources=whole)
    assert str(eviction_request(given_pod, "memory", [charge("x", memory="1Gi")])) == "50Mi"
    assert eviction_request(given_pod, "cpu").is_zero()


def precedes(one: EvictionCandidate, other: EvictionCandidate) -> int:
    """Compare two usages naively, one rule after the other."""
    if (one.used is None) != (other.used is None):
        return -1 if one.used is None else 1
    if one.exceeds_request != other.exceeds_request:
        return -1 if one.exceeds_request else 1
    priorities = [s.pod.spec.priority or 0 for s in (one, other)]
    if priorities[0] != priorities[1]:
        return -1 if priorities[0] < priorities[1] else 1
    if one.used is None or other.used is None:
        return 0
    first, second = one.used - one.requested, other.used - other.requested
    return (first < second) - (first > second)


_AMOUNTS = st.integers(0, 3).map(str)
_USAGES = st.builds(
    lambda used, memory, priority: using(used, memory, priority=priority),
    st.none() | _AMOUNTS,
    _AMOUNTS,
    st.integers(-1, 1),
)


@given(st.lists(_USAGES, max_size=8))
def test_the_order_equals_the_naive_order(usages: list[PodResourceUsage]) -> None:
    ranked = rank_pods(usages, "memory")
    assert sorted(map(id, (s.pod for s in ranked))) == sorted(id(u.pod) for u in usages)
    unranked = [next(s for s in ranked if s.pod is u.pod) for u in usages]
    assert ranked == sorted(unranked, key=cmp_to_key(precedes))


def test_equal_pods_keep_their_order() -> None:
    pods: list[Pod] = [using("1").pod for _ in range(5)]
    ranked = rank_pods([PodResourceUsage(p, Quantity.parse("1")) for p in pods], "memory")
    assert [id(s.pod) for s in ranked] == [id(p) for p in pods]
