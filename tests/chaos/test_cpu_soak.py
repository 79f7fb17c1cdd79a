"""Two thousand claims on a large machine: time and memory of the driver process do not grow."""

from __future__ import annotations

import asyncio
import re
import shutil
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path
from random import Random

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.client.endpoints import NODES, RESOURCE_CLAIMS
from plimsoll.drivers.cpu.state.cdi import read_files
from plimsoll.node.claim_info import ClaimRef, DriverFault
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager
from plimsoll.up.local_cluster import LocalCluster
from tests.chaos.forked_node import ForkedCpuDriver
from tests.playbooks.cpu_driver.runtime import Runtime, RuntimeVersion
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import until

NODE = "large"
CLAIMS, CONTAINERS, HELD = 2000, 200, 40
#: How much the process may grow after the first claims, in MiB: room for the allocator, not for a leak of
#: 4 KiB for every claim.
GROWTH = 6.0


class Quick(Runtime):
    """Runtime on a machine without hotplug: every cpuset can be set."""

    def _settable(self, cpus: str) -> bool:
        return bool(cpus)


class Soak:
    """Cluster, machine and runtime, and the agent's side of the driver's sockets."""

    def __init__(self, root: Path, directory: Path, cluster: LocalCluster) -> None:
        topology = make_machine(sockets=2, numa=4, l3=2, cores=16, threads=2)
        assert len(topology.all) == 512
        write_sysfs(topology, root / "host")
        self.cdi = root / "cdi"
        self.cluster = cluster
        self.every = set(topology.all)
        self.runtime = Quick(root / "nri.sock", RuntimeVersion.NEW, lambda: self.every)
        self.plugins = PluginManager(Layout(root / "node"))
        self.driver = ForkedCpuDriver(
            directory,
            f"driver cpu --kubeconfig {cluster.kubeconfig} --hostname-override {NODE} "
            f"--bind-address 127.0.0.1:0 --kubelet-root-dir {root / 'node'} --cdi-dir {self.cdi} "
            f"--nri-socket {root / 'nri.sock'} --enforcement nri --host-root {root / 'host'}",
        )
        self.dice = Random(1)
        self.prepare: list[float] = []
        self.release: list[float] = []
        self.held: deque[tuple[ClaimRef, CpuSet]] = deque()

    def memory(self) -> float:
        """Return the private memory of the driver process in MiB."""
        status = Path(f"/proc/{self.driver.pid}/status").read_text()
        found = re.search(r"RssAnon:\s*(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def claim(self, number: int) -> ClaimRef:
        """Create a claim that is allocated on one of the eight NUMA nodes."""
        client, name = self.cluster.client, f"claim-{number}"
        request = {"name": "cpus", "exactly": {"deviceClassName": "dra.cpu"}}
        tree = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        uid = str(client.create(RESOURCE_CLAIMS, tree, "default")["metadata"]["uid"])
        result = {
            "request": "cpus",
            "driver": "dra.cpu",
            "pool": NODE,
            "device": f"cpudevnuma{number % 8:03d}",
            "shareID": uid,
            "consumedCapacity": {"dra.cpu/cpu": str(self.dice.randint(1, 8))},
        }
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        client.patch(RESOURCE_CLAIMS, name, status, "default", subresource="status")
        return ClaimRef("default", name, uid)

    async def take(self, number: int) -> None:
        ref = await asyncio.to_thread(self.claim, number)
        began = time.monotonic()
        answer = (await self.plugins.prepare("dra.cpu", [ref]))[ref.uid]
        self.prepare.append(time.monotonic() - began)
        assert not isinstance(answer, DriverFault), answer
        files, _ = read_files(self.cdi)
        cpus = files[ref.uid].cpus
        taken = CpuSet(cpu for _, others in self.held for cpu in others)
        assert cpus
        assert not cpus & taken
        self.held.append((ref, cpus))

    async def give(self) -> None:
        ref, _ = self.held.popleft()
        began = time.monotonic()
        answer = (await self.plugins.unprepare("dra.cpu", [ref]))[ref.uid]
        self.release.append(time.monotonic() - began)
        assert answer is None
        await asyncio.to_thread(self.cluster.client.delete, RESOURCE_CLAIMS, ref.name, "default")

    def misplaced(self) -> list[str]:
        shared = self.every - {cpu for _, cpus in self.held for cpu in cpus}
        return [id for id in self.runtime.boxes if self.runtime.cpus(id) != shared]

    async def settle(self) -> None:
        await until(lambda: not self.misplaced())
        assert not self.runtime.wrongs, self.runtime.wrongs[:3]

    async def run(self, claims: int) -> None:
        await self.runtime.start()
        await self.plugins.start()
        try:
            await asyncio.to_thread(self.driver.await_ready)
            for number in range(CONTAINERS):
                assert not await self.runtime.create(f"c{number}", f"pod-{number // 2}")
            first = 0.0
            for number in range(claims):
                await self.take(number)
                if len(self.held) > HELD:
                    await self.give()
                if number % 100 == 0:
                    await self.settle()
                if number == claims // 5:
                    first = self.memory()
            while self.held:
                await self.give()
            await self.settle()
            reported = await asyncio.to_thread(self.driver.describe)
            assert reported["claims"] == []
            assert reported["shared"] == "0-511"
            assert not list(self.cdi.iterdir())
            last = self.memory()
            print(  # noqa: T201
                f"\n{claims} claims, {CONTAINERS} containers: prepare {_show(self.prepare)}, "
                f"release {_show(self.release)}; memory {first:.1f} MiB, then {last:.1f} MiB"
            )
            assert last - first < GROWTH, f"{first:.1f} MiB has become {last:.1f} MiB"
        finally:
            await self.plugins.stop()
            await self.runtime.stop()


def _show(times: list[float]) -> str:
    ordered = sorted(times)
    most = ordered[len(ordered) * 99 // 100]
    return f"median {statistics.median(ordered) * 1000:.1f} ms, p99 {most * 1000:.1f} ms"


@pytest.mark.slow
def test_two_thousand_claims_on_512_cpus(tmp_path: Path) -> None:
    soak(tmp_path, CLAIMS)


def soak(directory: Path, claims: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    try:
        with LocalCluster() as cluster:
            cluster.client.create(NODES, {"metadata": {"name": NODE}})
            place = Soak(root, directory, cluster)
            place.driver.start()
            try:
                asyncio.run(place.run(claims))
            finally:
                place.driver.close()
            assert "Traceback" not in place.driver.log.read_text()
    finally:
        shutil.rmtree(root)
