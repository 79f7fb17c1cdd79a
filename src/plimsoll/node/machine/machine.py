"""Resources of a machine, and the amounts allocatable to pods.

`Machine` holds capacity, CPUs, NUMA nodes and what a Node object reports of a machine; `read_machine` reads
it below a root directory (so that a directory can stand in for a machine); `allocatable` follows the kubelet:
capacity less system and kube reservations less the hard eviction thresholds, never below zero, memory without
all huge pages. `file.py` reads a machine from a file, so that one machine can simulate many nodes.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from plimsoll.api.core import NodeAddress, ResourceList, Taint
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.quantity import ZERO, Format, Quantity, format_bytes
from plimsoll.errors import InputError
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

HUGE_PAGES = "hugepages-"
MAX_PODS = 110
#: The kubelet's default hard eviction thresholds.
EVICTION_HARD: Mapping[str, str] = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
#: All eviction signals.
SIGNALS = (*EVICTION_HARD, "containerfs.available", "containerfs.inodesFree", "pid.available",
           "allocatableMemory.available")  # fmt: skip
#: Signals whose thresholds are subtracted from allocatable.
_SUBTRACTED = {"memory.available": MEMORY, "nodefs.available": EPHEMERAL_STORAGE}
#: The kernel's architecture names -> Go's, which Kubernetes uses.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "i386": "386"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """NUMA node with its CPUs. Amounts are bytes, huge pages by page size (2Mi)."""

    id: int
    cpus: tuple[int, ...] = ()
    memory: int = 0
    huge_pages: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Machine as read or described by a file; labels, taints and addresses are for its Node object."""

    capacity: ResourceList
    cpus: tuple[int, ...] = ()
    numa: tuple[NumaNode, ...] = ()
    pids: int = 0  #: maximum number of processes; 0: unknown
    swap: int = 0  #: bytes
    hostname: str = ""
    boot_id: str = ""
    machine_id: str = ""
    system_uuid: str = ""
    kernel: str = ""
    os_image: str = ""
    os: str = "linux"
    arch: str = "amd64"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()

    @property
    def memory(self) -> int:
        """Bytes of memory."""
        return self.capacity.get(MEMORY, ZERO).value()

    @property
    def huge_pages(self) -> Mapping[str, int]:
        """Bytes by page size (2Mi)."""
        return {
            name.removeprefix(HUGE_PAGES): amount.value()
            for name, amount in self.capacity.items()
            if is_huge_page(name)
        }


# -- allocatable


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """Reservations: amounts for the system and for the kubelet, eviction thresholds, and reserved CPUs.

    A threshold is a quantity or a percentage of the capacity (10%). If CPUs are reserved by number, they are
    the entire CPU reservation.
    """

    system: ResourceList = field(default_factory=dict)
    kube: ResourceList = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=lambda: EVICTION_HARD)
    cpus: tuple[int, ...] = ()

    def of(self, resource: str) -> Quantity:
        """Return the reserved amount of a resource, without thresholds."""
        if resource == CPU and self.cpus:
            return Quantity.of(len(self.cpus))
        return self.system.get(resource, ZERO) + self.kube.get(resource, ZERO)


def available_to_pods(machine: Machine, reserved: Reservations) -> ResourceList:
    """Return what all pods together may use: the capacity less the reservations, without thresholds."""
    return {
        name: _not_negative(total_amount - reserved.of(name), total_amount)
        for name, total_amount in machine.capacity.items()
    }


def allocatable(machine: Machine, reserved: Reservations) -> ResourceList:
    """Return the allocatable amounts of a machine, as the kubelet computes them."""
    amounts: ResourceList = {}
    subtracted = {
        _SUBTRACTED[signal]: text for signal, text in reserved.eviction_hard.items() if signal in _SUBTRACTED
    }
    for name, total_amount in machine.capacity.items():
        amount = total_amount - reserved.of(name)
        if name in subtracted:
            amount -= threshold_amount(subtracted[name], total_amount)
        amounts[name] = _not_negative(amount, total_amount)
    for name, total_amount in machine.capacity.items():
        if is_huge_page(name) and MEMORY in amounts:
            amounts[MEMORY] = _not_negative(amounts[MEMORY] - total_amount, amounts[MEMORY])
    return amounts


