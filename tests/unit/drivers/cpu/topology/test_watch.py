"""Watch for topology changes."""

from __future__ import annotations

import asyncio
import itertools
import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.topology import MachineReader, Topology, TopologyWatch
from plimsoll.errors import InputError
from tests.sizes import examples
from tests.unit.drivers.cpu.machines import make_machine, switch_off, write_sysfs
from tests.waiting import DEADLINE

WHOLE = make_machine(sockets=2, cores=2, threads=2)


class Reader:
    """Topologies in turn, the last one repeated; a text is an InputError."""

    def __init__(self, *answers: Topology | str) -> None:
        self.answers = list(answers)
        self.reads = 0

    def __call__(self) -> Topology:
        self.reads += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, str):
            raise InputError(answer)
        return answer


def test_a_cpu_that_is_switched_off_and_on_again(tmp_path: Path) -> None:
    async def run() -> list[Topology]:
        write_sysfs(WHOLE, tmp_path)
        watch = TopologyWatch.of_machine(MachineReader(tmp_path), interval=0.005, known=WHOLE)
        changes = watch.changes()
        notified: list[Topology] = []
        for step in (switch_off(WHOLE, CpuSet([2])), WHOLE, switch_off(WHOLE, CpuSet([0, 5]))):
            write_sysfs(step, tmp_path)
            while not notified or notified[-1] != step:  # a read between two files may see less
                notified.append(await asyncio.wait_for(anext(changes), DEADLINE))
        await changes.aclose()  # type: ignore[attr-defined]
        return notified

    notified = asyncio.run(run())
    assert notified[-1].offline == CpuSet([0, 5])
    assert all(before != after for before, after in itertools.pairwise(notified))


def test_nothing_is_read_without_changes(tmp_path: Path) -> None:
    write_sysfs(WHOLE, tmp_path)
    machine = MachineReader(tmp_path)
    reader = Reader(WHOLE)
    watch = TopologyWatch(reader, fingerprint=machine.fingerprint, interval=1, full_interval=60, known=WHOLE)
    for _ in range(10):
        assert watch.check() is None
    settled = reader.reads
    assert settled <= 5
    for _ in range(50):
        assert watch.check() is None
    assert reader.reads == settled
    for _ in range(60):
        watch.check()
    assert reader.reads == settled + 1  # now and then it is read all the same


def test_reads_without_a_change_become_rarer_until_there_is_one() -> None:
    less = switch_off(WHOLE, CpuSet([1]))
    reader, seen = Reader(WHOLE), ["0-7"]
    watch = TopologyWatch(reader, fingerprint=lambda: seen[0], interval=1, full_interval=60, known=WHOLE)

    def find_pauses(count: int) -> list[int]:
        """Return the numbers of checks until the next reads."""
        pauses = []
        for _ in range(count):
            before, checks = reader.reads, 0
            while reader.reads == before:
                watch.check()
                checks += 1
            pauses.append(checks)
        return pauses

    assert find_pauses(11) == [1, 1, 1, 1, 60, 120, 240, 480, 960, 960, 960]
    seen[0], reader.answers = "0,2-7", [less]
    assert watch.check() == less
    assert find_pauses(5) == [1, 1, 1, 60, 120]
    reader.answers = [WHOLE]  # a change that the quick check does not see
    assert find_pauses(2) == [240, 60]
    assert watch.current == WHOLE


def test_without_a_quick_check_every_scan_reads() -> None:
    less = switch_off(WHOLE, CpuSet([1]))
    watch = TopologyWatch(Reader(WHOLE, WHOLE, WHOLE, less, less, WHOLE))
    assert [watch.check() for _ in range(4)] == [None, None, less, WHOLE]


def test_changes_are_relative_to_the_known_topology() -> None:
    less = switch_off(WHOLE, CpuSet([1]))
    assert TopologyWatch(Reader(less), known=WHOLE).check() == less
    assert TopologyWatch(Reader(less), known=less).check() is None
    watch = TopologyWatch(Reader(less))
    assert watch.check() is None
    assert watch.current == less


def test_a_change_is_reported_once_it_is_read_twice() -> None:
    half, less = switch_off(WHOLE, CpuSet([1])), switch_off(WHOLE, CpuSet([1, 3]))
    watch = TopologyWatch(Reader(half, less, less, less), known=WHOLE)
    assert watch.check() is None
    assert watch.current == WHOLE
    assert watch.check() == less


def test_unreadable_files_keep_the_known_topology(tmp_path: Path) -> None:
    write_sysfs(WHOLE, tmp_path)
    online = tmp_path / "sys/devices/system/cpu/online"
    watch = TopologyWatch.of_machine(MachineReader(tmp_path), known=WHOLE)
    for broken in ("", "nonsense", "0-99999999"):
        online.write_text(broken)
        assert watch.check() is None
        assert "online" in watch.error
        assert watch.current == WHOLE
    online.unlink()
    assert watch.check() is None
    assert "no such file" in watch.error
    online.write_text("0-7\n")
    assert watch.check() is None
    assert watch.error == ""
    online.write_text("0-6\n")
    changed = watch.check()
    assert changed is not None
    assert changed.offline == CpuSet([7])


def test_files_that_appear_late_are_noticed(tmp_path: Path) -> None:
    """The kernel reports a CPU as online before its directory is complete."""
    write_sysfs(WHOLE, tmp_path)
    late = tmp_path / "sys/devices/system/cpu/cpu7/topology/core_id"
    tree = late.read_text()
    late.unlink()
    watch = TopologyWatch.of_machine(MachineReader(tmp_path), known=switch_off(WHOLE, CpuSet([7])))
    first = watch.check()
    assert first is not None
    assert [entry.cpu for entry in first.skipped] == [7]
    late.write_text(tree)
    assert watch.check() == WHOLE


def test_another_overlay_is_noticed(tmp_path: Path) -> None:
    write_sysfs(WHOLE, tmp_path)
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("{}")
    watch = TopologyWatch.of_machine(MachineReader(tmp_path, overlay), known=WHOLE)
    for _ in range(10):
        assert watch.check() is None
    new = tmp_path / "new.yaml"
    new.write_text('/sys/devices/system/cpu/online: "0-3"\n')
    os.rename(new, overlay)
    changed = watch.check()
    assert changed is not None
    assert changed.all == CpuSet(range(4))
    overlay.write_text("[")
    assert watch.check() is None
    assert "not YAML" in watch.error
    overlay.unlink()
    assert watch.check() is None
    assert "read sysfs overlay" in watch.error
    assert watch.current == changed


def test_the_task_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    write_sysfs(WHOLE, tmp_path)

    async def follow() -> None:
        async for _ in TopologyWatch.of_machine(MachineReader(tmp_path), interval=60).changes():
            pass

    async def run() -> bool:
        task = asyncio.create_task(follow())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert asyncio.run(run())


@given(st.lists(st.integers(0, 3), max_size=30))
@settings(max_examples=examples(50), deadline=None)
def test_reported_changes_add_up(steps: list[int]) -> None:
    """For any changes between checks, the last reported state is the current one."""
    shapes = [WHOLE, *(switch_off(WHOLE, CpuSet([cpu])) for cpu in (1, 2, 3))]
    now = [WHOLE]
    watch = TopologyWatch(lambda: now[0], fingerprint=lambda: str(now[0].all), known=WHOLE)
    notified = WHOLE
    for step in steps:
        now[0] = shapes[step]
        change = watch.check()
        assert change != notified
        notified = change or notified
        assert notified == shapes[step]
