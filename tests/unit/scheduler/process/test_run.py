"""The scheduler on a server in the same process: binding, conditions, preemption, lost leases, shutdown."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver.auth.users import SCHEDULER
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from plimsoll.errors import ApiError, LeaseLostError, UnreachableError
from plimsoll.scheduler.cycle import schedule_pod
from plimsoll.scheduler.process import context as context_module
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.queue import QueueState
from plimsoll.scheduler.snapshot.verify import verify
from tests.manifests import (
    DRIVER,
    Tree,
    claim,
    claim_template,
    claiming_pod,
    device_class,
    pod,
    resource_slice,
)
from tests.unit.scheduler.process.scheduler_cluster import (
    LONG_LEASE,
    NS,
    QUICK,
    SchedulerCluster,
    elected,
    scheduler_cluster,
)
from tests.waiting import DEADLINE, until


async def furnish(row: SchedulerCluster) -> None:
    await row.node("n1", a="1")
    await row.node("n2", a="2")
    await row.admin.create(DEVICE_CLASSES, device_class(DRIVER))
    await row.admin.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
    await row.devices("n1", "n2")


async def test_pods_are_bound_and_the_ledgers_agree() -> None:
    async with scheduler_cluster() as row:
        await furnish(row)
        process = await row.start()
        for number in range(2):
            await row.admin.create(PODS, claiming_pod(f"g{number}", "t"), NS)
            await row.pod(f"p{number}", "2")
        assert {await row.bound("g0"), await row.bound("g1")} == {"n1", "n2"}
        assert {await row.bound("p0"), await row.bound("p1")} == {"n1", "n2"}
        snapshot = process.context.snapshot
        await until(lambda: not snapshot.assumed)
        assert verify(snapshot) == []
        assert sorted(ledger.requested["cpu"] for ledger in snapshot.ledgers if ledger) == [2100, 2100]
        assert process.context.queue.in_flight() == len(process.context.queue) == 0
        await row.stop(process)
        events = await until(lambda: row.admin.list(EVENTS, NS), lambda found: len(found.items) >= 4)
        assert sum(b'"Scheduled"' in raw for raw in events.items) == 4


async def test_pods_whose_status_another_controller_keeps_writing_are_bound_at_once() -> None:
    async with scheduler_cluster() as row:
        await furnish(row)
        process = await row.start()
        pending = [f"p{number}" for number in range(12)]

        async def patch_conditions() -> None:
            for number in itertools.count():
                condition = {"type": "Reported", "status": "True", "message": str(number)}
                patch = {"status": {"conditions": [condition]}}
                for name in pending:
                    with suppress(ApiError):
                        await row.admin.patch(PODS, name, patch, NS, subresource="status", type="strategic")
                await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as group:
            patching = group.create_task(patch_conditions())
            for name in pending:
                charged = name in ("p0", "p1")
                await (
                    row.admin.create(PODS, claiming_pod(name, "t"), NS) if charged else row.pod(name, "100m")
                )
            while pending:
                await row.bound(pending[0])
                pending.pop(0)
            patching.cancel()
        assert process.context.metrics.steps.values == {}, "no binding failed"
        await row.stop(process)


async def test_a_missing_claim_is_reported_on_the_pod() -> None:
    async with scheduler_cluster() as row:
        await furnish(row)
        await row.start()
        await row.pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "late"}])
        condition = await row.condition_of("p")
        assert condition["reason"] == "Unschedulable"
        assert condition["message"] == '0/2 nodes are available: could not find ResourceClaim "late".'
        await row.admin.create(RESOURCE_CLAIMS, claim("late", DRIVER), NS)
        assert await row.bound("p")


async def test_the_reason_of_an_attempt_replaces_the_report_about_a_missing_claim() -> None:
    async with scheduler_cluster() as row:
        await furnish(row)
        process = await row.start(replace(QUICK, named_seconds=3600))
        await row.pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "late"}])
        queue, handler = process.context.queue, process.failure_handler
        await until(lambda: queue.lengths()["gated"] == 1)
        await row.admin.create(RESOURCE_CLAIMS, claim("late", "missing"), NS)
        condition = await row.condition_of("p")
        assert "device class missing does not exist" in condition["message"]
        await until(lambda: not len(handler.condition_writer))
        later = process.context.now() + 7_200_000
        with patch.object(type(process.context), "now", lambda _: later):
            handler.report_due()
        assert len(handler.condition_writer) == 0


async def test_a_claim_being_generated_is_not_reported() -> None:
    async with scheduler_cluster(controllers=False) as row:
        await furnish(row)
        process = await row.start(replace(QUICK, generated_seconds=0.7))
        began = time.monotonic()
        await row.admin.create(PODS, claiming_pod("p", "t"), NS)
        assert "not created yet" in (await row.condition_of("p"))["message"]
        assert time.monotonic() - began >= 0.7
        assert process.context.queue.lengths()["gated"] == 1


async def test_lower_priority_pods_are_preempted() -> None:
    async with scheduler_cluster() as row:
        await row.node("n1")
        process = await row.start()
        await row.pod("low", "3")
        await row.bound("low")
        await row.admin.create(
            PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000, "description": ""}
        )
        await row.pod("high", "3", priorityClassName="high")
        tree = await until(
            lambda: row.admin.get(PODS, "high", NS), lambda one: one["status"].get("nominatedNodeName")
        )
        assert tree["status"]["nominatedNodeName"] == "n1"
        # The nomination and the eviction are written side by side.
        victim = await until(
            lambda: row.admin.get(PODS, "low", NS), lambda one: one["metadata"].get("deletionTimestamp")
        )
        reasons = [each.get("reason") for each in victim["status"]["conditions"]]
        assert "PreemptionByScheduler" in reasons
        await row.pod("sneaky", "3")
        await row.admin.delete(PODS, "low", NS, grace=0)
        assert await row.bound("high") == "n1"
        assert len(process.context.nominations) == 0
        assert (await row.admin.get(PODS, "sneaky", NS))["spec"].get("nodeName") is None


async def test_an_unusable_allocation_is_deallocated() -> None:
    """As after a restart: a claim is allocated and reserved for a pod that fits only elsewhere."""
    async with scheduler_cluster() as row:
        await furnish(row)
        made = await row.pod(
            "p", resourceClaims=[{"name": "c", "resourceClaimName": "c"}], nodeSelector={"a": "2"}
        )
        await row.admin.create(RESOURCE_CLAIMS, claim("c", DRIVER), NS)
        await _allocate(row, "c", "n1", made)
        await row.start()
        assert await row.bound("p") == "n2"
        status = (await row.admin.get(RESOURCE_CLAIMS, "c", NS))["status"]
        assert [each["pool"] for each in status["allocation"]["devices"]["results"]] == ["n2"]


async def _allocate(row: SchedulerCluster, name: str, machine: str, user: Tree) -> None:
    result = {"request": "gpu", "driver": DRIVER, "pool": machine, "device": "gpu-0"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [machine]}]}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    consumer = {"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}
    body = {"status": {"allocation": allocation, "reservedFor": [consumer]}}
    await row.admin.patch(RESOURCE_CLAIMS, name, body, NS, subresource="status")


async def test_devices_of_deleted_pods_are_released_at_startup() -> None:
    async with scheduler_cluster(controllers=False) as row:
        await furnish(row)
        await row.admin.create(RESOURCE_CLAIMS, claim("c", DRIVER), NS)
        await _allocate(row, "c", "n1", {"metadata": {"name": "ghost", "uid": "missing"}})
        await row.start()
        await until(
            lambda: row.admin.get(RESOURCE_CLAIMS, "c", NS),
            lambda one: not one.get("status", {}).get("allocation"),
        )


async def test_errors_of_one_pod_are_isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_for_one(pod: Any, *rest: Any) -> Any:
        if pod.metadata.name == "bad":
            raise ZeroDivisionError("a bug")
        return schedule_pod(pod, *rest)

    monkeypatch.setattr(context_module, "schedule_pod", fail_for_one)
    async with scheduler_cluster() as row:
        await row.node("n1")
        process = await row.start()
        await row.pod("bad")
        await row.pod("good")
        assert await row.bound("good") == "n1"
        condition = await row.condition_of("bad")
        assert condition["reason"] == "SchedulerError"
        assert condition["message"] == "ZeroDivisionError: a bug"
        assert process.context.queue.lengths()["backoff"] == 1
        monkeypatch.setattr(context_module, "schedule_pod", schedule_pod)
        assert await row.bound("bad") == "n1"


async def test_shutdown_waits_for_bindings_with_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scheduler_cluster() as row:
        await row.node("n1")
        process = await row.start(replace(QUICK, stop_seconds=DEADLINE))
        gate, bind = asyncio.Event(), process.writer.bind

        async def slowly(*arguments: Any) -> None:
            await gate.wait()
            await bind(*arguments)

        monkeypatch.setattr(process.writer, "bind", slowly)
        await row.pod("p")
        await until(lambda: process.loop and process.loop.in_flight)
        process.stop()
        await asyncio.sleep(0.05)
        gate.set()
        await row.stop(process)
        assert await row.bound("p") == "n1"

        again = await row.start(replace(QUICK, stop_seconds=0.05))

        async def never(*arguments: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(again.writer, "bind", never)
        await row.pod("q")
        await until(lambda: again.loop and again.loop.in_flight)
        async with asyncio.timeout(DEADLINE):
            await row.stop(again)
        assert len(again.context.snapshot.assumed) == 1, "it may still land"
        await row.start()
        assert await row.bound("q") == "n1"


async def test_a_standby_takes_over_from_the_leader() -> None:
    async with scheduler_cluster() as row:
        await row.node("n1", cpu="32")
        first = await row.start(elected(timing=LONG_LEASE), "first")
        await until(lambda: first.leading)
        second = await row.start(elected(), "second")
        await row.pod("a")
        await row.bound("a")
        assert (first.leading, second.leading) == (True, False)
        # an orderly end hands over at once
        await row.stop(first)
        await row.pod("b")
        await row.bound("b")
        assert second.leading
        # a sudden one after the lease has run out
        third = await row.start(elected(), "third")
        await row.kill(second)
        await row.pod("c")
        await row.bound("c")
        assert third.leading
        snapshot = third.context.snapshot
        await until(lambda: len(snapshot.pod_keys()) == 3)
        assert verify(snapshot) == []


async def test_losing_the_lease_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scheduler_cluster() as row:
        await row.node("n1")
        process = await row.start(elected(), "ours")
        await until(lambda: process.leading)
        begun = asyncio.Event()

        async def hang(*arguments: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(process.writer, "bind", hang)
        await row.pod("p")
        await begun.wait()
        lease = await row.admin.get(LEASES, "plimsoll-scheduler", "kube-system")
        lease["spec"] |= {"holderIdentity": "theirs", "leaseDurationSeconds": 1}
        await _insist(row.admin, lease)
        with pytest.raises(LeaseLostError):
            await row.wait(process)
        assert not process.leading
        assert len(process.context.snapshot.assumed) == 1, "it may still land"
        with pytest.raises(LeaseLostError):
            process.check_lease()
        await row.start(elected(), "next")
        assert await row.bound("p") == "n1", "their lease runs out, and a new process takes over"


async def _insist(client: Client, lease: Tree) -> None:
    """Write a lease that another process keeps renewing."""
    spec = lease["spec"]
    await client.patch(LEASES, "plimsoll-scheduler", {"spec": spec}, "kube-system")


async def test_the_scheduler_waits_for_the_server() -> None:
    async with scheduler_cluster() as row:
        allowed = False
        client = row.server.client(SCHEDULER)
        call = client.call

        async def refuse(method: str, path: str, **rest: Any) -> Any:
            if not allowed:
                raise UnreachableError("no response", sent=False)
            return await call(method, path, **rest)

        client.call = refuse  # type: ignore[method-assign]
        process = SchedulerProcess(client, replace(QUICK, listen="127.0.0.1:0"))
        task = asyncio.create_task(process.run())
        await until(lambda: "no response" in process.context.informers.sync_problem())
        allowed = True
        await process.ready(DEADLINE)
        assert process.context.informers.sync_problem() == ""
        process.stop()
        await task


async def test_a_device_that_must_be_made_ready_first_is_waited_for() -> None:
    async with scheduler_cluster() as row:
        await row.node("n1")
        await row.admin.create(DEVICE_CLASSES, device_class(DRIVER))
        await row.admin.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
        fabric = resource_slice("fabric", "n1")
        fabric["spec"]["devices"][0] |= {
            "bindingConditions": ["attached"],
            "bindingFailureConditions": ["broken"],
        }
        await row.admin.create(RESOURCE_SLICES, fabric)
        process = await row.start()
        await row.admin.create(PODS, claiming_pod("g", "t"), NS)

        async def claims() -> list[Tree]:
            found = await row.admin.list(RESOURCE_CLAIMS, NS)
            return [decode_tree(raw) for raw in found.items]

        (held,) = await until(claims, lambda all: [c for c in all if c.get("status", {}).get("allocation")])
        events = await until(
            lambda: row.admin.list(EVENTS, NS),
            lambda found: [raw for raw in found.items if b"waiting for binding conditions" in raw],
        )
        assert len(events.items) == 1
        waiting = await row.admin.get(PODS, "g", NS)
        assert "nodeName" not in waiting["spec"]
        (result,) = held["status"]["allocation"]["devices"]["results"]
        ready = {"type": "attached", "status": "True", "reason": "Done", "message": ""}
        ready["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        device = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [ready]}
        name = held["metadata"]["name"]
        patch = {"status": {"devices": [device]}}
        await row.admin.patch(RESOURCE_CLAIMS, name, patch, NS, subresource="status")
        assert await row.bound("g") == "n1"
        assert verify(process.context.snapshot) == []


async def test_a_claim_is_released_once_and_its_pod_is_held_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim is allocated where its pod does not fit: events that wake the pod do not release it twice."""
    async with scheduler_cluster() as row:
        await row.node("n1")
        await row.node("n2")
        await row.devices("n1", "n2")
        await row.admin.create(DEVICE_CLASSES, device_class(DRIVER))
        await row.admin.create(RESOURCE_CLAIMS, claim("c", DRIVER), NS)
        found = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
        allocation = {"devices": {"results": [found]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
        await row.admin.patch(
            RESOURCE_CLAIMS, "c", {"status": {"allocation": allocation}}, NS, subresource="status"
        )
        process = await row.start()
        calls: list[str] = []
        gate = asyncio.Event()
        unreserve = process.writer.unreserve

        async def slowly(*arguments: Any, **named: Any) -> Any:
            calls.append("unreserve")
            await gate.wait()
            return await unreserve(*arguments, **named)

        monkeypatch.setattr(process.writer, "unreserve", slowly)
        tree = pod("p")
        tree["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n2"}
        tree["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
        await row.admin.patch(NODES, "n2", {"metadata": {"labels": {"kubernetes.io/hostname": "n2"}}})
        made = await row.admin.create(PODS, tree, NS)
        key = made["metadata"]["uid"]
        await until(lambda: calls)
        for number in range(3):  # things that would wake it
            await row.admin.patch(NODES, "n2", {"metadata": {"labels": {"round": str(number)}}})
            await asyncio.sleep(0.05)
        assert process.context.queue.state_of(key) is QueueState.IN_FLIGHT
        assert calls == ["unreserve"]
        gate.set()
        assert await row.bound("p") == "n2"
        assert calls == ["unreserve"]
