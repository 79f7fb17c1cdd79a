"""Permit of a gang: pods wait for each other, and fail together."""

from __future__ import annotations

import asyncio

from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.process.gang_permit import GangPermit
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import claim, exactly, member, result


def placement(name: str, *, allocates: bool = False, shares: bool = False) -> Placement:
    claims: tuple[ResourceClaim, ...] = ()
    if allocates:
        claims = (claim("c", exactly()),)
    elif shares:
        claims = (claim("c", exactly(), results=[result("d")]),)
    return Placement(PodInfo(member(name), claims, Snapshot().options), 0, "n")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_pods_wait_until_enough_of_them_are_ready() -> None:
    one, two, three = (placement(f"p{i}") for i in range(3))
    permit = GangPermit([one, two, three], 2)
    first = asyncio.create_task(permit.await_group(one))
    await settle()
    assert not first.done()
    assert await permit.await_group(two) == ""
    assert await first == ""
    permit.fail(three, "conflict")
    assert await permit.await_group(one) == ""


async def test_all_fail_if_too_few_are_left() -> None:
    one, two, three = (placement(f"p{i}") for i in range(3))
    permit = GangPermit([one, two, three], 2)
    waiting = asyncio.create_task(permit.await_group(one))
    permit.fail(two, "conflict")
    await settle()
    assert not waiting.done()
    permit.fail(three, "gone")
    assert await waiting == "another pod of the pod group could not be bound: conflict"


async def test_a_shared_claim_is_written_by_its_first_pod() -> None:
    owner, user = placement("owner", allocates=True), placement("user", shares=True)
    permit = GangPermit([owner, user], 2)
    waiting = asyncio.create_task(permit.await_claims(user))
    assert await permit.await_claims(owner) == ""
    await settle()
    assert not waiting.done()
    ready = asyncio.create_task(permit.await_group(owner))
    assert await waiting == ""
    assert await permit.await_group(user) == ""
    assert await ready == ""


async def test_a_shared_claim_that_was_not_written_fails_its_users() -> None:
    owner, user = placement("owner", allocates=True), placement("user", shares=True)
    permit = GangPermit([owner, user], 1)
    waiting = asyncio.create_task(permit.await_claims(user))
    permit.fail(owner, "conflict")
    assert await waiting == "another pod of the pod group could not be bound: conflict"
