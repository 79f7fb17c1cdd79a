"""Device statuses written by a driver, against a server with the rules of the API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import VIEWERS, User, driver_user
from plimsoll.apiserver.in_process import InProcessTransport
from plimsoll.client import Client
from plimsoll.client.retries import Backoff
from plimsoll.drivers.plugin import (
    AllocatedClaim,
    ClaimRef,
    DeviceCondition,
    DeviceStatus,
    InjectedDevice,
    Prepared,
    PreparedDevice,
)
from plimsoll.drivers.plugin.claim_status_writer import MAX_REFUSALS, ClaimStatusWriter
from tests import virtual_time
from tests.coroutines import run_by
from tests.unit.drivers.plugin.fixtures import (
    DRIVER,
    NODE,
    RESOURCE_CLAIMS,
    ClusterFixture,
    FlakyTransport,
    Tree,
    Widgets,
    cluster_fixture,
    run,
)
from tests.unit.drivers.plugin.node_fixture import node_fixture
from tests.waiting import DEADLINE, until

READY = DeviceCondition("Ready", True, "Working", "all is well")
BROKEN = DeviceCondition("Ready", False, "Broken")
SHARES = ("a671734a-e8e5-11e4-8fde-42010af09327", "b671734a-e8e5-11e4-8fde-42010af09327")


def device_status(
    ref: ClaimRef, device: str, value: int = 0, *conditions: DeviceCondition, **more: Any
) -> DeviceStatus:
    return DeviceStatus(ref, NODE, device, data={"value": value}, conditions=conditions, **more)


@asynccontextmanager
async def running_writer(client: Client, **options: Any) -> AsyncIterator[ClaimStatusWriter]:
    options = {
        "settle": 0.01,
        "backoff": Backoff(0.01, 0.1),
        "refusal_backoff": Backoff(0.01, 0.02),
        **options,
    }
    writer = ClaimStatusWriter(client, DRIVER, **options)
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def devices_of(cluster: ClusterFixture, ref: ClaimRef) -> list[Tree]:
    tree = await cluster.admin.get(RESOURCE_CLAIMS, ref.name, ref.namespace)
    return list(tree["status"].get("devices", []))


async def values_of(cluster: ClusterFixture, ref: ClaimRef) -> dict[str, Any]:
    return {
        each["device"]: each["data"]["value"] for each in await devices_of(cluster, ref) if "data" in each
    }


@run_by(run)
async def test_statuses_are_written_once() -> None:
    async with cluster_fixture() as cluster:
        ref = await cluster.add_claim("c", "w0", "w1")
        async with running_writer(cluster.client) as writer:
            writer.set_statuses([device_status(ref, "w0", 1, READY), device_status(ref, "w1", 2)])
            await until(lambda: writer.synced)
            first, second = await devices_of(cluster, ref)
            assert first["data"] == {"value": 1}
            (condition,) = first["conditions"]
            since = condition.pop("lastTransitionTime")
            assert condition == {
                "type": "Ready",
                "status": "True",
                "reason": "Working",
                "message": "all is well",
            }
            assert (second["device"], second["data"]) == ("w1", {"value": 2})
            assert writer.counters.written == 1
            writer.set_statuses([device_status(ref, "w0", 1, READY), device_status(ref, "w1", 3)])
            await until(lambda: writer.synced)
            assert await values_of(cluster, ref) == {"w0": 1, "w1": 3}
            assert (await devices_of(cluster, ref))[0]["conditions"][0]["lastTransitionTime"] == since
        written = len(cluster.transport.writes)
        async with running_writer(cluster.client) as writer:
            writer.set_statuses([device_status(ref, "w0", 1, READY), device_status(ref, "w1", 3)])
            await until(lambda: writer.synced)
            assert len(cluster.transport.writes) == written, "a new process finds it as it should be"
            writer.set_statuses([device_status(ref, "w1", 3)])
            await until(lambda: writer.synced)
            assert await values_of(cluster, ref) == {"w1": 3}
            writer.set_statuses([])
            await until(lambda: writer.synced)
            assert await devices_of(cluster, ref) == []
            assert not writer.problems


def test_consecutive_changes_are_one_write() -> None:
    async def scenario() -> None:
        async with cluster_fixture() as cluster:
            ref = await cluster.add_claim("c", "w0")
            clock = asyncio.get_running_loop().time
            async with running_writer(cluster.client, settle=0.2, clock=clock) as writer:
                for value in range(50):
                    writer.set_statuses([device_status(ref, "w0", value)])
                    await asyncio.sleep(0)
                await until(lambda: writer.synced)
                assert await values_of(cluster, ref) == {"w0": 49}
                assert writer.counters.written == 1

    run(scenario, virtual_time.run)


@run_by(run)
async def test_shares_of_one_device_have_separate_statuses() -> None:
    async with cluster_fixture() as cluster:
        amount = {"consumedCapacity": {f"{DRIVER}/n": "1"}}
        results = [
            {"request": "it", "driver": DRIVER, "pool": NODE, "device": "w0", "shareID": share, **amount}
            for share in SHARES
        ]
        ref = await cluster.add_claim("c", more=results)
        async with running_writer(cluster.client) as writer:
            writer.set_statuses(
                [device_status(ref, "w0", n, share_id=share) for n, share in enumerate(SHARES)]
            )
            await until(lambda: writer.synced)
            found = {each["shareID"]: each["data"]["value"] for each in await devices_of(cluster, ref)}
            assert found == {SHARES[0]: 0, SHARES[1]: 1}
            # One without a share is no device of the claim; the others are still reported.
            writer.set_statuses(
                [device_status(ref, "w0", 5), device_status(ref, "w0", 7, share_id=SHARES[1])]
            )
            await until(lambda: writer.counters.refused > 0)
            (entry,) = await devices_of(cluster, ref)
            assert (entry["shareID"], entry["data"]) == (SHARES[1], {"value": 7})
            assert "not allocated from driver" in writer.problems[0]


@run_by(run)
async def test_statuses_of_others_are_kept() -> None:
    """Other drivers, and other conditions of the same device, such as those a pod's binding waits for."""
    async with cluster_fixture() as cluster:
        other = {"request": "other", "driver": "x.example.com", "pool": NODE, "device": "x0"}
        ref = await cluster.add_claim("c", "w0", more=[other])
        attached = {
            "type": "example.com/attached",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        entries = [
            {"driver": "x.example.com", "pool": NODE, "device": "x0", "data": {"value": 9}},
            {"driver": DRIVER, "pool": NODE, "device": "w0", "conditions": [attached]},
        ]
        await cluster.admin.patch(
            RESOURCE_CLAIMS,
            "c",
            {
                "apiVersion": RESOURCE_CLAIMS.api_version,
                "kind": "ResourceClaim",
                "metadata": {"name": "c"},
                "status": {"devices": entries},
            },
            "default",
            subresource="status",
            type="apply",
            field_manager="other",
        )
        async with running_writer(cluster.client) as writer:
            writer.set_statuses([device_status(ref, "w0", 1, READY)])
            await until(lambda: writer.synced)
            found = {each["device"]: each for each in await devices_of(cluster, ref)}
            assert found["x0"] == entries[0]
            assert [each["type"] for each in found["w0"]["conditions"]] == [
                "example.com/attached",
                "Ready",
            ]
            writer.set_statuses([])
            await until(lambda: writer.synced)
            assert await devices_of(cluster, ref) == entries
            assert not writer.problems


@run_by(run)
async def test_deleted_replaced_and_deallocated_claims_are_dropped() -> None:
    async with cluster_fixture() as cluster:
        refs = [await cluster.add_claim(name, "w0") for name in ("gone", "other", "free")]
        gone, other, free = refs
        for ref in (gone, other):
            await cluster.admin.delete(RESOURCE_CLAIMS, ref.name, ref.namespace)
        again = await cluster.add_claim("other", "w0")
        tree = await cluster.admin.get(RESOURCE_CLAIMS, "free", "default")
        tree["status"] = {}
        await cluster.admin.update(RESOURCE_CLAIMS, tree, subresource="status")
        async with running_writer(cluster.client) as writer:
            before = len(cluster.transport.writes)
            writer.set_statuses([device_status(ref, "w0", 1) for ref in refs])
            await until(lambda: writer.synced)
            assert not writer.problems
            assert len(cluster.transport.writes) == before
            assert await devices_of(cluster, again) == []
            assert await devices_of(cluster, free) == []
            writer.set_statuses([])
            await until(lambda: writer.synced)
            assert not writer.claims, "nothing is remembered for ever"


@run_by(run)
async def test_a_conflicting_write_reads_the_claim_again() -> None:
    async with cluster_fixture() as cluster:
        ref = await cluster.add_claim("c", "w0")

        class ConflictingTransport(FlakyTransport):
            """Transport that writes the claim between reads and writes of the driver, a few times."""

            times = 3

            async def send(self, request: Any) -> Any:
                if request.method == "PATCH" and self.times:
                    self.times -= 1
                    label = {"metadata": {"labels": {"n": f"v{self.times}"}}}
                    await cluster.admin.patch(RESOURCE_CLAIMS, "c", label, "default")
                return await super().send(request)

        client = Client(ConflictingTransport(cluster.transport.inner), attempts=1)
        async with running_writer(client) as writer:
            writer.set_statuses([device_status(ref, "w0", 1)])
            await until(lambda: writer.synced)
            assert await values_of(cluster, ref) == {"w0": 1}
            assert writer.counters.failures == 3
            assert not writer.problems


@run_by(run)
async def test_latest_status_is_written_after_an_api_outage() -> None:
    async with cluster_fixture() as cluster:
        ref = await cluster.add_claim("c", "w0")
        async with running_writer(cluster.client) as writer:
            cluster.transport.disconnect()
            writer.set_statuses([device_status(ref, "w0", 1)])
            await until(lambda: writer.counters.failures >= 3)
            assert "connection refused" in writer.problems[0]
            writer.set_statuses([device_status(ref, "w0", 2)])
            await until(lambda: writer.counters.failures >= 5)
            cluster.transport.reconnect()
            await until(lambda: writer.synced)
            assert await values_of(cluster, ref) == {"w0": 2}
            assert not writer.problems


@pytest.mark.parametrize(
    ("user", "permission"),
    [
        (driver_user("x.example.com"), 'cannot arbitrary-node:patch resource "resourceclaims/driver"'),
        (User("someone", groups=(VIEWERS,)), 'cannot patch resource "resourceclaims/status"'),
    ],
)
def test_missing_permission_is_logged_once(
    user: User, permission: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with cluster_fixture() as cluster:
            refs = [await cluster.add_claim(f"c{n}", "w0") for n in range(3)]
            unauthorized = FlakyTransport(InProcessTransport(cluster.server.api.handle, user))
            async with running_writer(Client(unauthorized, attempts=1)) as writer:
                writer.set_statuses([device_status(ref, "w0", 1) for ref in refs])
                await until(lambda: writer.counters.refused == 3 * MAX_REFUSALS)
                assert writer.synced, "nothing more is tried"
                assert len(unauthorized.writes) == 3 * MAX_REFUSALS
                (problem,) = writer.problems
                assert problem.startswith("claim default/c0 and 2 more: ")
                assert permission in problem
                writer.set_statuses([])
                await until(lambda: writer.synced)
                assert not writer.problems

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert len([each for each in caplog.messages if "device status not written" in each]) == 1


def test_dropped_status_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    gates = "DRAResourceClaimDeviceStatus=false,DRADeviceBindingConditions=false"
    gates += ",DRAResourceClaimGranularStatusAuthorization=false"

    async def scenario() -> None:
        async with cluster_fixture(gates) as cluster:
            refs = [await cluster.add_claim(f"c{n}", "w0") for n in range(2)]
            async with running_writer(cluster.client) as writer:
                writer.set_statuses([device_status(ref, "w0", 1) for ref in refs])
                await until(lambda: writer.counters.refused == 2 * MAX_REFUSALS)
                assert writer.synced
                (problem,) = writer.problems
                assert problem.startswith("claim default/c0 and 1 more: ")
                assert "feature gate DRAResourceClaimDeviceStatus is off" in problem

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert len([each for each in caplog.messages if "feature gate" in each]) == 1


@run_by(run)
async def test_a_rejected_status_does_not_block_other_claims() -> None:
    async with cluster_fixture() as cluster:
        bad, good = [await cluster.add_claim(name, "w0") for name in ("bad", "good")]
        async with running_writer(cluster.client) as writer:
            writer.set_statuses(
                [
                    DeviceStatus(bad, NODE, "w0", data={"x": "y" * 20_000}),
                    device_status(good, "w0", 1),
                ]
            )
            await until(lambda: writer.counters.refused > 0 and writer.counters.written == 1)
            assert await values_of(cluster, good) == {"w0": 1}
            assert "bad" in writer.problems[0]
            writer.set_statuses([device_status(bad, "w0", 2), device_status(good, "w0", 1)])
            await until(lambda: writer.synced)
            assert await values_of(cluster, bad) == {"w0": 2}
            assert not writer.problems


class StatusDriver(Widgets):
    """Driver that reports the status of the claims it has prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.has: dict[str, tuple[ClaimRef, str]] = {}
        self.condition = READY
        self.error = False

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        self.has[claim.ref.uid] = (claim.ref, claim.results[0].device)
        return [PreparedDevice(NODE, each.device, (each.request,)) for each in claim.results]

    async def unprepare(self, claim: ClaimRef) -> None:
        self.has.pop(claim.uid, None)

    def device_statuses(self) -> Iterable[DeviceStatus]:
        if self.error:
            raise OSError("lost")
        return [device_status(ref, device, 4, self.condition) for ref, device in self.has.values()]


async def statuses_of(cluster: ClusterFixture, ref: ClaimRef) -> list[str]:
    return [each["conditions"][0]["status"] for each in await devices_of(cluster, ref)]


@run_by(run)
async def test_status_is_set_from_prepare_to_unprepare() -> None:
    async with node_fixture() as node:
        cluster = node.cluster
        ref = await cluster.add_claim("c", "w0")
        driver = StatusDriver()
        async with node.running(driver) as server:
            await node.prepare(ref)
            await until(lambda: server.claim_status_synced)
            assert await statuses_of(cluster, ref) == ["True"]
            driver.condition = BROKEN
            server.update_claim_status()
            await until(lambda: server.claim_status_synced)
            assert await statuses_of(cluster, ref) == ["False"]
            driver.error = True
            server.update_claim_status()  # it is logged, and the reported status stays
            await until(lambda: server.claim_status_synced)
            driver.error = False
        assert await statuses_of(cluster, ref) == ["False"], "device statuses outlive the process"
        async with node.running(driver) as server:
            driver.condition = READY
            server.update_claim_status()
            await until(lambda: server.claim_status_synced)
            assert await statuses_of(cluster, ref) == ["True"]
            await node.unprepare(ref)
            # What was just released goes even if the driver ends now.
        assert await devices_of(cluster, ref) == []


@run_by(run)
async def test_status_of_an_earlier_process_is_removed_by_unprepare() -> None:
    async with node_fixture() as node:
        cluster = node.cluster
        ref = await cluster.add_claim("c", "w0")
        async with node.running(StatusDriver()) as server:
            await node.prepare(ref)
            await until(lambda: server.claim_status_synced)
            assert await statuses_of(cluster, ref) == ["True"]
        async with node.running(StatusDriver()) as server:  # one that remembers nothing
            await node.unprepare(ref)
            await until(lambda: server.claim_status_synced)
            assert await devices_of(cluster, ref) == []


@run_by(run)
async def test_data_of_injected_devices_is_checkpointed_and_published() -> None:
    async with node_fixture() as node:
        cluster = node.cluster
        ref, silent = await cluster.add_claim("c", "w0"), await cluster.add_claim("d", "w1")
        driver = Widgets()

        def hand(claim: AllocatedClaim) -> Sequence[InjectedDevice]:
            (result,) = claim.results
            data = {"value": 3} if result.device == "w0" else None
            return [InjectedDevice(["it"], NODE, result.device, data=data)]

        driver.response = hand
        async with node.running(driver) as server:
            await node.prepare(ref, silent)
            await until(lambda: server.claim_status_synced)
            assert await values_of(cluster, ref) == {"w0": 3}
            assert await devices_of(cluster, silent) == []
        written = len(cluster.transport.writes)
        async with node.running(Widgets()) as server:
            await until(lambda: server.claim_status_synced)
            assert not [path for _, path in cluster.transport.writes[written:] if "resourceclaims" in path]
            await node.unprepare(ref, silent)
            await until(lambda: devices_of(cluster, ref), lambda found: not found)


@run_by(run)
async def test_preparing_does_not_wait_for_status_writes() -> None:
    """The API server is gone between reading the claim and writing its status."""
    async with node_fixture() as node:
        cluster = node.cluster
        ref = await cluster.add_claim("c", "w0")

        class HangingTransport(FlakyTransport):
            async def send(self, request: Any) -> Any:
                if request.method == "PATCH":
                    await asyncio.sleep(3600)
                return await super().send(request)

        cluster.client = Client(HangingTransport(cluster.transport.inner))
        async with node.running(StatusDriver()) as server:
            async with asyncio.timeout(DEADLINE):
                await node.prepare(ref)
                await until(lambda: server.status_writer.current_uid == ref.uid)
                await node.unprepare(ref)
                await node.prepare(ref)
