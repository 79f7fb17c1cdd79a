"""Device statuses of claims, stored by a real kube-apiserver and read with kubectl."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.client.retries import Backoff
from plimsoll.drivers.cpu.claim_status import build_device_statuses
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation, CpuAssignment
from plimsoll.drivers.plugin import ClaimRef
from plimsoll.drivers.plugin.claim_status_writer import MAX_REFUSALS, ClaimStatusWriter
from tests.cluster.kube_apiserver import TOKEN, run_apiserver
from tests.real.programs import ASSETS, minor_version, missing, skip_before
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.waiting import until

_MISSING = missing("kube-apiserver", "etcd", "kubectl")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
DRIVER, NODE = "dra.cpu", "n1"
N0, N1 = "cpudevnuma000", "cpudevnuma001"
SHARES = ("a671734a-e8e5-11e4-8fde-42010af09327", "b671734a-e8e5-11e4-8fde-42010af09327")
MACHINE = make_machine(sockets=2, cores=4)
GUIDE = Path(__file__).parents[2] / "docs" / "cpu.md"
OFF = "DRAResourceClaimDeviceStatus=false,DRADeviceBindingConditions=false"
OFF += ",DRAResourceClaimGranularStatusAuthorization=false"


async def add_claim(client: Client, name: str, *grants: CpuAssignment) -> ClaimAllocation:
    """Create a claim with the granted devices, and a device of another driver."""
    requests = [{"name": "r", "exactly": {"deviceClassName": "any"}}]
    tree = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
    made = await client.create(RESOURCE_CLAIMS, tree, "default")
    results: list[dict[str, Any]] = [
        {"request": "r", "driver": "gpu.example.com", "pool": NODE, "device": "gpu-0"}
    ]
    for grant in grants:
        result: dict[str, Any] = {"request": "r", "driver": DRIVER, "pool": NODE, "device": grant.device}
        if grant.share_id is not None:
            amount = {"dra.cpu/cpu": str(len(grant.cpus))}
            result |= {"shareID": grant.share_id, "consumedCapacity": amount}
        results.append(result)
    made["status"] = {"allocation": {"devices": {"results": results}}}
    await client.update(RESOURCE_CLAIMS, made, "default", subresource="status")
    return ClaimAllocation(ClaimRef("default", name, made["metadata"]["uid"]), grants)


def grant(device: str, cpus: str, share: str | None) -> CpuAssignment:
    return CpuAssignment("r", NODE, device, CpuSet.parse(cpus), share)


@asynccontextmanager
async def reporting(client: Client) -> AsyncIterator[ClaimStatusWriter]:
    reporter = ClaimStatusWriter(client, DRIVER, refusal_backoff=Backoff(0.01, 0.02))
    task = asyncio.create_task(reporter.run())
    try:
        yield reporter
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def device_statuses(client: Client, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    claim = await client.get(RESOURCE_CLAIMS, name, "default")
    return {
        (each["device"], each.get("shareID", "")): {key: each[key] for key in each if each[key] is not None}
        for each in claim["status"].get("devices", [])
    }


def ask_kubectl(config: ClientConfig) -> str:
    """Run the documented command."""
    (line,) = re.findall(r"(?m)^kubectl get resourceclaims .*jsonpath.*$", GUIDE.read_text())
    command = [str(ASSETS / "kubectl"), *shlex.split(line)[1:]]
    command += ["--server", config.server, "--token", TOKEN, "--insecure-skip-tls-verify=true"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def test_a_real_server_keeps_device_statuses(tmp_path: Path) -> None:
    async def scenario(config: ClientConfig) -> None:
        async with Client.connect(config) as client, reporting(client) as reporter:
            shared = await add_claim(
                client, "shared", grant(N0, "0-1", SHARES[0]), grant(N0, "2", SHARES[1]), grant(N1, "4", None)
            )
            single = await add_claim(client, "single", grant("cpudev007", "7", None))
            theirs = {"driver": "gpu.example.com", "pool": NODE, "device": "gpu-0", "data": {"serial": 9}}
            await client.patch(
                RESOURCE_CLAIMS, "shared", {"status": {"devices": [theirs]}}, "default", subresource="status"
            )
            reporter.set_statuses(build_device_statuses([shared, single], MACHINE))
            await until(lambda: reporter.synced)
            assert not reporter.problems
            found = await device_statuses(client, "shared")
            assert found.pop(("gpu-0", "")) == theirs
            assert {key: each["data"] for key, each in found.items()} == {
                (N0, SHARES[0]): {"cpuset": "0-1", "numaNodes": "0"},
                (N0, SHARES[1]): {"cpuset": "2", "numaNodes": "0"},
                (N1, ""): {"cpuset": "4", "numaNodes": "1"},
            }
            lines = await asyncio.to_thread(ask_kubectl, config)
            assert lines.splitlines() == [
                f"default/shared {NODE}/{N0}: 0-1 {NODE}/{N0}: 2 {NODE}/{N1}: 4",
                f"default/single {NODE}/cpudev007: 7",
            ]
            # A CPU goes: one condition changes, with its time; nothing else does.
            before = await client.get(RESOURCE_CLAIMS, "single", "default")
            reporter.set_statuses(build_device_statuses([shared, single], switch_off(MACHINE, CpuSet([4]))))
            await until(lambda: reporter.synced)
            reasons = {
                key: each["conditions"][0]["reason"]
                for key, each in (await device_statuses(client, "shared")).items()
                if "conditions" in each
            }
            assert reasons == {(N0, SHARES[0]): "Pinned", (N0, SHARES[1]): "Pinned", (N1, ""): "CPUsOffline"}
            assert await client.get(RESOURCE_CLAIMS, "single", "default") == before
            # Released: the statuses of others stay.
            reporter.set_statuses(build_device_statuses([single], MACHINE))
            await until(lambda: reporter.synced)
            assert await device_statuses(client, "shared") == {("gpu-0", ""): theirs}
        async with Client.connect(config) as client, reporting(client) as reporter:
            reporter.set_statuses(build_device_statuses([single], MACHINE))
            await until(lambda: reporter.synced)
            assert reporter.counters.written == 0, "another process finds all as it should be"
            # Deallocated by another client: the server removes the entries, and nothing is written again.
            tree = await client.get(RESOURCE_CLAIMS, "single", "default")
            tree["status"] = {}
            await client.update(RESOURCE_CLAIMS, tree, "default", subresource="status")
            reporter.set_statuses(build_device_statuses([single], MACHINE, pinned=False))
            await until(lambda: reporter.synced)
            reporter.set_statuses([])
            await until(lambda: reporter.synced)
            assert await device_statuses(client, "single") == {}
            assert (reporter.counters.written, reporter.problems) == (0, ())

    with run_apiserver(ASSETS, tmp_path) as config:
        asyncio.run(scenario(config))


@pytest.mark.skipif(_MISSING == "" and minor_version() > 36, reason="1.37 has no such gate")
def test_a_real_server_that_drops_device_statuses_is_detected(tmp_path: Path) -> None:
    async def scenario(config: ClientConfig) -> None:
        async with Client.connect(config) as client, reporting(client) as reporter:
            holding = await add_claim(client, "c", grant("cpudev000", "0", None))
            reporter.set_statuses(build_device_statuses([holding], MACHINE))
            await until(lambda: reporter.counters.refused == MAX_REFUSALS)
            assert reporter.synced
            assert "feature gate DRAResourceClaimDeviceStatus is off" in reporter.problems[0]

    skip_before(36, "which has the gates")
    with run_apiserver(ASSETS, tmp_path, gates=OFF) as config:
        asyncio.run(scenario(config))
