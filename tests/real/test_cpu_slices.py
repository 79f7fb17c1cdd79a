"""Slices published by the Go driver and by ours for the same machine: equal except for our additions.

Both run beside our node agent, which registers them and is their runtime; the machines are made of files.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.cpuset import CpuSet
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.up.local_cluster import LocalCluster
from tests.cluster.kube_apiserver import free_ports
from tests.real.kubelet import Process
from tests.real.programs import ASSETS, missing
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import until


def _cannot_run() -> str:
    if absent := missing("dracpu"):
        return absent
    if not shutil.which("unshare"):
        return "this machine has no unshare"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"no mount namespace: {tried.stderr.strip()}" if tried.returncode else ""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_cannot_run()), reason=_cannot_run())]

NODE = "node-0"
#: The paths of the Go driver are fixed: /run is another one for it.
_NAMESPACE = """
mount -t tmpfs none /run && mkdir /run/nri && ln -s "$1/cdi" /run/cdi && ln -s "$1/nri/nri.sock" /run/nri/ &&
shift && exec "$@"
"""
MACHINES = {
    "one CPU": make_machine(cores=1),
    "plain": make_machine(cores=4),
    "threads": make_machine(sockets=2, numa=2, l3=2, cores=2, threads=2),
    "threads side by side": make_machine(sockets=2, cores=4, threads=2, numbering="packed"),
    "threads switched off": make_machine(cores=4, threads=2, offline=[4, 5, 6, 7], smt=False),
    "hybrid": make_machine(cores=2, threads=2, efficient=3),
    "hybrid without threads": make_machine(cores=2, efficient=2),
    "offline": make_machine(sockets=2, cores=4, threads=2, offline=[1, 8, 9]),
    "no caches": make_machine(sockets=2, l3=0, cores=2),
    "odd core ids": make_machine(sockets=2, cores=3, threads=2, core_ids="gaps"),
    "clusters": make_machine(cores=4, clusters=2, core_ids="cluster"),
    "caches that repeat": make_machine(sockets=2, l3=2, cores=2, l3_ids="repeat"),
    "large": make_machine(sockets=2, cores=65, threads=2),
    "near devices": make_machine(sockets=2, numa=2, cores=2, threads=2, roots=2),
}
MODES: dict[str, dict[str, Any]] = {
    "individual": {"mode": DeviceMode.INDIVIDUAL},
    "numanode": {},
    "socket": {"group_by": GroupBy.SOCKET},
    "machine": {"group_by": GroupBy.MACHINE},
    "reserved": {"reserved": CpuSet([0, 2])},
    "reserved, individual": {"reserved": CpuSet([0, 2]), "mode": DeviceMode.INDIVIDUAL},
    "roots": {"pcie_roots": True},
    "roots, individual": {"pcie_roots": True, "mode": DeviceMode.INDIVIDUAL},
    "roots, machine": {"pcie_roots": True, "group_by": GroupBy.MACHINE},
}
CASES = [
    *((machine, mode) for machine in MACHINES for mode in ("individual", "numanode")),
    *((machine, mode) for machine in ("threads", "hybrid", "offline") for mode in ("socket", "machine")),
    *((machine, mode) for machine in ("threads", "plain", "hybrid") for mode in MODES if "reserved" in mode),
    *((machine, mode) for machine in ("near devices", "plain") for mode in MODES if "roots" in mode),
    ("large", "roots, individual"),
    ("large", "machine"),
]


class SliceHarness:
    """Cluster with one node on which the drivers run one after the other."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.root = cluster.node_root(NODE)

    def settings(self, **more: Any) -> CpuSettings:
        settings = CpuSettings(NODE, host_root=self.directory, kubelet_root=self.root)
        return replace(settings, cdi=self.root / "cdi", nri=self.root / "nri/nri.sock", **more)

    @asynccontextmanager
    async def go(self, settings: CpuSettings) -> AsyncIterator[Process]:
        (port,) = free_ports(1)
        command: list[object] = ["unshare", "--mount", "sh", "-c", _NAMESPACE, "sh", self.root]
        command += [
            ASSETS / "dracpu",
            f"--kubeconfig={self.cluster.kubeconfig}",
            f"--hostname-override={NODE}",
        ]
        command += [f"--kubelet-root-dir={self.root}", f"--bind-address=127.0.0.1:{port}"]
        command += [f"--cpu-device-mode={settings.mode.value}", f"--group-by={settings.group_by.value}"]
        command += [f"--expose-pcie-roots={str(settings.pcie_roots).lower()}"]
        if settings.reserved:
            command.append(f"--reserved-cpus={settings.reserved}")
        process = Process(command, self.directory / "go.log", {"HOST_ROOT": str(self.directory)})
        process.start()
        try:
            yield process
        finally:
            await asyncio.to_thread(process.stop)


