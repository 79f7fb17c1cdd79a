"""Pinning with the cpusets of this machine, if they can be used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.cgroupfs import LinuxFiles
from plimsoll.drivers.cpu.pinning.audit import CpusetObserver
from plimsoll.drivers.cpu.pinning.cgroups import CgroupEnforcer
from plimsoll.drivers.cpu.pinning.cpusets import Hierarchy, find_hierarchy
from plimsoll.drivers.cpu.pinning.plan import ContainerView, PinFaultReason
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, hold, machine, settings
from tests.unit.drivers.cpu.pinning.cgroup_harness import Pods, pod

MOUNT = Path("/sys/fs/cgroup")


def affinity(pid: int) -> CpuSet:
    return CpuSet(os.sched_getaffinity(pid))


class Tree:
    """Cgroups below a test root, each with a process."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.root = hierarchy.root / f"plimsoll-pin-{os.getpid()}"
        self.version = hierarchy.version
        self.processes: list[subprocess.Popen[bytes]] = []
        self.folders: list[Path] = []

    def make(self, directory: Path) -> None:
        for one in [*reversed(directory.parents), directory]:
            if self.root in (one, *one.parents) and not one.exists():
                one.mkdir()
                self.folders.append(one)
                if self.version == 1:
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        (one / name).write_text((one.parent / name).read_text())

    def start(self, path: str) -> int:
        directory = self.root / path
        self.make(directory)
        process = subprocess.Popen(["sleep", "60"])
        self.processes.append(process)
        (directory / "cgroup.procs").write_text(str(process.pid))
        return process.pid

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for directory in reversed(self.folders):
            with contextlib.suppress(OSError):
                directory.rmdir()


@pytest.fixture
def tree() -> Iterator[Tree]:
    if os.geteuid() != 0:
        pytest.skip("cpusets are root's")
    found = find_hierarchy(MOUNT, LinuxFiles())
    if isinstance(found, str):
        pytest.skip(found)
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one CPU")
    here = Tree(found)
    try:
        here.make(here.root)
    except OSError as error:
        pytest.skip(f"cpusets cannot be used: {error}")
    try:
        yield here
    finally:
        here.end()


def test_processes_are_pinned_and_released(tree: Tree, tmp_path: Path) -> None:
    count = max(os.sched_getaffinity(0)) + 1
    topology = machine(count)
    own = hold("a", "0")
    state = FakeCPUState(topology)
    try:
        exclusive = tree.start("poduid-p/p-app")
        shared = tree.start("poduid-q/cri-containerd-q-app.scope")
    except OSError as error:
        pytest.skip(f"cpusets cannot be used: {error}")
    pods = Pods(pod("p", {"app": ["c"]}, claims={"c": "name-a"}), pod("q", {"app": []}))

    async def scenario() -> None:
        enforcer = CgroupEnforcer(state, lambda: state.topology, settings(tmp_path), pods, MOUNT)
        assert await enforcer.apply() == ()
        assert affinity(shared) == affinity(exclusive) == topology.all
        state.hold(own)
        assert await enforcer.apply() == ()
        assert affinity(exclusive) == CpuSet([0])
        assert affinity(shared) == topology.all - CpuSet([0])
        # Another process widens it; that is detected and corrected.
        (tree.root / "poduid-q/cri-containerd-q-app.scope/cpuset.cpus").write_text(str(topology.all))
        assert [fault.reason for fault in await enforcer.apply()] == [PinFaultReason.DRIFTED]
        assert affinity(shared) == topology.all - CpuSet([0])
        observer = CpusetObserver(MOUNT, Path("/proc")).observe(enforcer.containers())
        assert {id: str(observed.cpus) for id, observed in observer.items()} == {
            "p-app": "0",
            "q-app": str(topology.all - CpuSet([0])),
        }
        by_process = CpusetObserver(tmp_path, Path("/proc")).observe(
            [ContainerView("q-app", "uid-q", pid=shared), ContainerView("other", "uid-q", pid=shared)]
        )
        assert {id: observed.cpus for id, observed in by_process.items()} == {"q-app": affinity(shared)}
        state.release("a")
        assert await enforcer.apply() == ()
        assert affinity(shared) == topology.all
        await enforcer.stop()

    asyncio.run(scenario())
