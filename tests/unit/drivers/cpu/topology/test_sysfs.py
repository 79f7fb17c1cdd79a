"""Topologies read from fake sysfs directories, and from this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.topology import CoreKind, SkippedCpu, Topology, read_topology
from plimsoll.drivers.cpu.topology.sysfs import parse_list, parse_number
from plimsoll.errors import InputError
from tests.sizes import examples
from tests.unit.drivers.cpu.machines import machines, make_machine, write_sysfs

CPUS = "sys/devices/system/cpu"


@given(machines())
@settings(max_examples=examples(20), deadline=None)
def test_a_written_topology_is_read_back(topology: Topology) -> None:
    with tempfile.TemporaryDirectory(prefix="p-") as directory:
        write_sysfs(topology, Path(directory))
        assert read_topology(Path(directory), pcie=True) == topology


@pytest.mark.parametrize(
    "topology",
    [
        make_machine(sockets=2, numa=2, l3=2, cores=4, threads=2, roots=1),
        make_machine(sockets=2, cores=4, threads=2, core_ids="repeat"),
        make_machine(sockets=2, cores=6, threads=4, numbering="packed"),
        make_machine(cores=4, threads=8, numbering="packed", core_ids="gaps"),
        make_machine(cores=6, threads=2, efficient=8),
        make_machine(sockets=2, numa=2, cores=4, threads=2, dies=True, core_ids="die"),
        make_machine(cores=8, clusters=4, core_ids="cluster", l3=0),
        make_machine(sockets=2, cores=4, threads=2, offline=[1, 2, 5, 11]),
        make_machine(sockets=2, l3=4, cores=2, threads=2, l3_ids="repeat"),
        make_machine(sockets=1, l3=2, cores=4, offline=[0, 4, 5, 6, 7]),
        make_machine(cores=1),
        make_machine(sockets=4, numa=2, l3=1, cores=9, threads=2),
    ],
    ids=lambda topology: f"{len(topology.cpus)} CPUs",
)
def test_machines(topology: Topology, tmp_path: Path) -> None:
    write_sysfs(topology, tmp_path)
    assert read_topology(tmp_path, pcie=True) == topology


@pytest.mark.parametrize("siblings", ["", "core_cpus_list", "thread_siblings_list"])
@pytest.mark.parametrize("nodes", ["both", "entries", "lists"])
def test_older_and_newer_kernels(siblings: str, nodes: str, tmp_path: Path) -> None:
    topology = make_machine(sockets=2, numa=2, cores=2, threads=2, offline=[3])
    write_sysfs(topology, tmp_path, siblings=siblings, nodes=nodes)
    assert read_topology(tmp_path) == topology


def test_caches_without_ids_are_named_after_their_lowest_cpu(tmp_path: Path) -> None:
    topology = make_machine(numa=2, l3=2, cores=3, l3_ids="lowest", offline=[0, 7])
    write_sysfs(topology, tmp_path, l3_ids=False)
    assert read_topology(tmp_path) == topology
    assert sorted(topology.l3) == [1, 3, 6, 9]


def test_this_machine() -> None:
    if not Path("/sys/devices/system/cpu/online").exists():
        pytest.skip("no sysfs here")
    topology = read_topology(pcie=True)
    assert len(topology.all) + len(topology.skipped) == os.sysconf("SC_NPROCESSORS_ONLN")
    assert CpuSet(os.sched_getaffinity(0)) <= topology.all
    for cores in topology.cores.values():
        assert min(cores) in topology.cores


def test_pcie_roots_are_read_on_request(tmp_path: Path) -> None:
    topology = make_machine(numa=2, cores=2, roots=2)
    write_sysfs(topology, tmp_path)
    assert [cpu.pcie_roots for cpu in read_topology(tmp_path).cpus] == [()] * 4
    assert read_topology(tmp_path, pcie=True).cpus[3].pcie_roots == ("pci0000:10", "pci0000:11")


def test_pcie_roots_without_cpus_are_left_out(tmp_path: Path) -> None:
    topology = make_machine(numa=2, cores=2, roots=1)
    write_sysfs(topology, tmp_path)
    devices = tmp_path / "sys/devices"
    (devices / "pci0000:00/pci_bus/0000:00/cpulistaffinity").write_text("0-x\n")
    (devices / "pci0000:55").mkdir()
    (devices / "pci0000:5G").mkdir()
    read = read_topology(tmp_path, pcie=True)
    assert [cpu.pcie_roots for cpu in read.cpus] == [(), (), ("pci0000:10",), ("pci0000:10",)]
    assert len(read.remarks) == 2
    assert 'parsing "0-x": invalid syntax: PCIe root pci0000:00 is omitted' in read.remarks[0]
    assert "no such file or directory: PCIe root pci0000:55 is omitted" in read.remarks[1]


def test_low_power_cores_are_efficient(tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=2, threads=2, efficient=4), tmp_path)
    low = tmp_path / "sys/devices/cpu_lowpower"
    low.mkdir()
    (low / "cpus").write_text("1\n")
    kinds = {cpu.id: cpu.kind for cpu in read_topology(tmp_path).cpus}
    assert [cpu for cpu, kind in kinds.items() if kind is CoreKind.EFFICIENT] == [1, 2, 3, 4, 5]
    assert kinds[0] is CoreKind.PERFORMANCE


def test_a_hybrid_machine_whose_efficient_cores_are_off_is_still_hybrid(tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=2), tmp_path)
    atom = tmp_path / "sys/devices/cpu_atom"
    atom.mkdir()
    (atom / "cpus").write_text("\n")
    assert {cpu.kind for cpu in read_topology(tmp_path).cpus} == {CoreKind.PERFORMANCE}


def test_a_malformed_list_of_efficient_cores_is_reported(tmp_path: Path) -> None:
    topology = make_machine(cores=2, efficient=2)
    write_sysfs(topology, tmp_path)
    (tmp_path / "sys/devices/cpu_atom/cpus").write_text("2-?\n")
    read = read_topology(tmp_path)
    assert {cpu.kind for cpu in read.cpus} == {CoreKind.STANDARD}
    assert "kinds of cores are unknown" in read.remarks[0]
    assert read.all == topology.all


@pytest.mark.parametrize(
    ("control", "smt"),
    [
        ("on", True),
        ("ON", True),
        ("off", False),
        ("forceoff", False),
        ("notsupported", False),
        ("notimplemented", True),  # arm64: it cannot be switched
        ("4", True),  # POWER: the number of threads
        ("perhaps", True),
        (None, True),
    ],
)
def test_smt_is_read_from_the_kernel_or_counted(control: str | None, smt: bool, tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=2, threads=2), tmp_path)
    file = tmp_path / CPUS / "smt/control"
    file.unlink() if control is None else file.write_text(control + "\n")
    assert read_topology(tmp_path).smt is smt


def test_smt_is_off_without_sibling_threads(tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=2, threads=2, offline=[2, 3]), tmp_path)
    shutil.rmtree(tmp_path / CPUS / "smt")
    assert not read_topology(tmp_path).smt


@pytest.mark.parametrize(
    ("file", "contents", "why"),
    [
        (
            "topology/physical_package_id",
            None,
            "could not read socket_id for cpu 1 from sysfs: open "
            "devices/system/cpu/cpu1/topology/physical_package_id: no such file or directory",
        ),
        (
            "topology/physical_package_id",
            "zero\n",
            'could not parse socket_id "zero\\n" for cpu 1: parsing "zero": invalid syntax',
        ),
        (
            "topology/core_id",
            None,
            "could not read core_id for cpu 1 from sysfs: open "
            "devices/system/cpu/cpu1/topology/core_id: no such file or directory",
        ),
        ("topology/core_id", "", 'could not parse core_id "" for cpu 1: parsing "": invalid syntax'),
        (
            "topology/core_id",
            "99999999999",
            'could not parse core_id "99999999999" for cpu 1: parsing "99999999999": value out of range',
        ),
        (
            "topology/core_id",
            "-1",
            "incomplete topology information for CPU 1 (socket: 0, core: -1, NUMA node: 0)",
        ),
        (
            "topology/physical_package_id",
            "-7",
            "incomplete topology information for CPU 1 (socket: -1, core: 1, NUMA node: 0)",
        ),
    ],
)
def test_cpus_without_topology_are_skipped(file: str, contents: str | None, why: str, tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=4), tmp_path)
    path = tmp_path / CPUS / "cpu1" / file
    path.unlink() if contents is None else path.write_text(contents)
    read = read_topology(tmp_path)
    assert read.skipped == (SkippedCpu(1, why),)
    assert read.all == CpuSet([0, 2, 3])
    assert not read.offline


def test_a_cpu_without_a_node_is_skipped_where_others_have_one(tmp_path: Path) -> None:
    topology = make_machine(numa=2, cores=2)
    write_sysfs(topology, tmp_path)
    (tmp_path / CPUS / "cpu1/node0").unlink()
    assert read_topology(tmp_path) == topology  # the list of the node still names it
    (tmp_path / "sys/devices/system/node/node0/cpulist").write_text("0\n")
    assert read_topology(tmp_path).skipped == (SkippedCpu(1, "could not determine NUMA node for CPU 1"),)
    shutil.rmtree(tmp_path / "sys/devices/system/node")
    assert read_topology(tmp_path).skipped == (SkippedCpu(1, "could not determine NUMA node for CPU 1"),)


def test_the_numa_node_that_lists_a_cpu_wins(tmp_path: Path) -> None:
    write_sysfs(make_machine(numa=2, cores=2), tmp_path)
    (tmp_path / CPUS / "cpu3/node0").mkdir()
    assert read_topology(tmp_path).by_id[3].numa == 1


def test_missing_topology_has_the_simplest_defaults(tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=3), tmp_path, nodes="none", siblings="")
    for cpu in range(3):
        for name in ("physical_package_id", "core_id"):
            (tmp_path / CPUS / f"cpu{cpu}/topology" / name).write_text("-1\n")
    read = read_topology(tmp_path)
    assert [(cpu.socket, cpu.numa, cpu.core, cpu.core_id) for cpu in read.cpus] == [
        (0, 0, 0, 0),
        (0, 0, 1, 1),
        (0, 0, 2, 2),
    ]
    assert len(read.remarks) == 3
    assert not read.skipped


def test_malformed_cache_files_do_not_lose_cpus(tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=6), tmp_path)
    cpus = tmp_path / CPUS
    shutil.rmtree(cpus / "cpu0/cache")
    (cpus / "cpu1/cache/index3/level").unlink()
    (cpus / "cpu2/cache/index3/id").write_text("none\n")
    (cpus / "cpu2/cache/index3/shared_cpu_list").write_text("none\n")
    (cpus / "cpu3/cache/index3/shared_cpu_list").unlink()
    (cpus / "cpu4/cache/index3/id").write_text("99999999999999999999\n")
    (cpus / "cpu4/cache/index3/shared_cpu_list").write_text("\n")
    read = read_topology(tmp_path)
    assert [cpu.l3_id for cpu in read.cpus] == [-1, -1, -1, 0, 4, 0]
    assert not read.skipped


def test_huge_cache_ids_are_renumbered(tmp_path: Path) -> None:
    write_sysfs(make_machine(l3=2, cores=2), tmp_path)
    for cpu in (2, 3):
        (tmp_path / CPUS / f"cpu{cpu}/cache/index3/id").write_text(f"{1 << 40}\n")
    read = read_topology(tmp_path)
    assert [cpu.l3_id for cpu in read.cpus] == [0, 0, 1 << 40, 1 << 40]
    assert [cpu.l3 for cpu in read.cpus] == [0, 0, 65538, 65538]


def test_offline_cpus_are_present_cpus(tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=4, offline=[1]), tmp_path)
    (tmp_path / CPUS / "possible").write_text("0-239\n")
    assert read_topology(tmp_path).offline == CpuSet([1])
    (tmp_path / CPUS / "present").unlink()
    assert read_topology(tmp_path).offline == CpuSet([1, *range(4, 240)])
    (tmp_path / CPUS / "possible").write_text("many\n")
    assert not read_topology(tmp_path).offline


@pytest.mark.parametrize(
    ("online", "expected"),
    [
        (None, "could not get online CPUs: open {}: no such file or directory"),
        ("all of them\n", 'could not get online CPUs: {}: parsing "all of them": invalid syntax'),
        ("3-1\n", 'could not get online CPUs: {}: invalid range "3-1" (3 > 1)'),
        ("0-4000000000\n", 'could not get online CPUs: {}: parsing "0-4000000000": invalid syntax'),
        ("0-99999\n", 'could not get online CPUs: {}: parsing "0-99999": value out of range'),
        ("\n", "{}: none of 0 online CPUs can be used: the list is empty"),
        ("7\n", "{}: none of 1 online CPUs can be used: could not read socket_id for cpu 7 from sysfs"),
    ],
)
def test_a_machine_without_topology_is_refused(online: str | None, expected: str, tmp_path: Path) -> None:
    write_sysfs(make_machine(cores=2), tmp_path)
    file = tmp_path / CPUS / "online"
    file.unlink() if online is None else file.write_text(online)
    with pytest.raises(InputError) as refused:
        read_topology(tmp_path)
    assert str(refused.value).startswith(expected.format(file))


def test_numbers_and_lists() -> None:
    assert parse_number(" 12\n") == 12
    assert parse_list("0-2,5\n") == CpuSet([0, 1, 2, 5])
    assert not parse_list("\n")
    for text in ("1_0", "０", "0x1", "1 2", "", "\x00"):
        with pytest.raises(InputError):
            parse_number(text)
    for text in ("1,", "-", "1-", "-1", "1--2", "0-3:1/2", "a", "1;2", "٣"):
        with pytest.raises(InputError):
            parse_list(text)


TEXTS = st.one_of(
    st.sampled_from(
        ["", "\n", "-1", "65535", "0", "1", "3", "0-3", "0-99999999", "node0", "\x00", "9" * 30, "on"]
    ),
    st.text(max_size=8),
)


@given(st.data())
@settings(max_examples=examples(80), deadline=None)
def test_any_sysfs_content_is_read_or_refused(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(prefix="p-") as directory:
        root = write_sysfs(make_machine(numa=2, cores=1, threads=2, efficient=1, roots=1), Path(directory))
        files = sorted(str(path.relative_to(root)) for path in (root / "sys").rglob("*") if path.is_file())
        for name in data.draw(st.lists(st.sampled_from(files), max_size=6, unique=True)):
            text = data.draw(st.none() | TEXTS)
            (root / name).unlink() if text is None else (root / name).write_text(text)
        try:
            topology = read_topology(root, pcie=True)
        except InputError as error:
            refusal = str(error)
        else:
            refusal = ""
        if refusal:
            assert str(root) in refusal
            return
        known = {entry.cpu for entry in topology.skipped}
        assert topology.cpus
        assert not known & set(topology.all)
        for cpu in topology.cpus:
            assert min(cpu.id, cpu.socket, cpu.numa, cpu.core_id) >= 0
            assert cpu.core == min(topology.cores[cpu.core])
            assert len({topology.by_id[mate].socket for mate in topology.cores[cpu.core]}) == 1
