"""Source of the machine description."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.errors import ConfigError
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.machine.machine import Reservations
from plimsoll.node.process.machines import MachineSource
from plimsoll.node.process.settings import NodeSettings


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("capacity: {cpu: 4, memory: 8Gi}")
    source = MachineSource(NodeSettings(name="n", machine_file=path, max_pods=7))
    first = source.read()
    assert (str(first.capacity["cpu"]), str(first.capacity["pods"])) == ("4", "7")
    assert source.read() == first
    fresh = tmp_path / "fresh"
    fresh.write_text("capacity: {cpu: 6, memory: 8Gi}")
    fresh.rename(path)
    assert str(source.read().capacity["cpu"]) == "6"
    path.write_text("nonsense")
    with pytest.raises(ConfigError, match=r"m\.yaml"):
        source.read()
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        source.read()


def test_a_fixed_machine_does_not_change() -> None:
    machine = parse_machine({"capacity": {"cpu": 4, "memory": "8Gi"}})
    source = MachineSource(NodeSettings(name="n", machine=machine))
    assert source.read() == machine
    assert not source.can_change
    assert MachineSource(NodeSettings(name="n")).can_change


def test_a_balloon_does_not_change_this_machine(tmp_path: Path) -> None:
    def write(total: int, node: int) -> None:
        for path, text in (
            ("proc/meminfo", f"MemTotal: {total} kB\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/devices/system/node/node0/meminfo", f"Node 0 MemTotal: {node} kB\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
        ):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)

    write(24_682_416, 20_537_924)
    source = MachineSource(NodeSettings(name="n", root=tmp_path), tmp_path)
    first = source.read()
    for total, node in ((24_682_416, 20_540_000), (24_700_000, 20_500_000), (24_682_416, 20_537_000)):
        write(total, node)
        assert source.read() == first
    write(16_000_000, 16_000_000)
    assert source.read().memory == 16_000_000 * 1024


def test_this_machine_and_its_disk(tmp_path: Path) -> None:
    machine = MachineSource(NodeSettings(name="n", root=tmp_path / "not" / "there")).read()
    assert machine.capacity["ephemeral-storage"].sign() > 0


def test_reserved_cpus_must_exist() -> None:
    machine = parse_machine({"capacity": {"cpu": 4, "memory": "8Gi"}})
    settings = NodeSettings(name="n", machine=machine, reservations=Reservations(cpus=(9,)))
    with pytest.raises(ConfigError, match="reservedCPUs: cpu 9 does not exist"):
        MachineSource(settings).read()