def _not_negative(amount: Quantity, like: Quantity) -> Quantity:
    return amount if amount.sign() >= 0 else Quantity.of(0, like.format)


def threshold_amount(text: str, total_amount: Quantity) -> Quantity:
    """Return a threshold as an amount; percentages are computed in 32 bits, as in the kubelet.

    0% and 100% mean: no threshold.
    """
    if not text.endswith("%"):
        return Quantity.parse(text)
    if text in ("0%", "100%"):
        return ZERO
    share = _single(_single(float(text.removesuffix("%"))) / 100)
    return Quantity.of(int(total_amount.value() * share), Format.BINARY_SI)


def check_threshold(signal: str, text: str) -> None:
    """Check a threshold; raise InputError if it is invalid."""
    if signal not in SIGNALS:
        raise InputError(f"{signal}: unknown eviction signal; valid signals: {', '.join(SIGNALS)}")
    problem = (
        f"{signal}: {text!r} is not a threshold: use an amount such as 100Mi, or a percentage such as 10%"
    )
    if text.endswith("%"):
        if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,9})?%", text) or float(text[:-1]) > 100:
            raise InputError(problem)
        return
    try:
        amount = Quantity.parse(text)
    except InputError:
        raise InputError(problem) from None
    if amount.sign() < 0:
        raise InputError(f"{signal}: a threshold must not be negative, {text} is")


