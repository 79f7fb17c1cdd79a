"""Open problems of the Go driver that device statuses of claims solve, in a full cluster."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.drivers.cpu import driver as driver_module
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.errors import ApiError
from tests.unit.drivers.cpu.driver_harness import (
    MACHINE,
    DriverHarness,
    pod,
    running_cluster,
    template,
)
from tests.unit.drivers.cpu.machines import switch_off, write_sysfs
from tests.waiting import until


@pytest.fixture
def harness() -> Iterator[DriverHarness]:
    with running_cluster(template("two", "2"), template("most", "4")) as harness:
        yield harness


def seen(harness: DriverHarness) -> dict[str, dict[str, Any]]:
    """Return the device of each claim as a control plane sees it, by pod."""
    found = {}
    for claim in harness.cluster.client.list(RESOURCE_CLAIMS):
        status = claim.get("status", {})
        for user in status.get("reservedFor", [{"name": claim["metadata"]["name"]}]):
            for device in status.get("devices", []):
                assert user["name"] not in found
                (condition,) = device["conditions"]
                (result,) = status["allocation"]["devices"]["results"]
                for key in ("driver", "pool", "device", "shareID"):
                    assert device[key] == result[key]
                found[user["name"]] = {
                    **device["data"],
                    condition["type"]: (condition["status"], condition["reason"]),
                }
    return found


def pinned(cpus: CpuSet) -> dict[str, Any]:
    nodes = ",".join(map(str, MACHINE.numa_of(cpus)))
    return {"cpuset": str(cpus), "numaNodes": nodes, "Ready": ("True", "Pinned")}


async def test_issues_285_and_286_control_planes_see_the_cpus(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("a", "two"), pod("b", "most"))
        await until(lambda: len(seen(harness)) == 2)
        running = {name.partition("/")[0]: CpuSet.parse(cpus) for name, cpus in harness.cpus().items()}
        assert seen(harness) == {name: pinned(cpus) for name, cpus in running.items()}
        await until(lambda: driver.plugin_server.claim_status_synced)
    before = harness.cluster.client.list(RESOURCE_CLAIMS)
    async with harness.driver() as driver:
        await until(lambda: driver.plugin_server.claim_status_synced)
        assert harness.cluster.client.list(RESOURCE_CLAIMS) == before, "nothing is written twice"
        await harness.end("a")
        await until(lambda: set(seen(harness)) == {"b"})
        assert not driver.plugin_server.claim_status_errors


async def test_a_claim_that_outlives_its_pod_reports_nothing_more(harness: DriverHarness) -> None:
    claim = template("mine", "2").replace("ResourceClaimTemplate", "ResourceClaim")
    claim = claim.replace("      spec:\n        devices", "      devices").replace("  requests", "requests")
    user = pod("user", "two")
    user["spec"]["resourceClaims"] = [{"name": "cpus", "resourceClaimName": "mine"}]
    harness.cluster.apply(claim)
    async with harness.driver():
        for _ in range(2):
            await harness.run(user)
            await until(lambda: "user" in seen(harness))
            await harness.end("user")
            await until(lambda: not seen(harness))


async def test_the_status_follows_cpus_that_go_offline_and_come_back(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("a", "two"))
        (allocation,) = driver.state.allocations.values()
        await until(lambda: seen(harness) == {"a": pinned(allocation.assigned)})
        gone = CpuSet([min(allocation.assigned)])
        write_sysfs(switch_off(MACHINE, gone), harness.sysfs)
        offline_allocated = {
            **pinned(allocation.assigned),
            "offline": str(gone),
            "Ready": ("False", "CPUsOffline"),
        }
        await until(lambda: seen(harness) == {"a": offline_allocated})
        write_sysfs(MACHINE, harness.sysfs)
        await until(lambda: seen(harness) == {"a": pinned(allocation.assigned)})


async def test_disputed_claims_are_not_ready(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("a", "two"))
        (allocation,) = driver.state.allocations.values()
        await until(lambda: seen(harness) == {"a": pinned(allocation.assigned)})
        # Another process writes other CPUs into its file; the next comparison of files finds it.
        uid = allocation.ref.uid
        file = harness.settings.cdi / f"dra.k8s.io-cpu_claim-{uid}.json"
        tree = json.loads(file.read_text())
        tree["devices"][0]["containerEdits"]["env"] = [f"DRA_CPUSET_{uid}=7"]
        file.write_text(json.dumps(tree))
        await asyncio.to_thread(driver.state.reconcile_files)
        disputed = {**pinned(allocation.assigned), "Ready": ("False", "Disputed")}
        await until(lambda: seen(harness) == {"a": disputed})
    async with harness.driver() as driver:
        await until(lambda: driver.plugin_server.claim_status_synced)
        assert seen(harness) == {"a": disputed}
        await harness.end("a")
        await until(lambda: not seen(harness))


async def test_a_runtime_that_stays_away_is_reported(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "plimsoll")
    monkeypatch.setattr(driver_module, "UNLINKED_SECONDS", 0.2)

    async def ready() -> object:
        return (await asyncio.to_thread(seen, harness)).get("a", {}).get("Ready")

    async with harness.driver():
        await harness.run(pod("a", "two"))
        await until(ready, lambda shown: shown == ("True", "Pinned"))
        await asyncio.to_thread(harness.cluster.stop_node, "node-0")
        await until(ready, lambda shown: shown == ("False", "NotPinned"))
        await asyncio.to_thread(harness.cluster.start_node, "node-0")
        await until(ready, lambda shown: shown == ("True", "Pinned"))


async def test_a_status_that_another_change_wrote_while_the_runtime_was_away(
    harness: DriverHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "UNLINKED_SECONDS", 0.2)
    monkeypatch.setattr(driver_module, "sleep_to_tick", lambda seconds: asyncio.sleep(1000))
    async with harness.driver() as driver:

        async def ready() -> object:
            driver.plugin_server.update_claim_status()
            return (await asyncio.to_thread(seen, harness)).get("a", {}).get("Ready")

        await harness.run(pod("a", "two"))
        await until(ready, lambda shown: shown == ("True", "Pinned"))
        await asyncio.to_thread(harness.cluster.stop_node, "node-0")
        await until(ready, lambda shown: shown == ("False", "NotPinned"))
        await asyncio.to_thread(harness.cluster.start_node, "node-0")
        await until(lambda: seen(harness)["a"]["Ready"] == ("True", "Pinned"))


async def test_nothing_is_reported_if_that_is_set(harness: DriverHarness) -> None:
    async with harness.driver(replace(harness.settings, report_cpus=False)) as driver:
        await harness.run(pod("a", "two"))
        await until(lambda: driver.plugin_server.claim_status_synced)
        assert driver.device_statuses() is None
        await harness.end("a")
        assert driver.plugin_server.metrics.claim_status.written == 0


async def test_without_the_right_pods_run_and_it_is_found(harness: DriverHarness) -> None:
    async with harness.cluster.connect() as client:

        async def refuse(*args: Any, **more: Any) -> Any:
            raise ApiError(403, "Forbidden", 'claims "x" is forbidden: no right to patch')

        client.patch = refuse  # type: ignore[method-assign]
        driver = CpuDriver(client, harness.settings)
        await driver.start()
        try:
            await harness.run(pod("a", "two"))
            await until(lambda: bool(driver.plugin_server.claim_status_errors))
            (finding,) = [each for each in driver.findings if "no right to patch" in each.what]
            assert "reportCPUs: false" in finding.fix
            assert driver.ready, "it does all its work"
            assert not seen(harness)
        finally:
            await driver.stop()
