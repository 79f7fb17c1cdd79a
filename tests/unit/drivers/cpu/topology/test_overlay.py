"""Topology overlays: files that replace sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.topology import CoreKind, SkippedCpu, read_overlay, read_topology
from plimsoll.drivers.cpu.topology.overlay import SysFiles, check_overlay
from plimsoll.errors import InputError
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs

CPUS = "/sys/devices/system/cpu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_sysfs(make_machine(cores=4), tmp_path / "host")


def test_files_replace_those_of_the_machine(root: Path) -> None:
    topology = read_topology(
        root,
        {
            f"{CPUS}/online": "0-2\n",
            f"{CPUS}/cpu1/topology/physical_package_id": "1\n",
            "/sys/devices/cpu_atom/cpus": "2",
        },
    )
    assert topology.all == CpuSet([0, 1, 2])
    assert topology.offline == CpuSet([3])
    assert [cpu.socket for cpu in topology.cpus] == [0, 1, 0]
    assert [cpu.kind for cpu in topology.cpus] == [
        CoreKind.PERFORMANCE,
        CoreKind.PERFORMANCE,
        CoreKind.EFFICIENT,
    ]


def test_an_overlay_can_make_a_full_cpu(root: Path) -> None:
    overlay = {
        f"{CPUS}/online": "0,9",
        f"{CPUS}/cpu9/topology/physical_package_id": "3",
        f"{CPUS}/cpu9/topology/core_id": "5",
        f"{CPUS}/cpu9/node7/cpulist": "9",
        f"{CPUS}/cpu9/cache/index3/level": "3",
        f"{CPUS}/cpu9/cache/index3/shared_cpu_list": "9",
    }
    cpu = read_topology(root, overlay).by_id[9]
    assert (cpu.socket, cpu.core, cpu.core_id, cpu.numa, cpu.l3) == (3, 9, 5, 7, 9)


def test_a_machine_may_be_all_overlay(tmp_path: Path) -> None:
    overlay = {
        f"{CPUS}/online": "0",
        f"{CPUS}/cpu0/topology/physical_package_id": "0",
        f"{CPUS}/cpu0/topology/core_id": "0",
        f"{CPUS}/cpu0/node0": "",
    }
    assert read_topology(tmp_path, overlay).all == CpuSet([0])


def test_a_node_of_the_overlay_replaces_that_of_the_machine(root: Path) -> None:
    topology = read_topology(root, {f"{CPUS}/cpu2/node5": ""})
    assert [cpu.numa for cpu in topology.cpus] == [0, 0, 5, 0]


def test_lists_of_the_machine_do_not_overrule_ids_of_the_overlay(root: Path) -> None:
    """An overlay that puts CPU 1 into core 0 wins over the machine's sibling lists."""
    ids = {f"{CPUS}/cpu1/topology/core_id": "0", f"{CPUS}/cpu0/topology/core_id": "0"}
    assert read_topology(root, ids).cores[0] == CpuSet([0, 1])
    lists = {f"{CPUS}/cpu{cpu}/topology/core_cpus_list": str(cpu) for cpu in (0, 1)}
    assert read_topology(root, ids | lists).cores[0] == CpuSet([0])