@pytest.fixture(scope="module")
def harness() -> Iterator[SliceHarness]:
    with (
        tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as directory,
        LocalCluster(nodes=1, scheduler=False) as cluster,
    ):
        yield SliceHarness(cluster, Path(directory))


async def slices_of(client: Client) -> list[dict[str, Any]]:
    return [codec.decode_tree(raw) for raw in (await client.list(RESOURCE_SLICES)).items]


async def published(client: Client) -> list[dict[str, Any]]:
    """Wait for all slices of a pool and return them."""
    found = await slices_of(client)
    return found if found and len(found) == found[0]["spec"]["pool"]["resourceSliceCount"] else []


def plain(slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return specs without our additions, in the order of their first devices."""
    specs = [each["spec"] for each in slices]
    for device in (device for spec in specs for device in spec["devices"]):
        for capacity in device.get("capacity", {}).values():
            capacity.pop("requestPolicy", None)
        for form in ("nodeAllocatableResources", "nodeAllocatableResourceMappings"):
            device.pop(form, None)
    for spec in specs:
        spec["pool"].pop("generation")
    return sorted(specs, key=lambda spec: str(spec["devices"][0]["name"]))


def publish(
    harness: SliceHarness, machine: Topology, mode: str
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the slices of the Go driver, and after our driver has taken over."""
    write_sysfs(machine, harness.directory)
    settings = harness.settings(**MODES[mode])

    async def scenario() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        async with harness.cluster.connect() as client:
            for each in await slices_of(client):
                await client.delete(RESOURCE_SLICES, each["metadata"]["name"])
            async with harness.go(settings) as process:
                there = await until(lambda: published(client), context=lambda: process.text()[-3000:])
            driver = CpuDriver(client, settings)
            await driver.start()
            try:

                async def ready() -> bool:
                    return driver.ready

                await until(ready, context=lambda: str(driver.problems()))
                return there, await slices_of(client)
            finally:
                await driver.stop()

    return asyncio.run(scenario())


@pytest.mark.parametrize(("machine", "mode"), CASES, ids=lambda each: each.replace(" ", "-"))
def test_both_drivers_publish_the_same(harness: SliceHarness, machine: str, mode: str) -> None:
    there, here = publish(harness, MACHINES[machine], mode)
    # A pool is taken over as it is: it is never deleted and recreated.
    assert {each["metadata"]["name"] for each in here} == {each["metadata"]["name"] for each in there}
    assert plain(here) == plain(there)


def test_only_plimsoll_keeps_siblings_of_four_threads_adjacent(harness: SliceHarness) -> None:
    """An intended difference: see docs/compat.md."""
    there, here = publish(harness, make_machine(cores=2, threads=4), "individual")

    def cpus(slices: list[dict[str, Any]]) -> list[int]:
        devices = sorted(slices[0]["spec"]["devices"], key=lambda each: str(each["name"]))
        return [each["attributes"]["dra.cpu/cpuID"]["int"] for each in devices]

    assert cpus(here) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert cpus(there) != cpus(here)
    assert sorted(cpus(there)) == sorted(cpus(here))
