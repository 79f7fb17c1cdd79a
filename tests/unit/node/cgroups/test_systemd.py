"""Systemd cgroup driver: slices named as the kubelet names them, their properties, and calls of systemd."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import ConfigError
from plimsoll.node.cgroup_plans import QosCgroupPlan
from plimsoll.node.cgroups import Cgroups, open_cgroups
from plimsoll.node.cgroups.drivers import SystemdDriver
from plimsoll.node.cgroups.systemd import Busctl, Property, slice_properties
from plimsoll.node.resources import LinuxResources
from tests.unit.node.cgroups.stand_in import POD, V1StandIn, V2StandIn

UID = "0c6e9b5e-6d0a-4c7e-8f51-1f6f5b7c2a10"
ESCAPED = UID.replace("-", "_")


class RecordingBus:
    """systemd that records calls and creates cgroups; `problem` is the answer of calls.

    It enables the controllers of the properties, and disables others that it knows, as systemd does.
    """

    def __init__(self, kernel: V2StandIn | None = None) -> None:
        self.kernel = kernel
        self.calls: list[tuple[str, str]] = []
        self.properties: dict[str, dict[str, Property]] = {}
        self.problem = ""

    def start_slice(self, unit: str) -> str:
        self.calls.append(("start", unit))
        if self.kernel is not None and not self.problem:
            parts = unit.removesuffix(".slice").split("-")
            names = ["-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts))]
            directory = self.kernel.mount
            for name in names:
                file = directory / "cgroup.subtree_control"
                kept = [each for each in file.read_text().split() if each != "cpuset"]
                self.kernel.put(file, " ".join(kept))
                for controller in ("cpu", "memory", "pids"):
                    assert self.kernel.write(file, f"+{controller}") == 0
                directory /= name
                self.kernel.make(directory)
        return self.problem

    def stop_unit(self, unit: str) -> str:
        self.calls.append(("stop", unit))
        return self.problem

    def set_properties(self, unit: str, properties: Mapping[str, Property]) -> str:
        self.calls.append(("set", unit))
        self.properties.setdefault(unit, {}).update(properties)
        return self.problem


@pytest.fixture
def kernel(tmp_path: Path) -> V2StandIn:
    return V2StandIn(tmp_path / "cgroup")


@pytest.fixture
def bus(kernel: V2StandIn) -> RecordingBus:
    return RecordingBus(kernel)


def opened(
    kernel: V2StandIn, bus: RecordingBus, root: str = "/my-root/kubepods", owner: str = "a-1"
) -> Cgroups:
    return open_cgroups(root, mount=kernel.mount, kernel=kernel, owner=owner, driver="systemd", bus=bus)


def test_slices_are_named_as_by_the_kubelet(kernel: V2StandIn, bus: RecordingBus) -> None:
    cgroups = opened(kernel, bus)
    assert cgroups.driver_name == "systemd"
    assert cgroups.set_up() == ()
    root = "/my_root.slice/my_root-kubepods.slice"
    places = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}
    for number, (qos, tier) in enumerate(places.items()):
        uid = f"{UID[:-1]}{number}"
        assert cgroups.make_pod(uid, qos, POD) == ()
        parent = f"{root}/my_root-kubepods-{tier}.slice" if tier else root
        prefix = f"my_root-kubepods-{tier}" if tier else "my_root-kubepods"
        assert cgroups.path(uid) == f"{parent}/{prefix}-pod{ESCAPED[:-1]}{number}.slice"
        assert (kernel.mount / cgroups.path(uid)[1:] / "cgroup.procs").is_file()
        assert ("start", cgroups.path(uid).rpartition("/")[2]) in bus.calls
    assert set(cgroups.pods()) == {f"{UID[:-1]}{number}" for number in range(3)}
    assert cgroups.lost() == ()


def test_containers_are_scopes_of_any_runtime(kernel: V2StandIn, bus: RecordingBus) -> None:
    cgroups = opened(kernel, bus)
    cgroups.set_up()
    cgroups.make_pod(UID, "Burstable", POD)
    pod = cgroups.path(UID)
    assert cgroups.path(UID, "abc") == f"{pod}/cri-containerd-abc.scope"
    for name in ("crio-abc.scope", "cri-containerd-def.scope", "other"):
        kernel.make(kernel.mount / pod[1:] / name)
    assert cgroups.containers(UID) == ("abc", "def")
    assert cgroups.path(UID, "abc") == f"{pod}/crio-abc.scope"
    kernel.write(kernel.mount / pod[1:] / "crio-abc.scope" / "cgroup.procs", "77")
    assert cgroups.pids(UID, "abc") == cgroups.pids(UID) == (77,)


def test_values_are_properties_and_exact_in_the_cgroup(kernel: V2StandIn, bus: RecordingBus) -> None:
    cgroups = opened(kernel, bus, "kubepods")
    assert cgroups.set_up(LinuxResources(memory_limit=1 << 30)) == ()
    assert bus.properties["kubepods.slice"] == {"MemoryMax": ("t", str(1 << 30))}
    cgroups.apply_tiers(QosCgroupPlan(burstable_shares=700))
    cgroups.make_pod(UID, "Burstable", POD)
    unit = f"kubepods-burstable-pod{ESCAPED}.slice"
    assert bus.properties[unit] == {
        "CPUWeight": ("t", "20"),
        "CPUQuotaPeriodUSec": ("t", "100000"),
        "CPUQuotaPerSecUSec": ("t", "500000"),
        "MemoryMax": ("t", str(64 << 20)),
    }
    directory = kernel.mount / cgroups.path(UID)[1:]
    assert [(directory / name).read_text() for name in ("cpu.weight", "cpu.max", "memory.max")] == [
        "20",
        "50000 100000",
        str(64 << 20),
    ]
    # The same values again are no call of systemd.
    before = len(bus.calls)
    cgroups.apply_tiers(QosCgroupPlan(burstable_shares=700))
    assert len(bus.calls) == before
    cgroups.apply_tiers(QosCgroupPlan(burstable_shares=800))
    assert bus.calls[before:] == [("set", "kubepods-burstable.slice")]


def test_removed_pods_are_stopped_and_others_left_alone(kernel: V2StandIn, bus: RecordingBus) -> None:
    cgroups = opened(kernel, bus, "kubepods")
    cgroups.set_up()
    cgroups.make_pod(UID, "BestEffort", POD)
    unit = cgroups.path(UID).rpartition("/")[2]
    assert cgroups.remove_pod(UID)
    assert [call for call in bus.calls if call[0] == "stop"] == [("stop", unit)]
    assert cgroups.pods() == ()
    other = opened(kernel, bus, "kubepods", owner="b")
    (fault,) = other.set_up()
    assert "belongs to a-1" in fault.error
    assert opened(kernel, bus, "kubepods").lost() == ()
    assert cgroups.tear_down()
    assert bus.calls[-1] == ("stop", "kubepods.slice")


def test_refusals_of_systemd_are_faults(kernel: V2StandIn, bus: RecordingBus) -> None:
    cgroups = opened(kernel, bus, "kubepods")
    cgroups.set_up()
    bus.problem = "systemd: StartTransientUnit: no"
    faults = cgroups.make_pod(UID, "BestEffort", POD)
    assert faults[0].error == bus.problem
    assert not cgroups.remove_pod(UID)


def test_controllers_are_enabled_by_systemd_alone(kernel: V2StandIn, bus: RecordingBus) -> None:
    cgroups = opened(kernel, bus, "kubepods")
    cgroups.set_up()
    assert cgroups.make_pod(UID, "Burstable", POD) == ()
    by_agent = {value for file, value in kernel.writes if file.endswith("subtree_control")}
    assert by_agent == {"+cpu", "+memory", "+pids", "+hugetlb"}  # the first three by the bus
    bus.kernel = None  # nothing is created: the agent waits, but not for ever
    before = kernel.waited
    faults = cgroups.make_pod(UID, "BestEffort", POD)
    assert kernel.waited - before == pytest.approx(10, abs=0.1)
    assert {fault.error for fault in faults} == {os.strerror(errno.ENOENT)}


def test_the_driver_requires_version_2(tmp_path: Path) -> None:
    v1 = V1StandIn(tmp_path / "cgroup")
    with pytest.raises(ConfigError, match="requires cgroup v2"):
        open_cgroups("r", mount=v1.mount, kernel=v1, driver="systemd")


names = st.text(st.sampled_from("abz09-."), min_size=1, max_size=8).map(lambda text: f"x{text}")


@given(st.lists(names, min_size=1, max_size=5))
def test_levels_are_found_by_their_directories(parts: list[str]) -> None:
    driver = SystemdDriver(RecordingBus())
    directories = driver.path(parts).split("/")
    assert [driver.part(name) for name in directories] == parts
    for outer, inner in pairwise(directories):
        # systemd.slice(5): the parent of a slice is its name up to the last dash.
        assert outer == f"{inner.removesuffix('.slice').rpartition('-')[0]}.slice"


@given(st.integers(1000, 10**7), st.integers(1000, 10**6))
def test_quotas_are_rounded_up_to_percents(quota: int, period: int) -> None:
    found = int(slice_properties({"cpu.max": f"{quota} {period}"})["CPUQuotaPerSecUSec"][1])
    assert found == ceil(Fraction(quota * 100, period)) * 10_000


def test_unlimited_values_are_infinity() -> None:
    files = {"cpu.max": "max 100000", "memory.max": "max", "pids.max": "max", "hugetlb.2MB.max": "0"}
    found = slice_properties(files)
    most = ("t", str(2**64 - 1))
    assert found == {
        "CPUQuotaPeriodUSec": ("t", "100000"),
        "CPUQuotaPerSecUSec": most,
        "MemoryMax": most,
        "TasksMax": most,
    }


PROGRAM = """#!/bin/sh
echo "$0 $*" >> {log}
case "$0 $*" in
*is-active*kept.slice*) exit 0;;
*is-active*) exit 3;;
*refused*|*kept*|*lost*) echo "Call failed: no" >&2; exit 1;;
esac
"""


def test_busctl_is_called_as_systemd_expects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    for name in ("busctl", "systemctl"):
        (tmp_path / name).write_text(PROGRAM.format(log=log))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    bus = Busctl()
    assert bus.set_properties("a.slice", {"CPUWeight": ("t", "20")}) == ""
    assert log.read_text().split("call ")[1].strip() == (
        "org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager "
        "SetUnitProperties sba(sv) a.slice true 1 CPUWeight t 20"
    )
    assert bus.start_slice("a.slice") == ""
    assert "StartTransientUnit ssa(sv)a(sa(sv)) a.slice replace 7 Description s" in log.read_text()
    assert bus.start_slice("refused.slice") == "systemd: StartTransientUnit: Call failed: no"
    assert bus.start_slice("kept.slice") == ""  # it runs already
    assert bus.stop_unit("a.slice") == ""
    assert bus.stop_unit("lost.slice") == ""  # it does not run any more
    assert bus.stop_unit("kept.slice") == "systemd: StopUnit: Call failed: no"
    shutil.rmtree(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "busctl cannot be run" in bus.set_properties("a.slice", {})
