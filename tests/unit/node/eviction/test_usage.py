"""Resource usage of a machine, from its /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plimsoll.node.cgroup_plans import PodPlan
from plimsoll.node.cgroups import open_cgroups
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.eviction.manager import PodStats, SignalObservation
from plimsoll.node.eviction.usage import measure_machine, measure_node, measure_pod, measure_processes
from plimsoll.node.resources import LinuxResources
from tests.unit.node.cgroups.stand_in import V1StandIn


def proc(directory: Path, files: dict[str, str]) -> Path:
    (directory / "sys" / "kernel").mkdir(parents=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory


def test_free_and_untouched_memory_is_available(tmp_path: Path) -> None:
    text = "MemTotal:  1000 kB\nMemFree:  100 kB\nInactive(file): 50 kB\nHugePages_Total: 0\n"
    files = {
        "meminfo": text,
        "loadavg": "0.1 0.2 0.3 2/345 999",
        "sys/kernel/pid_max": "4096",
        "sys/kernel/threads-max": "1000",
    }
    found = measure_machine(proc(tmp_path, files))
    assert found == {
        "memory.available": SignalObservation(150 * 1024, 1000 * 1024),
        "pid.available": SignalObservation(655, 1000),
    }


@pytest.mark.parametrize("text", ["", "MemTotal: x kB", "MemFree: 5 kB", "\0\xff"])
def test_unreadable_values_are_not_measured(tmp_path: Path, text: str) -> None:
    assert measure_machine(proc(tmp_path, {"meminfo": text, "loadavg": "1 2"})) == {}


def test_usage_of_this_machine(tmp_path: Path) -> None:
    found = measure_machine(directory=tmp_path)
    assert 0 < found["memory.available"].available <= found["memory.available"].capacity
    assert 0 < found["nodefs.available"].available <= found["nodefs.available"].capacity
    assert "nodefs.available" not in measure_machine(directory=tmp_path / "nowhere")


def test_a_pod_is_measured_by_its_cgroup(tmp_path: Path) -> None:
    kernel = V1StandIn(tmp_path / "cgroup")
    cgroups = open_cgroups("r", mount=kernel.mount, kernel=kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Guaranteed", PodPlan(cpu_shares=2))
    cgroups.make_container("u", "id-1", LinuxResources())
    kernel.put(kernel.mount / "memory/r/podu/memory.usage_in_bytes", "900")
    kernel.put(kernel.mount / "memory/r/podu/id-1/memory.usage_in_bytes", "800")
    kernel.put(kernel.mount / "pids/r/podu/pids.current", "4")
    found = measure_pod(cgroups, "u", {"c": "id-1", "gone": "id-0"})
    assert found == PodStats({"memory": 900, "pids": 4}, {"c": 800})
    assert measure_pod(cgroups, "v", {}) is None
    assert measure_pod(open_cgroups("r", want="plan"), "u", {}) is None


def test_processes_that_are_gone_count_nothing() -> None:
    found = measure_processes({"a": [os.getpid()], "b": [2**30]})
    assert found.used["pids"] == 1
    assert found.containers["a"] == found.used["memory"] > 0
    assert found.containers["b"] == 0


def test_a_measurement_includes_all_signals(tmp_path: Path) -> None:
    kernel = V1StandIn(tmp_path / "cgroup")
    cgroups = open_cgroups("r", mount=kernel.mount, kernel=kernel)
    cgroups.set_up()
    cgroups.make_pod("u", "Guaranteed", PodPlan(cpu_shares=2))
    kernel.put(kernel.mount / "memory/r/podu/memory.usage_in_bytes", "900")
    states = [
        ContainerInfo(id=name, pod="u", name=name, attempt=0, phase=phase, pid=os.getpid())
        for name, phase in (("a", ContainerPhase.RUNNING), ("b", ContainerPhase.EXITED))
    ]
    found = measure_node(cgroups, {"u": states, "v": ()}, pods_memory=1000)
    assert found.pods["u"].used["memory"] == 900
    assert "v" not in found.pods
    assert found.signals["allocatableMemory.available"] == SignalObservation(100, 1000)
    assert "memory.available" in found.signals
    # Where cgroups are a plan, processes are measured.
    found = measure_node(open_cgroups("r", want="plan"), {"u": states})
    assert set(found.pods["u"].containers) == {"a"}
    assert found.pods["u"].used["memory"] > 1 << 20
    assert "allocatableMemory.available" not in found.signals
