"""Claims that nobody will ever release are given up late, and only if they are gone and unused."""

from __future__ import annotations

import asyncio

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.stale_claims import StaleClaims, holds_devices
from plimsoll.drivers.cpu.state import Grant, Holding
from plimsoll.protocols.dra import ClaimRef


def holding(uid: str, name: str = "claim") -> Holding:
    return Holding(ClaimRef("default" if name else "", name, uid), (Grant("r", "p", "d", CpuSet([1])),))


def look(
    stale: StaleClaims,
    uids: list[str],
    now: float,
    *,
    used: frozenset[str] = frozenset(),
    there: frozenset[str] = frozenset(),
) -> list[str]:
    async def is_allocated(ref: ClaimRef) -> bool:
        return ref.uid in there

    found = asyncio.run(stale.look([holding(uid) for uid in uids], used, is_allocated, now))
    return [ref.uid for ref in found]


def test_a_claim_that_is_gone_and_unused_is_given_up_after_a_while() -> None:
    stale = StaleClaims(patience=300)
    assert look(stale, ["a"], 0.0) == []
    assert look(stale, ["a"], 299.0) == []
    assert look(stale, ["a"], 300.0) == ["a"]


@pytest.mark.parametrize("excuse", ["used", "there"])
def test_once_seen_in_use_or_allocated_the_wait_begins_anew(excuse: str) -> None:
    stale = StaleClaims(patience=300)
    assert look(stale, ["a"], 0.0) == []
    assert look(stale, ["a"], 200.0, **{excuse: frozenset("a")}) == []
    assert stale.suspects == {}
    assert look(stale, ["a"], 310.0) == []
    assert look(stale, ["a"], 610.0) == ["a"]


def test_a_claim_without_a_name_stays() -> None:
    async def never(ref: ClaimRef) -> bool:
        raise AssertionError("nobody can be asked after it")

    stale = StaleClaims(patience=0)
    assert asyncio.run(stale.look([holding("a", "")], set(), never, 0.0)) == []


def test_what_the_api_shows() -> None:
    claim = {
        "metadata": {"uid": "a"},
        "status": {"allocation": {"devices": {"results": [{"driver": "dra.cpu"}]}}},
    }
    assert holds_devices(claim, "a")
    assert not holds_devices(claim, "b")
    assert not holds_devices({**claim, "status": {}}, "a")
    assert not holds_devices({**claim, "status": {"allocation": None}}, "a")
    other = {"allocation": {"devices": {"results": [{"driver": "gpu.example.com"}, None]}}}
    assert not holds_devices({**claim, "status": other}, "a")
    assert not holds_devices({"metadata": None}, "a")
