"""Resources of a machine, and the amounts allocatable to pods."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import ResourceList
from plimsoll.api.quantity import Quantity
from plimsoll.errors import InputError
from plimsoll.node.machine.machine import (
    Machine,
    NumaNode,
    Reservations,
    allocatable,
    check_cpus,
    check_threshold,
    format_cpus,
    parse_cpus,
    read_machine,
    threshold_amount,
    with_max_pods,
)

NO_THRESHOLDS: dict[str, str] = {}


def amounts(**texts: str) -> ResourceList:
    return {name.replace("_", "-"): Quantity.parse(text) for name, text in texts.items()}


def shown(line: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in line.items()}


# -- reading


def build(root: Path) -> Path:
    """Return a machine of eight CPUs, one of them offline, in two NUMA nodes."""
    files = {
        "proc/meminfo": "MemTotal:       16000000 kB\nMemFree: 1 kB\nSwapTotal:  1024 kB\n",
        "proc/sys/kernel/pid_max": "4194304\n",
        "proc/sys/kernel/random/boot_id": "b00t\n",
        "proc/sys/kernel/osrelease": "6.1.0-test\n",
        "proc/sys/kernel/hostname": "worker\n",
        "etc/machine-id": "m4chine\n",
        "etc/os-release": 'NAME="x"\nPRETTY_NAME="Some Linux 12"\n',
        "sys/devices/system/cpu/online": "0-5,7\n",
        "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
        "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "1\n",
        "sys/kernel/mm/hugepages/strange/nr_hugepages": "7\n",
        "sys/devices/system/node/node0/cpulist": "0-3\n",
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       8000000 kB\n",
        "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "512\n",
        "sys/devices/system/node/node1/cpulist": "4-7\n",
        "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:       8000000 kB\n",
        "sys/devices/system/node/online": "0-1\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_machine_is_read_from_its_files(tmp_path: Path) -> None:
    machine = read_machine(build(tmp_path))
    storage = machine.capacity.pop("ephemeral-storage")
    assert storage.sign() > 0
    assert shown(machine.capacity) == {
        "cpu": "7",
        "memory": "15625Mi",
        "hugepages-2Mi": "1Gi",
        "hugepages-1Gi": "1Gi",
        "pods": "110",
    }
    assert machine.cpus == (0, 1, 2, 3, 4, 5, 7)
    assert machine.numa == (
        NumaNode(id=0, cpus=(0, 1, 2, 3), memory=8000000 << 10, huge_pages={"2Mi": 1 << 30}),
        NumaNode(id=1, cpus=(4, 5, 7), memory=8000000 << 10),
    )
    assert (machine.boot_id, machine.machine_id, machine.kernel) == ("b00t", "m4chine", "6.1.0-test")
    assert (machine.os_image, machine.hostname, machine.pids) == ("Some Linux 12", "worker", 4194304)
    assert (machine.memory, machine.swap) == (16000000 << 10, 1 << 20)
    assert machine.huge_pages == {"2Mi": 1 << 30, "1Gi": 1 << 30}


def test_missing_files_have_defaults(tmp_path: Path) -> None:
    build(tmp_path)
    for name in ("etc/os-release", "etc/machine-id", "proc/sys/kernel/random/boot_id"):
        (tmp_path / name).unlink()
    (tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").write_text("no number")
    (tmp_path / "sys/devices/system/node/node0/cpulist").write_text("x")
    machine = read_machine(tmp_path)
    assert (machine.os_image, machine.boot_id, machine.machine_id) == ("Linux", "", "")
    assert str(machine.capacity["hugepages-2Mi"]) == "0"
    assert machine.numa[0].cpus == ()


@pytest.mark.parametrize("name", ["proc/meminfo", "sys/devices/system/cpu/online"])
def test_a_machine_without_memory_or_cpus_is_refused(tmp_path: Path, name: str) -> None:
    (build(tmp_path) / name).write_text("nonsense")
    with pytest.raises(InputError, match=name):
        read_machine(tmp_path)


def test_this_machine_is_read() -> None:
    machine = read_machine()
    assert machine.capacity["cpu"] == Quantity.of(len(machine.cpus))
    assert machine.memory > 0
    assert str(with_max_pods(machine, 7).capacity["pods"]) == "7"


# -- cpus


@given(st.sets(st.integers(0, 300)))
def test_lists_of_cpus_read_back(cpus: set[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize("text", ["x", "3-1", "1-", "-1", "0-99999999", "1;2", "0-100000"])
def test_malformed_cpu_lists_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a CPU list"):
        parse_cpus(text)


def test_reserved_cpus_must_be_there_and_leave_some() -> None:
    machine = Machine(capacity={}, cpus=(0, 1, 2, 3))
    check_cpus((0, 1), machine, "reservedCPUs")
    with pytest.raises(InputError, match="reservedCPUs: cpu 4 does not exist; the machine has 0-3"):
        check_cpus((3, 4), machine, "reservedCPUs")
    with pytest.raises(InputError, match="leaves no cpu"):
        check_cpus((0, 1, 2, 3), machine, "reservedCPUs")


# -- the line


def test_allocatable_is_capacity_less_reservations_and_thresholds() -> None:
    machine = Machine(
        capacity=amounts(cpu="4", memory="16Gi", ephemeral_storage="100Gi", pods="110", hugepages_2Mi="1Gi")
    )
    reserved = Reservations(
        system=amounts(cpu="500m", memory="1Gi"),
        kube=amounts(cpu="100m", memory="512Mi", ephemeral_storage="1Gi", hugepages_2Mi="64Mi"),
        eviction_hard={"memory.available": "100Mi", "nodefs.available": "5Gi"},
    )
    assert shown(allocatable(machine, reserved)) == {
        "cpu": "3400m",
        # Huge pages are no memory for others, those that are reserved either.
        "memory": f"{16 * 1024 - 1024 - 512 - 100 - 1024}Mi",
        "ephemeral-storage": "94Gi",
        "pods": "110",
        "hugepages-2Mi": "960Mi",
    }


def test_percentages_are_those_of_the_kubelet() -> None:
    """The kubelet computes them in 32-bit floats."""
    whole = Quantity.parse("264212084Ki")
    assert str(threshold_amount("10%", whole)) == str(int(264212084 * 1024 * 0.10000000149011612))
    line = allocatable(Machine(capacity={"ephemeral-storage": whole}), Reservations())
    assert str(line["ephemeral-storage"]) == "243497856212"
    assert threshold_amount("0%", whole).is_zero()
    assert threshold_amount("100%", whole).is_zero()
    assert str(threshold_amount("3Gi", whole)) == "3Gi"


@pytest.mark.parametrize(
    ("signal", "text"),
    [
        ("memory.free", "1Gi"),
        ("memory.available", "x"),
        ("memory.available", "101%"),
        ("memory.available", "-1Gi"),
        ("memory.available", "1e%"),
        ("memory.available", ""),
    ],
)
def test_malformed_thresholds_are_refused(signal: str, text: str) -> None:
    with pytest.raises(InputError, match=signal):
        check_threshold(signal, text)


def test_reserved_cpu_lists_replace_reserved_amounts() -> None:
    machine = Machine(capacity=amounts(cpu="8", memory="8Gi"), cpus=tuple(range(8)))
    reserved = Reservations(
        system=amounts(cpu="500m"), kube=amounts(cpu="1"), cpus=(0, 4), eviction_hard=NO_THRESHOLDS
    )
    assert str(allocatable(machine, reserved)["cpu"]) == "6"


NAMES = ("cpu", "memory", "ephemeral-storage", "pods", "hugepages-2Mi", "hugepages-1Gi", "example.com/x")
LISTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**6).map(Quantity.of))
THRESHOLDS = st.one_of(st.integers(0, 10**6).map(str), st.integers(0, 100).map(lambda n: f"{n}%"))


@given(
    LISTS,
    LISTS,
    LISTS,
    st.dictionaries(st.sampled_from(["memory.available", "nodefs.available", "pid.available"]), THRESHOLDS),
)
def test_allocatable_is_between_zero_and_capacity(
    capacity: ResourceList, system: ResourceList, kube: ResourceList, hard: dict[str, str]
) -> None:
    line = allocatable(Machine(capacity=capacity), Reservations(system=system, kube=kube, eviction_hard=hard))
    assert {name: amount.value() for name, amount in line.items()} == naive(capacity, system, kube, hard)
    assert all(0 <= line[name].value() <= capacity[name].value() for name in capacity)


def naive(
    capacity: ResourceList, system: ResourceList, kube: ResourceList, hard: dict[str, str]
) -> dict[str, int]:
    """Compute the same in plain numbers."""
    signals = {"memory": "memory.available", "ephemeral-storage": "nodefs.available"}
    left = {}
    for name, whole in capacity.items():
        amount = whole.value()
        for other in (system, kube):
            amount -= other[name].value() if name in other else 0
        text = hard.get(signals.get(name, ""), "0")
        if text.endswith("%"):
            share = struct.unpack("f", struct.pack("f", int(text[:-1]) / 100))[0]
            amount -= 0 if text in ("0%", "100%") else int(whole.value() * share)
        else:
            amount -= int(text)
        left[name] = max(0, amount)
    if "memory" in left:
        huge = sum(amount.value() for name, amount in capacity.items() if name.startswith("hugepages-"))
        left["memory"] = max(0, left["memory"] - huge)
    return left
