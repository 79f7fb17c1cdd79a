"""Takeover by a new leader: late writes of its predecessor are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver.auth.users import SCHEDULER
from plimsoll.client.endpoints import DEVICE_CLASSES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.api_writer import FENCE_KEY
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
from tests.manifests import DRIVER, claim_template, claiming_pod, device_class
from tests.unit.scheduler.overdrafts import find_overdrafts
from tests.unit.scheduler.process.scheduler_cluster import (
    LONG_LEASE,
    NS,
    QUICK,
    SchedulerCluster,
    elected,
    scheduler_cluster,
)
from tests.waiting import until

Late = list[Callable[[], Awaitable[Any]]]


async def hold_back(process: SchedulerProcess, monkeypatch: pytest.MonkeyPatch, method: str) -> Late:
    """Hold back the calls of a method until the test delivers them."""
    late: Late = []
    real = getattr(process.writer, method)

    async def delayed(*arguments: Any, **named: Any) -> None:
        # Without the check of the lease: the request has left before the lease was lost.
        late.append(lambda: real(*arguments, **named))
        await asyncio.Event().wait()

    monkeypatch.setattr(process.writer, method, delayed)
    return late


async def deliver(process: SchedulerProcess, late: Late) -> list[int]:
    """Deliver the calls held back; return the code of each response."""
    process.election = None
    codes = []
    for call in late:
        try:
            await call()
            codes.append(200)
        except ApiError as error:
            codes.append(error.code)
    return codes


async def make_devices(row: SchedulerCluster, count: int) -> None:
    await row.node("n1", cpu="8")
    await row.admin.create(DEVICE_CLASSES, device_class(DRIVER))
    await row.admin.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    await row.devices("n1", count=count)


async def allocated(row: SchedulerCluster) -> list[str]:
    """Return the devices in the statuses of all claims."""
    listing = await row.admin.list(RESOURCE_CLAIMS, NS)
    statuses = [decode_tree(raw).get("status") or {} for raw in listing.items]
    found = [status["allocation"]["devices"]["results"] for status in statuses if status.get("allocation")]
    return sorted(result["device"] for results in found for result in results)


@pytest.mark.parametrize("elect", [True, False])
@pytest.mark.parametrize("method", ["write_allocation", "bind", "unreserve"])
async def test_a_delayed_write_of_the_previous_leader_is_refused(
    method: str, elect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduler_cluster() as row:
        await make_devices(row, 2)
        settings = elected() if elect else QUICK
        first = await row.start(settings, "first")
        await until(lambda: first.leading)
        late = await hold_back(first, monkeypatch, method)
        if method == "unreserve":

            async def refuse(*arguments: Any) -> None:
                raise ApiError(403, "Forbidden", "not now")

            monkeypatch.setattr(first.writer, "bind", refuse)
        for name in ("a", "b"):
            await row.admin.create(PODS, claiming_pod(name, "t"), NS)
        await until(lambda: len(late) == 2)
        await row.kill(first)
        # Others want the same devices.
        for name in ("c", "d"):
            await row.admin.create(PODS, claiming_pod(name, "t"), NS)
        second = await row.start(settings, "second")
        await until(lambda: len(second.context.snapshot.pod_keys()) == 2)
        codes = await deliver(first, late)
        assert codes == [409, 409]
        await until(lambda: not second.context.snapshot.assumed)
        assert await allocated(row) == ["gpu-0", "gpu-1"]
        assert verify(second.context.snapshot) == []
        assert find_overdrafts(second.context.snapshot) == []


async def test_a_binding_that_landed_before_the_fence_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is full with a pod whose binding arrives between the new leader's list and its fence."""
    async with scheduler_cluster() as row:
        await row.node("n1", cpu="2")
        first = await row.start(elected(), "first")
        await until(lambda: first.leading)
        late = await hold_back(first, monkeypatch, "bind")
        await row.pod("a", cpu="2")
        await until(lambda: late)
        await row.kill(first)
        second = SchedulerProcess(row.server.client(), elected(), identity="second")
        refresh = second.context.informers.refresh_allocations

        async def land_then() -> None:
            await refresh()
            assert await deliver(first, late) == [200]

        monkeypatch.setattr(second.context.informers, "refresh_allocations", land_then)
        task = asyncio.create_task(second.run())
        await row.pod("b", cpu="2")
        await row.bound("a")
        await until(lambda: second.context.queue.lengths()["unschedulable"])
        pods = [await row.admin.get(PODS, name, NS) for name in ("a", "b")]
        assert [tree["spec"].get("nodeName") for tree in pods] == ["n1", None]
        second.stop()
        await task


async def test_a_released_lease_needs_no_fence() -> None:
    async with scheduler_cluster() as row:
        await row.node("n1", cpu="2")
        await row.pod("large", cpu="4")
        first = await row.start(elected(), "first")
        await until(lambda: first.context.queue.lengths()["unschedulable"])
        fence = (await row.admin.get(PODS, "large", NS))["metadata"]["annotations"][FENCE_KEY]
        await row.stop(first)
        second = await row.start(elected(), "second")
        await until(lambda: second.context.queue.lengths()["unschedulable"])
        assert second.election is not None
        assert second.election.was_released
        tree = await row.admin.get(PODS, "large", NS)
        assert tree["metadata"]["annotations"][FENCE_KEY] == fence


async def test_caches_that_lag_behind_are_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch of the standby hangs while the leader fills the node; then the leader stops."""
    async with scheduler_cluster() as row:
        await row.node("n1", cpu="2")
        first = await row.start(elected(timing=LONG_LEASE), "first")
        await until(lambda: first.leading)
        second = await row.start(elected(timing=LONG_LEASE), "second")
        (pods,) = [each for each in second.context.informers.informers if each.endpoint.plural == "pods"]

        async def hang() -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(pods, "watch", hang)
        assert pods.interruptible is not None
        pods.interruptible.cancel()
        await asyncio.sleep(0)
        await row.pod("a", cpu="2")
        await row.bound("a")
        assert not second.leading
        assert not second.context.snapshot.pod_keys(), "the watch has not delivered it"
        await row.stop(first)
        await until(lambda: second.scheduling.is_set())
        assert len(second.context.snapshot.pod_keys()) == 1


async def test_a_takeover_that_was_interrupted_does_not_release_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped before everything is fenced: the next leader has to do it."""
    async with scheduler_cluster() as row:
        await row.node("n1", cpu="2")
        await row.pod("large", cpu="4")
        first = SchedulerProcess(row.server.client(SCHEDULER), elected(0.1), identity="first")
        fencing = asyncio.Event()

        async def hang(pod: Any) -> None:
            fencing.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(first.writer, "fence_pod", hang)
        task = asyncio.create_task(first.run())
        await fencing.wait()
        first.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await row.shorten_lease()
        second = await row.start(elected(), "second")
        await until(lambda: second.context.queue.lengths()["unschedulable"])
        assert second.election is not None
        assert not second.election.was_released
        assert FENCE_KEY in (await row.admin.get(PODS, "large", NS))["metadata"]["annotations"]