def _single(number: float) -> float:
    """Round a number to 32 bits."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


# -- cpu lists


def parse_cpus(text: str) -> tuple[int, ...]:
    """Parse `0-3,8` to ascending numbers, ignoring spaces; raise InputError if it is malformed."""
    parts = re.sub(r"\s*([,-])\s*", r"\1", text.strip()).split(",")
    try:
        cpus = CpuSet.parse(",".join(filter(None, parts)))
    except InputError:
        cpus = None
    if cpus is None or cpus.far:
        raise InputError(f"{text!r} is not a CPU list: use a format such as 0-3,8")
    return tuple(cpus)


def format_cpus(cpus: Iterable[int]) -> str:
    """Format CPU numbers as the kernel does: `0-3,8`."""
    return str(CpuSet(cpus))


# -- reading


def read_machine(root: Path = Path("/"), *, storage: Path | None = None) -> Machine:
    """Read the machine whose files are below `root`; `storage` is a directory on the pods' file system.

    Unreadable values are left out; raises InputError only if memory or CPUs cannot be determined at all.
    """
    info = read_meminfo(root / "proc/meminfo")
    if not info.get("MemTotal"):
        raise InputError(f"{root / 'proc/meminfo'}: MemTotal is missing")
    cpus = _online(root / "sys/devices/system/cpu/online")
    if not cpus and root == Path("/"):
        cpus = tuple(range(os.cpu_count() or 1))
    if not cpus:
        raise InputError(f"{root / 'sys/devices/system/cpu/online'}: no online CPUs listed")
    capacity: ResourceList = {
        CPU: Quantity.of(len(cpus)),
        MEMORY: Quantity.of(info["MemTotal"] * 1024, Format.BINARY_SI),
    }
    for size, pages in sorted(_huge_pages(root / "sys/kernel/mm/hugepages").items()):
        capacity[HUGE_PAGES + format_bytes(size)] = Quantity.of(size * pages, Format.BINARY_SI)
    capacity[EPHEMERAL_STORAGE] = Quantity.of(_space(storage or root), Format.BINARY_SI)
    capacity[PODS] = Quantity.of(MAX_PODS)
    system = os.uname()
    return Machine(
        capacity=capacity,
        cpus=cpus,
        numa=_numa(root / "sys/devices/system/node", cpus),
        pids=_number(root / "proc/sys/kernel/pid_max"),
        swap=info.get("SwapTotal", 0) * 1024,
        hostname=_line(root / "proc/sys/kernel/hostname") or system.nodename,
        boot_id=_line(root / "proc/sys/kernel/random/boot_id"),
        machine_id=_line(root / "etc/machine-id") or _line(root / "var/lib/dbus/machine-id"),
        system_uuid=_line(root / "sys/class/dmi/id/product_uuid") or _line(root / "etc/machine-id"),
        kernel=_line(root / "proc/sys/kernel/osrelease") or system.release,
        os_image=_os_image(root),
        arch=_ARCHITECTURES.get(system.machine, system.machine),
    )


def with_max_pods(machine: Machine, max_pods: int) -> Machine:
    """Return the machine with another maximum number of pods."""
    return replace(machine, capacity={**machine.capacity, PODS: Quantity.of(max_pods)})


def check_cpus(cpus: Collection[int], machine: Machine, what: str) -> None:
    """Check CPUs; raise InputError if the machine does not have one of them, or none would be left."""
    unknown = sorted(set(cpus) - set(machine.cpus))
    if unknown:
        raise InputError(
            f"{what}: cpu {unknown[0]} does not exist; the machine has {format_cpus(machine.cpus)}"
        )
    if cpus and set(cpus) == set(machine.cpus):
        raise InputError(f"{what}: leaves no cpu for pods; the machine has {format_cpus(machine.cpus)}")


def read_meminfo(path: Path) -> dict[str, int]:
    """Return the amounts of a file like /proc/meminfo by name, in its units (KiB)."""
    pairs = re.findall(r"^([\w()]+):\s+([0-9]+)\b", read_text(path), re.MULTILINE | re.ASCII)
    return {name: int(amount) for name, amount in pairs}


def _online(path: Path) -> tuple[int, ...]:
    try:
        return parse_cpus(_line(path))
    except InputError:
        return ()


def _huge_pages(directory: Path) -> dict[int, int]:
    """Return the number of pages by page size."""
    found = {}
    for path in _entries(directory):
        match = re.fullmatch(r"hugepages-([0-9]{1,12})kB", path.name)
        if match:
            found[int(match[1]) * 1024] = _number(path / "nr_hugepages")
    return found


def _numa(directory: Path, online: Collection[int]) -> tuple[NumaNode, ...]:
    found = []
    for path in _entries(directory):
        match = re.fullmatch(r"node([0-9]{1,6})", path.name)
        if not match:
            continue
        total = re.search(r"MemTotal:\s+([0-9]+)", read_text(path / "meminfo"))
        pages = _huge_pages(path / "hugepages")
        found.append(
            NumaNode(
                id=int(match[1]),
                cpus=tuple(cpu for cpu in _online(path / "cpulist") if cpu in online),
                memory=int(total[1]) * 1024 if total else 0,
                huge_pages={format_bytes(size): size * count for size, count in sorted(pages.items())},
            )
        )
    return tuple(sorted(found, key=lambda node: node.id))


def _space(directory: Path) -> int:
    """Return the size in bytes of the file system a directory is on, or will be."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def _os_image(root: Path) -> str:
    for place in ("etc/os-release", "usr/lib/os-release"):
        match = re.search(r'^PRETTY_NAME="?([^"\n]*)', read_text(root / place), re.MULTILINE)
        if match:
            return match[1].strip()
    return "Linux"


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def read_text(path: Path) -> str:
    """Return the content of a file, or "" if it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _line(path: Path) -> str:
    text = read_text(path).strip()
    return text.splitlines()[0] if text else ""


def _number(path: Path) -> int:
    text = _line(path)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
