"""Device conflicts: a claim waits until the claim that holds its device is unprepared."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.node.claim_info import AllocatedDevice, ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.claims.checks import claim_to_prepare
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.claims.device_conflicts import find_conflicts, held_devices
from plimsoll.node.claims.faults import HELD, REPLACED, ClaimFault
from plimsoll.node.layout import Layout
from tests.unit.node.claims.fake_drivers import GPU, NIC, FakeDrivers, cdi_of, make_claim, make_pod


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


@pytest.fixture
def fake_drivers() -> FakeDrivers:
    return FakeDrivers()


def result(
    device: str = "d", share: str | None = None, *, driver: str = GPU, admin: bool | None = None
) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        request="r", driver=driver, pool="node", device=device, share_id=share, admin_access=admin
    )


def claim_with(name: str, *results: DeviceRequestAllocationResult, uid: str = "") -> ResourceClaim:
    return make_claim(name, uid=uid, users=["p", "q"], results=results)


async def prepare(cache: ClaimInfoCache, pod: str, claim: ResourceClaim) -> tuple[ClaimFault, ...]:
    name = claim.metadata.name
    return await cache.prepare(make_pod(pod, name), {name: claim})


async def test_a_device_is_not_prepared_while_another_claim_holds_it(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    old, new = claim_with("a", result()), claim_with("b", result())
    fake_drivers.add(old, new)
    cache = ClaimInfoCache.open(layout, fake_drivers)
    assert await prepare(cache, "p", old) == ()
    (fault,) = await prepare(cache, "q", new)
    assert (fault.claim, fault.code, fault.holder) == ("b", HELD, "uid-a")
    assert fault.message == (
        "ResourceClaim b: device gpu.example.com/node/d still held by ResourceClaim default/a "
        "(UID uid-a), waiting until it is unprepared (used by pod UID p)"
    )
    assert fake_drivers.calls == [("prepare", GPU, ("uid-a",))], "the driver is not asked"
    assert [claim.ref.name for claim in cache.claims()] == ["a"], "a refused claim is not on record"

    fake_drivers.faults["unprepare", GPU] = "refused"
    await cache.unprepare("p")
    (fault,) = await prepare(cache, "q", new)
    assert fault.message.endswith("(used by pod UID p; no answer yet from driver gpu.example.com)")

    fake_drivers.faults.clear()
    assert await cache.unprepare("p") == ()
    assert await prepare(cache, "q", new) == ()
    assert fake_drivers.held == {GPU: {"uid-b"}}


async def test_the_device_stays_held_after_a_restart(layout: Layout, fake_drivers: FakeDrivers) -> None:
    old, new = claim_with("a", result()), claim_with("b", result())
    fake_drivers.add(old, new)
    fake_drivers.faults["prepare", GPU, "uid-a"] = "timeout"  # the driver holds it without a record
    await prepare(ClaimInfoCache.open(layout, fake_drivers), "p", old)
    for boot in ("", "after the machine was started anew"):
        cache = ClaimInfoCache.open(layout, fake_drivers, boot=boot or None)
        (fault,) = await prepare(cache, "q", new)
        assert (fault.code, fault.holder) == (HELD, "uid-a")
    assert await cache.reconcile(["q"]) == ()
    assert await prepare(cache, "q", new) == ()


@pytest.mark.parametrize("kind", ["refused", "timeout", "broken", "skipped", "malformed"])
async def test_a_prepare_that_failed_may_hold_the_device(
    layout: Layout, fake_drivers: FakeDrivers, kind: str
) -> None:
    old, new = claim_with("a", result()), claim_with("b", result())
    fake_drivers.add(old, new)
    fake_drivers.faults["prepare", GPU, "uid-a"] = kind
    cache = ClaimInfoCache.open(layout, fake_drivers)
    await prepare(cache, "p", old)
    (fault,) = await prepare(cache, "q", new)
    assert fault.code == HELD
    assert await cache.unprepare("p") == ()
    assert await prepare(cache, "q", new) == ()


async def test_an_absent_driver_holds_nothing(layout: Layout, fake_drivers: FakeDrivers) -> None:
    old, new = claim_with("a", result()), claim_with("b", result())
    fake_drivers.add(old, new)
    fake_drivers.absent.add(GPU)
    freed: list[frozenset[str]] = []
    cache = ClaimInfoCache.open(layout, fake_drivers)
    cache.on_release = freed.append
    (fault,) = await prepare(cache, "p", old)
    assert fault.code == "absent"
    assert {uid for uids in freed for uid in uids} == {"uid-a"}, "a pod that saw it prepared may continue"
    fake_drivers.absent.clear()
    assert await prepare(cache, "q", new) == ()
    (fault,) = await prepare(cache, "p", old)
    assert (fault.code, fault.holder) == (HELD, "uid-b")


async def test_a_driver_that_has_unprepared_its_part_frees_it(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    old = claim_with("a", result(), result(driver=NIC))
    fake_drivers.add(old, claim_with("g", result()), claim_with("n", result(driver=NIC)))
    freed: list[frozenset[str]] = []
    cache = ClaimInfoCache.open(layout, fake_drivers)
    cache.on_release = freed.append
    await prepare(cache, "p", old)
    assert freed == []
    fake_drivers.faults["unprepare", NIC] = "refused"
    await cache.unprepare("p")
    assert freed == [frozenset({"uid-a"})]
    assert await prepare(cache, "q", fake_drivers.named("g")["g"]) == ()
    (fault,) = await prepare(cache, "q", fake_drivers.named("n")["n"])
    assert fault.code == HELD
    fake_drivers.faults.clear()
    await cache.unprepare("p")
    assert freed == [frozenset({"uid-a"})] * 2
    assert await prepare(cache, "q", fake_drivers.named("n")["n"]) == ()


async def test_a_claim_of_the_same_name_waits_for_the_old_one(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    # Another device: a kubelet compares names, and so do its end-to-end tests.
    old, new = claim_with("a", result(), uid="u1"), claim_with("a", result("e"), uid="u2")
    other_namespace = make_claim("a", users=["q"], uid="u3", results=[result("f")], namespace="other")
    fake_drivers.add(old, new, other_namespace)
    cache = ClaimInfoCache.open(layout, fake_drivers)
    assert await prepare(cache, "p", old) == ()
    # p was deleted by force and has not been cleaned up yet.
    for pod in ("q", "p"):
        (fault,) = await prepare(cache, pod, new)
        assert (fault.code, fault.holder) == (REPLACED, "u1")
        assert fault.message == (
            "old ResourceClaim with same name a and different UID u1 still exists (previous pod "
            "force-deleted?!), waiting until it is unprepared (used by pod UID p)"
        )
    assert [claim.ref.uid for claim in cache.claims()] == ["u1"], "the old record is not overwritten"
    assert await cache.reconcile(["q"]) == ()
    new_pod = make_pod("q", "a")
    assert await cache.prepare(new_pod, {"a": new}) == ()
    assert cache.cdi_ids(new_pod, new_pod.spec.containers[0]) == (cdi_of(GPU, "u2"),)
    assert fake_drivers.held == {GPU: {"u2"}}


async def test_the_same_name_and_the_same_device_are_both_reported(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    old, new = claim_with("a", result(), uid="u1"), claim_with("a", result(), uid="u2")
    fake_drivers.add(old, new)
    cache = ClaimInfoCache.open(layout, fake_drivers)
    await prepare(cache, "p", old)
    assert [fault.code for fault in await prepare(cache, "q", new)] == [REPLACED, HELD]


async def test_concurrent_claims_do_not_both_get_a_device(layout: Layout, fake_drivers: FakeDrivers) -> None:
    claims = [claim_with(name, result()) for name in "ab"]
    fake_drivers.add(*claims)
    cache = ClaimInfoCache.open(layout, fake_drivers)
    answers = await asyncio.gather(*(prepare(cache, pod, c) for pod, c in zip("pq", claims, strict=True)))
    assert [[fault.code for fault in faults] for faults in answers] == [[], [HELD]]
    assert fake_drivers.held == {GPU: {"uid-a"}}


async def test_two_claims_of_one_pod_do_not_share_a_device(layout: Layout, fake_drivers: FakeDrivers) -> None:
    fake_drivers.add(claim_with("a", result()), claim_with("b", result()))
    cache = ClaimInfoCache.open(layout, fake_drivers)
    (fault,) = await cache.prepare(make_pod("p", "a", "b"), fake_drivers.named("a", "b"))
    assert (fault.claim, fault.code, fault.holder) == ("b", HELD, "uid-a")
    assert (fake_drivers.calls, cache.claims()) == ([], ())


async def test_a_claim_that_was_not_saved_holds_nothing(layout: Layout, fake_drivers: FakeDrivers) -> None:
    old, new = claim_with("a", result()), claim_with("b", result())
    fake_drivers.add(old, new)
    freed: list[frozenset[str]] = []
    cache = ClaimInfoCache.open(layout, fake_drivers)
    cache.on_release = freed.append
    layout.claims.mkdir(parents=True)  # a file cannot be saved in the place of a directory
    (fault,) = await prepare(cache, "p", old)
    assert fault.code == "NotSaved"
    assert freed == [frozenset({"uid-a"})]
    layout.claims.rmdir()
    assert await prepare(cache, "q", new) == ()


@pytest.mark.parametrize(
    ("held", "wanted", "conflict"),
    [
        (result(), result(), True),
        (result(), result("e"), False),
        (result(), result(driver=NIC), False),
        (result(share="s"), result(share="t"), False),
        (result(share="s"), result(share="s"), True),
        (result(share="s"), result(), True),
        (result(), result(share="s"), True),
        (result(admin=True), result(), False),
        (result(), result(admin=True), False),
        (result(admin=True), result(admin=True), False),
        (result(admin=False), result(admin=False), True),
    ],
)
async def test_conflicting_devices(
    layout: Layout,
    fake_drivers: FakeDrivers,
    held: DeviceRequestAllocationResult,
    wanted: DeviceRequestAllocationResult,
    conflict: bool,
) -> None:
    fake_drivers.add(claim_with("a", held), claim_with("b", wanted))
    cache = ClaimInfoCache.open(layout, fake_drivers)
    assert await prepare(cache, "p", fake_drivers.named("a")["a"]) == ()
    faults = await prepare(ClaimInfoCache.open(layout, fake_drivers), "q", fake_drivers.named("b")["b"])
    assert [fault.code for fault in faults] == ([HELD] if conflict else [])


async def test_an_unanswered_claim_is_not_prepared_for_another_allocation(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    first, second = claim_with("a", result()), claim_with("a", result("e"))
    fake_drivers.add(first)
    fake_drivers.faults["prepare", GPU] = "timeout"
    cache = ClaimInfoCache.open(layout, fake_drivers)
    await prepare(cache, "p", first)
    fake_drivers.faults.clear()
    (fault,) = await prepare(cache, "q", second)
    assert (fault.code, fault.holder) == ("Reallocated", "uid-a")
    fake_drivers.add(second)
    assert await cache.reconcile(["q"]) == ()
    assert await prepare(cache, "q", second) == ()


def test_claims_of_a_kubelet_do_not_wait_for_each_other() -> None:
    """A kubelet's record has no allocation, and no share IDs of a v1beta1 driver."""
    ref = ClaimRef("default", "a", "uid-a")
    recorded = ClaimInfo(ref, drivers={GPU: (PreparedDevice("node", "d"),)}, pending=frozenset({GPU}))
    wanted = claim_to_prepare(claim_with("b", result(share="s")))
    itself = replace(recorded, ref=wanted.ref)
    assert held_devices(recorded) == {GPU: {AllocatedDevice("node", "d")}}
    assert find_conflicts(wanted, [GPU], itself, [recorded]) == ()
    assert [each.holder for each in find_conflicts(wanted, [GPU], None, [recorded])] == [recorded]


DEVICES = st.frozensets(
    st.builds(
        AllocatedDevice, st.sampled_from("xy"), st.sampled_from("de"), st.sampled_from([None, "s", "t"])
    )
)


@given(DEVICES, DEVICES)
def test_conflicts_equal_the_naive_pairwise_check(
    mine: frozenset[AllocatedDevice], theirs: frozenset[AllocatedDevice]
) -> None:
    wanted = replace(claim_to_prepare(claim_with("b")), exclusive={GPU: mine})
    other = ClaimInfo(ClaimRef("d", "a", "a"), pending=frozenset({GPU}), allocated={GPU: theirs})
    naive = {
        a
        for a in mine
        for b in theirs
        if (a.pool, a.device) == (b.pool, b.device)
        and (a.share_id is None or b.share_id is None or a.share_id == b.share_id)
    }
    found = find_conflicts(wanted, [GPU], None, [other])
    assert {device for conflict in found for device in conflict.devices} == naive
