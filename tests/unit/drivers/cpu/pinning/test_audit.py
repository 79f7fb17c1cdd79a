"""Audit of the CPUs that containers actually have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from plimsoll.drivers.cpu.pinning.audit import Audit, CpusetObserver, Expected, ObservedCpuset, compare
from plimsoll.drivers.cpu.pinning.counters import Counters
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.pinning.plan import DesiredCpuset, PinFaultReason
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, cpus, env, hold, machine, view
from tests.unit.drivers.cpu.pinning.runtimes import (
    OwnRuntime,
    Scripted,
    changes,
    container,
    with_own,
    with_script,
)
from tests.unit.drivers.cpu.pinning.stand_in import CPUS, V1, V2
from tests.waiting import until

A = hold("a", "0-1")


class Subject:
    """Audit subject that records repairs."""

    def __init__(self, expected: dict[str, tuple[Any, DesiredCpuset]], *, pushes: bool = True) -> None:
        self.counters = Counters()
        self.pushes = pushes
        self.desired = expected
        self.recheck_delay: list[str] = []

    def expected(self) -> Expected:
        return dict(self.desired)

    async def reassert(self, containers: Iterable[str]) -> None:
        self.recheck_delay += containers


def test_a_process_with_fewer_cpus_is_not_a_difference() -> None:
    expected = {"c": (view("c"), DesiredCpuset(cpus("0-1")))}
    assert compare(expected, {"c": ObservedCpuset(cpus("0"), is_container=False)}) == {}
    assert compare(expected, {"c": ObservedCpuset(cpus("0-1"), is_container=True)}) == {}
    for observed in (
        ObservedCpuset(cpus("0"), is_container=True),
        ObservedCpuset(cpus("0-2"), is_container=False),
        ObservedCpuset(cpus("0-2"), is_container=True),
    ):
        assert compare(expected, {"c": observed})["c"].reason is PinFaultReason.DRIFTED
    assert compare(expected, {}) == {}


def test_cpus_that_went_offline_are_not_a_difference() -> None:
    expected = {"c": (view("c"), DesiredCpuset(cpus("0-3")))}
    observed = {"c": ObservedCpuset(cpus("0-2"), is_container=True)}
    assert compare(expected, observed, online=cpus("0-2,4-7")) == {}
    assert compare(expected, observed, online=cpus("0-7"))["c"].reason is PinFaultReason.DRIFTED


def test_cgroups_of_both_versions_are_audited(tmp_path: Path) -> None:
    for files in (V1(tmp_path / "1", ("cpuset",)), V2(tmp_path / "2", ("cpuset",))):
        files.write(files.add("kubepods/poduid-c/c") / CPUS, "1-2")
        files.add("kubepods/poduid-c/other")
        found = CpusetObserver(files.mount, tmp_path / "proc", files).observe([view("c"), view("d")])
        assert {id: (str(observed.cpus), observed.is_container) for id, observed in found.items()} == {
            "c": ("1-2", True)
        }


def test_without_cgroups_processes_are_audited(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    for pid, group, allowed in (
        ("7", "0::/x/c.scope", "1-2"),
        ("8", "0::/x/reused", "0"),
        ("9", "0::/d", "?"),
    ):
        (proc / pid).mkdir(parents=True)
        (proc / pid / "cgroup").write_text(group)
        (proc / pid / "status").write_text(f"Name:\tx\nCpus_allowed_list:\t{allowed}\n")
    views = [view("c", pid=7), view("b", pid=8), view("d", pid=9), view("e", pid=10), view("f")]
    found = CpusetObserver(tmp_path, proc).observe(views)
    assert {id: str(observed.cpus) for id, observed in found.items()} == {"c": "1-2"}


async def test_differences_are_counted_and_repaired(tmp_path: Path) -> None:
    files = V1(tmp_path, ("cpuset",))
    directory = files.add("kubepods/poduid-c/c")
    subject = Subject({"c": (view("c"), DesiredCpuset(cpus("0-1")))})
    audit = Audit(subject, CpusetObserver(tmp_path, tmp_path, files), recheck_delay=0.001)
    (fault,) = await audit.check()
    assert fault.message == 'runs on CPUs "0-3" instead of "0-1": something else has set them'
    assert subject.recheck_delay == ["c"]
    assert (subject.counters.drifted, subject.counters.audits) == (1, 1)
    files.write(directory / CPUS, "0-1")
    assert await audit.check() == ()
    assert (audit.faults, audit.seen) == ({}, 1)


async def test_a_change_under_way_is_no_difference(tmp_path: Path) -> None:
    files = V1(tmp_path, ("cpuset",))
    files.add("kubepods/poduid-c/c")
    subject = Subject({"c": (view("c"), DesiredCpuset(cpus("0-1")))})
    audit = Audit(subject, CpusetObserver(tmp_path, tmp_path, files), recheck_delay=0.001)
    looks = [
        DesiredCpuset(cpus("0-1")),
        DesiredCpuset(cpus("0-1")),
        DesiredCpuset(cpus("0-1")),
        DesiredCpuset(cpus("2")),
    ]
    subject.expected = lambda: {"c": (view("c"), looks.pop(0))}  # type: ignore[method-assign]
    assert await audit.check() == ()
    assert subject.recheck_delay == []


async def test_without_runtime_updates_the_cgroup_is_written(tmp_path: Path) -> None:
    files = V1(tmp_path, ("cpuset",))
    directory = files.add("kubepods/poduid-c/c")
    subject = Subject({"c": (view("c"), DesiredCpuset(cpus("0-1")))}, pushes=False)
    await Audit(subject, CpusetObserver(tmp_path, tmp_path, files), recheck_delay=0.001).check()
    assert (directory / CPUS).read_text() == "0-1"


def test_with_nri_foreign_writes_are_repaired(tmp_path: Path) -> None:
    files = V1(tmp_path, ("cpuset",))

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(A))
        directory = files.add("kubepods/poduid-own/own")
        files.write(directory / CPUS, "0-1")
        assert await enforcer.audit.check() == ()
        files.write(directory / CPUS, "0-3")
        runtime.log.clear()
        (fault,) = await enforcer.audit.check()
        assert fault.reason is PinFaultReason.DRIFTED
        assert runtime.log == [("own", "0-1")]
        assert enforcer.faults() == (fault,)
        assert enforcer.counters.drifted == 1
        await runtime.end("own")
        assert enforcer.faults() == ()

    with_own(scenario, FakeCPUState(machine(4), A), observer=CpusetObserver(tmp_path, tmp_path, files))


def test_with_an_old_runtime_the_repair_is_sent_with_the_next_event(tmp_path: Path) -> None:
    files = V1(tmp_path, ("cpuset",))
    files.add("kubepods/poduid-own/own")

    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("own", env(A), cpus="0-1"))
        await enforcer.audit.check()
        assert changes(await script.create("s")) == {"own": "0-1"}

    with_script(scenario, FakeCPUState(machine(4), A), observer=CpusetObserver(tmp_path, tmp_path, files))


def test_audits_run_periodically(tmp_path: Path) -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await until(lambda: enforcer.counters.audits > 2)

    with_own(scenario, FakeCPUState(machine(4), A), audit=0.005, observer=CpusetObserver(tmp_path, tmp_path))
