"""Stale claims: released late, and only if they are deleted and unused."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.claim_lookup import has_allocated_devices
from plimsoll.drivers.cpu.stale_claims import StaleClaimTracker
from plimsoll.drivers.cpu.state import ClaimAllocation, CpuAssignment
from plimsoll.protocols.dra import ClaimRef


def allocation(uid: str, name: str = "claim") -> ClaimAllocation:
    return ClaimAllocation(
        ClaimRef("default" if name else "", name, uid), (CpuAssignment("r", "p", "d", CpuSet([1])),)
    )


def look(
    stale: StaleClaimTracker,
    uids: list[str],
    now: float,
    *,
    used: frozenset[str] = frozenset(),
    there: frozenset[str] = frozenset(),
) -> list[str]:
    async def is_allocated(ref: ClaimRef) -> bool:
        return ref.uid in there

    found = asyncio.run(stale.update([allocation(uid) for uid in uids], used, is_allocated, now))
    return [ref.uid for ref in found]


def test_a_deleted_unused_claim_is_released_after_a_delay() -> None:
    stale = StaleClaimTracker(grace_seconds=300)
    assert look(stale, ["a"], 0.0) == []
    assert look(stale, ["a"], 299.0) == []
    assert look(stale, ["a"], 300.0) == ["a"]


@pytest.mark.parametrize("excuse", ["used", "there"])
def test_use_or_allocation_restarts_the_delay(excuse: str) -> None:
    stale = StaleClaimTracker(grace_seconds=300)
    assert look(stale, ["a"], 0.0) == []
    assert look(stale, ["a"], 200.0, **{excuse: frozenset("a")}) == []
    assert look(stale, ["a"], 310.0) == []
    assert look(stale, ["a"], 610.0) == ["a"]


def test_claims_that_the_cluster_does_not_count() -> None:
    stale = StaleClaimTracker(grace_seconds=300)
    assert look(stale, ["a", "b", "c"], 0.0, used=frozenset("b"), there=frozenset("c")) == []
    assert stale.deallocated == {"a"}
    assert look(stale, ["b"], 1.0) == []
    assert stale.deallocated == {"b"}


def test_claims_as_read_from_the_api() -> None:
    claim = {
        "metadata": {"uid": "a"},
        "status": {"allocation": {"devices": {"results": [{"driver": "dra.cpu"}]}}},
    }
    assert has_allocated_devices(claim, "a")
    assert not has_allocated_devices(claim, "b")
    assert not has_allocated_devices({**claim, "status": {}}, "a")
    assert not has_allocated_devices({**claim, "status": {"allocation": None}}, "a")
    other = {"allocation": {"devices": {"results": [{"driver": "gpu.example.com"}, None]}}}
    assert not has_allocated_devices({**claim, "status": other}, "a")
    assert not has_allocated_devices({"metadata": None}, "a")