def test_caches_of_the_overlay_are_trusted_too(tmp_path: Path) -> None:
    write_sysfs(make_machine(l3=4, cores=1), tmp_path)
    ids = {f"{CPUS}/cpu{cpu}/cache/index3/id": str(cpu // 2) for cpu in range(4)}
    assert {l3: str(cpus) for l3, cpus in read_topology(tmp_path, ids).l3.items()} == {0: "0-1", 1: "2-3"}


def test_null_hides_a_file_or_a_directory(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text(
        f"{CPUS}/cpu0/cache: null\n"
        f"{CPUS}/cpu1/topology: null\n"
        f"{CPUS}/cpu2/topology: null\n"
        f'{CPUS}/cpu2/topology/physical_package_id: "4"\n'
        f'{CPUS}/cpu2/topology/core_id: "2"\n'
        f"{CPUS}/cpu3/topology/core_id: ~\n"
    )
    topology = read_topology(root, read_overlay(file))
    assert [(cpu.id, cpu.socket, cpu.l3) for cpu in topology.cpus] == [(0, 0, -1), (2, 4, 0)]
    assert [entry.cpu for entry in topology.skipped] == [1, 3]
    assert topology.skipped[1] == SkippedCpu(
        3,
        "could not read core_id for cpu 3 from sysfs: open devices/system/cpu/cpu3/topology/core_id: "
        "no such file or directory",
    )


def test_hidden_nodes_leave_one_node(root: Path) -> None:
    hidden: dict[str, str | None] = {f"{CPUS}/cpu{cpu}/node0": None for cpu in range(4)}
    hidden["/sys/devices/system/node"] = None
    topology = read_topology(root, hidden)
    assert topology.numa == {0: CpuSet([0, 1, 2, 3])}
    assert topology.remarks == ("no CPU has a NUMA node: assuming node 0",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/sys/a: 1", 'create sysfs overlay: parse sysfs overlay: value for "/sys/a" must be a string'),
        ("/sys/a: [x]", 'create sysfs overlay: parse sysfs overlay: value for "/sys/a" must be a string'),
        ("/sys/a: on", 'create sysfs overlay: parse sysfs overlay: value for "/sys/a" must be a string'),
        ("/proc/a: x", 'create sysfs overlay: sysfs overlay path "/proc/a" must be beneath /sys'),
        ("/sys: x", 'create sysfs overlay: sysfs overlay path "/sys" must be beneath /sys'),
        ("7: x", 'create sysfs overlay: sysfs overlay path "7" must be beneath /sys'),
        ("/sys/a/../b: x", 'create sysfs overlay: sysfs overlay path "/sys/a/../b" is not clean'),
        ("/sys/a/: x", 'create sysfs overlay: sysfs overlay path "/sys/a/" is not clean'),
        (
            "/sys/a: x\n/sys/a/b: z",
            'create sysfs overlay: sysfs overlay path "/sys/a" is both a file and a directory',
        ),
        (
            f"{CPUS}/cpu0/node0: x\n{CPUS}/cpu0/node1: x",
            "create sysfs overlay: sysfs overlay defines multiple NUMA nodes beneath "
            f"{CPUS}/cpu0: node0 and node1",
        ),
        ("- a", "create sysfs overlay: parse sysfs overlay: it must be a map of absolute sysfs paths"),
        ("/sys/a: x\n---\n/sys/b: y", "create sysfs overlay: parse sysfs overlay: it must be one document"),
        ("/sys/a: x\n/sys/a: y", "create sysfs overlay: parse sysfs overlay: line 2: "),
        ("{", "create sysfs overlay: parse sysfs overlay: "),
    ],
)
def test_invalid_overlays_are_refused(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        read_overlay(file)
    assert str(refused.value).startswith(f"{file}: {expected}")


def test_no_file_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^read sysfs overlay: open .*/none: no such file or directory$"):
        read_overlay(tmp_path / "none")
    (tmp_path / "empty").write_text("# nothing\n")
    assert read_overlay(tmp_path / "empty") == {}


def test_names_and_files(root: Path) -> None:
    files = SysFiles(root, {"/sys/devices/new/file": "x", f"{CPUS}/cpu3": None})
    assert files.names("devices/new") == ["file"]
    assert "new" in files.names("devices")
    assert "cpu3" not in files.names("devices/system/cpu")
    with pytest.raises(IsADirectoryError):
        files.read("devices/new")
    with pytest.raises(FileNotFoundError):
        files.read("devices/system/cpu/cpu3/topology/core_id")
    with pytest.raises(FileNotFoundError):
        files.names("devices/system/cpu/cpu3/topology")


PATHS = st.text("/sysacpu0.node1\0\n", max_size=24) | st.just(f"{CPUS}/online")


@given(st.dictionaries(PATHS, st.none() | st.text()))
def test_any_overlay_is_used_or_refused(overlay: dict[str, str | None]) -> None:
    try:
        check_overlay(overlay)
    except InputError:
        with pytest.raises(InputError):
            read_topology(Path("/nonexistent"), overlay)
        return
    with pytest.raises(InputError, match="online"):
        read_topology(Path("/nonexistent"), overlay)
