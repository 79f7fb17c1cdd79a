"""Topology discovery from sysfs (docs/spec/cpu-driver.md, "Topology discovery" and "Devices and
ResourceSlices").

`read_topology` returns a topology, or raises InputError with the file, whatever sysfs contains. A CPU with
missing or invalid files is skipped with the reason, in the Go driver's words; less important files (caches,
PCIe roots, core types) cause a remark at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.topology.overlay import SysFiles, format_os_error, quote
from plimsoll.drivers.cpu.topology.placement import CpuRow, find_offline_cpus, place_cpus
from plimsoll.drivers.cpu.topology.topology import CoreKind, Cpu, SkippedCpu, Topology
from plimsoll.errors import InputError

CPUS = "devices/system/cpu"
NODES = "devices/system/node"
#: Limit on CPU numbers in lists.
CPU_MAX = 1 << 16
_ID_MAX = (1 << 31) - 1
_L3_ID_MAX = (1 << 63) - 1
#: The kernel's "none" is -1 in 16 bits without a sign.
_NO_CLUSTER = 65535
_SMT = {"on": True, "off": False, "forceoff": False, "notsupported": False}
_NUMBER = re.compile(r"[-+]?[0-9]{1,20}", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_NODE = re.compile(r"node([0-9]{1,5})", re.ASCII)
_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}", re.ASCII)

T = TypeVar("T")


def read_topology(
    root: Path = Path("/"), overlay: Mapping[str, str | None] | None = None, *, pcie: bool = False
) -> Topology:
    """Read the topology of the machine whose /sys is below `root`; raises InputError if no CPU is usable."""
    files = SysFiles(root, overlay)
    online_path = f"{CPUS}/online"
    try:
        online = _read(files, online_path, parse_list)
    except OSError as error:
        raise InputError(
            f"could not get online CPUs: open {files.path(online_path)}: {format_os_error(error)}"
        ) from None
    except InputError as error:
        raise InputError(f"could not get online CPUs: {files.path(online_path)}: {error}") from None
    remarks: list[str] = []
    kinds = _read_kinds(files, remarks)
    nodes = _Nodes(files)
    rows: list[CpuRow] = []
    skipped: list[SkippedCpu] = []
    for cpu in online:
        row = _read_row(files, cpu, nodes)
        if isinstance(row, CpuRow):
            rows.append(row)
        else:
            skipped.append(row)
    placed = place_cpus(rows, kinds)
    skipped = sorted([*skipped, *placed.skipped], key=lambda entry: entry.cpu)
    if not placed.cpus:
        why = skipped[0].why if skipped else "the list is empty"
        raise InputError(
            f"{files.path(online_path)}: none of {len(online)} online CPUs can be used: {why}; "
            "set the missing values with a sysfs overlay"
        )
    cpus = placed.cpus
    if pcie:
        cpus = _add_roots(cpus, _read_roots(files, remarks))
    present = _read_quietly(files, f"{CPUS}/present", parse_list)
    possible = _read_quietly(files, f"{CPUS}/possible", parse_list) if present is None else None
    return Topology(
        cpus,
        smt=_read_smt(files, cpus),
        offline=find_offline_cpus(present, possible, online),
        skipped=tuple(skipped),
        remarks=(*remarks, *placed.remarks),
    )


def _read_row(files: SysFiles, cpu: int, nodes: _Nodes) -> CpuRow | SkippedCpu:
    directory = f"{CPUS}/cpu{cpu}"
    numbers: dict[str, int] = {}
    for what, name in (("socket_id", "physical_package_id"), ("core_id", "core_id")):
        path = f"{directory}/topology/{name}"
        try:
            text = files.read(path)
        except OSError as error:
            return SkippedCpu(
                cpu, f"could not read {what} for cpu {cpu} from sysfs: open {path}: {format_os_error(error)}"
            )
        try:
            numbers[what] = parse_number(text)
        except InputError as error:
            return SkippedCpu(cpu, f"could not parse {what} {quote(text)} for cpu {cpu}: {error}")
    try:
        node = nodes.of(cpu, files.names(directory))
    except OSError as error:
        return SkippedCpu(
            cpu,
            f"could not read NUMA node for cpu {cpu} from sysfs: open {directory}: {format_os_error(error)}",
        )
    if node is None:
        return SkippedCpu(cpu, f"could not determine NUMA node for CPU {cpu}")
    cluster = _read_quietly(files, f"{directory}/topology/cluster_id", parse_number)
    die = _read_quietly(files, f"{directory}/topology/die_id", parse_number)
    l3_id, sharers = _read_l3(files, cpu)
    return CpuRow(
        cpu,
        socket=max(numbers["socket_id"], -1),
        core_id=max(numbers["core_id"], -1),
        node=node,
        die=-1 if die is None else max(die, -1),
        cluster=-1 if cluster is None or cluster == _NO_CLUSTER else max(cluster, -1),
        l3_id=l3_id,
        cores=_read_siblings(files, directory),
        sharers=sharers,
    )


def _read_siblings(files: SysFiles, directory: str) -> CpuSet | None:
    """Read the threads of a CPU's core, from the new or the old file name.

    Ignored if an overlay changes the IDs of the CPU but not the list.
    """
    for name in ("core_cpus_list", "thread_siblings_list"):
        path = f"{directory}/topology/{name}"
        if (found := _read_quietly(files, path, parse_list)) is not None:
            moved = any(
                files.is_overlaid(f"{directory}/topology/{other}")
                for other in ("physical_package_id", "core_id", "die_id", "cluster_id")
            )
            return None if moved and not files.is_overlaid(path) else found
    return None


def _read_l3(files: SysFiles, cpu: int) -> tuple[int, CpuSet | None]:
    """Read the ID of a CPU's L3 cache, -1 if it has none, and the CPUs that share it.

    DIFF: the Go driver skips a CPU whose cache files are missing or unreadable; here it only has no L3 cache
    (test_malformed_cache_files_do_not_lose_cpus).
    """
    directory = f"{CPUS}/cpu{cpu}/cache"
    try:
        entries = files.names(directory)
    except OSError:
        return -1, None
    for entry in entries:
        if not entry.startswith("index"):
            continue
        if _read_quietly(files, f"{directory}/{entry}/level", str.strip) != "3":
            continue
        id_path, list_path = f"{directory}/{entry}/id", f"{directory}/{entry}/shared_cpu_list"
        sharers = _read_quietly(files, list_path, parse_list)
        l3_id = _read_quietly(files, id_path, lambda text: parse_number(text, _L3_ID_MAX))
        if l3_id is None or l3_id < 0:
            return -1, sharers if sharers is None or cpu in sharers else CpuSet([cpu])
        moved = files.is_overlaid(id_path) and not files.is_overlaid(list_path)
        return l3_id, None if moved else sharers
    return -1, None


class _Nodes:
    """NUMA nodes of CPUs: by the entry in a CPU's directory, else by the lists of the nodes."""

    def __init__(self, files: SysFiles) -> None:
        self._files = files
        self._lists: dict[int, CpuSet] | None = None

    def of(self, cpu: int, entries: Iterable[str]) -> int | None:
        """Return the NUMA node; -1 if the machine has none, None if it has nodes but not for this CPU."""
        named = [int(match[1]) for entry in entries if (match := _NODE.fullmatch(entry))]
        if len(named) == 1:
            return named[0]
        lists = self._read()
        listing = [node for node, cpus in lists.items() if cpu in cpus and (not named or node in named)]
        if listing or named:
            return (listing or named)[0]
        return None if lists else -1

    def _read(self) -> dict[int, CpuSet]:
        if self._lists is None:
            self._lists = {}
            try:
                entries = self._files.names(NODES)
            except OSError:
                entries = []
            for entry in entries:
                if match := _NODE.fullmatch(entry):
                    cpus = _read_quietly(self._files, f"{NODES}/{entry}/cpulist", parse_list)
                    if cpus:
                        self._lists[int(match[1])] = cpus
        return self._lists


def _read_kinds(files: SysFiles, remarks: list[str]) -> Callable[[int], CoreKind]:
    """Read the core types of hybrid Intel machines; all others are standard.

    DIFF: low-power efficient cores (`cpu_lowpower`) are e-cores, too, not p-cores
    (test_low_power_cores_are_efficient); an invalid list loses the core types, not the topology
    (test_a_malformed_list_of_efficient_cores_is_reported).
    """
    efficient = EMPTY
    hybrid = False
    for unit in ("cpu_atom", "cpu_lowpower"):
        path = f"devices/{unit}/cpus"
        try:
            efficient = efficient | _read(files, path, parse_list)
        except OSError:
            continue
        except InputError as error:
            remarks.append(f"{files.path(path)}: {error}: kinds of cores are unknown")
            return lambda cpu: CoreKind.STANDARD
        hybrid = True
    if not hybrid:
        return lambda cpu: CoreKind.STANDARD
    return lambda cpu: CoreKind.EFFICIENT if cpu in efficient else CoreKind.PERFORMANCE


def _read_roots(files: SysFiles, remarks: list[str]) -> dict[str, CpuSet]:
    """Read the PCIe roots and their local CPUs.

    DIFF: on every architecture, not on x86 alone, and a root with an invalid file is omitted with a remark
    instead of stopping the driver (test_pcie_roots_without_cpus_are_left_out).
    """
    try:
        entries = files.names("devices")
    except OSError as error:
        remarks.append(f"{files.path('devices')}: {format_os_error(error)}: PCIe roots are unknown")
        return {}
    roots: dict[str, CpuSet] = {}
    for name in entries:
        if not _ROOT.fullmatch(name):
            continue
        path = f"devices/{name}/pci_bus/{name.removeprefix('pci')}/cpulistaffinity"
        try:
            roots[name] = _read(files, path, parse_list)
        except OSError as error:
            remarks.append(f"{files.path(path)}: {format_os_error(error)}: PCIe root {name} is omitted")
        except InputError as error:
            remarks.append(f"{files.path(path)}: {error}: PCIe root {name} is omitted")
    return roots


def _add_roots(cpus: Iterable[Cpu], roots: Mapping[str, CpuSet]) -> tuple[Cpu, ...]:
    return tuple(
        replace(cpu, pcie_roots=tuple(sorted(name for name, near in roots.items() if cpu.id in near)))
        for cpu in cpus
    )


def _read_smt(files: SysFiles, cpus: tuple[Cpu, ...]) -> bool:
    """Return whether SMT is on: from the kernel's file, else by counting threads.

    DIFF: "notimplemented" means that the architecture cannot switch SMT, as most arm64 kernels; its cores may
    have several threads nevertheless. The Go driver reports that as off
    (test_smt_is_read_from_the_kernel_or_counted).
    """
    try:
        tree = _SMT.get(files.read(f"{CPUS}/smt/control").strip().lower())
    except OSError:
        tree = None
    return len(cpus) > len({cpu.core for cpu in cpus}) if tree is None else tree


def _read(files: SysFiles, name: str, parse: Callable[[str], T]) -> T:
    return parse(files.read(name))


def _read_quietly(files: SysFiles, name: str, parse: Callable[[str], T]) -> T | None:
    """Return None if a file is missing or invalid."""
    try:
        return parse(files.read(name))
    except (OSError, InputError):
        return None


def parse_number(text: str, most: int = _ID_MAX) -> int:
    """Parse a number in the kernel's format; raises InputError if it is invalid or out of range."""
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped):
        raise InputError(f"parsing {quote(stripped)}: invalid syntax")
    if abs(number := int(stripped)) > most:
        raise InputError(f"parsing {quote(stripped)}: value out of range")
    return number


def parse_list(text: str) -> CpuSet:
    """Parse a CPU list in the kernel's format; raises InputError if it is invalid or out of range."""
    mask = 0
    stripped = text.strip()
    for part in stripped.split(",") if stripped else ():
        if not (match := _RANGE.fullmatch(part)):
            raise InputError(f"parsing {quote(part)}: invalid syntax")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise InputError(f"invalid range {quote(part)} ({first} > {last})")
        if last >= CPU_MAX:
            raise InputError(f"parsing {quote(part)}: value out of range")
        mask |= (1 << last + 1) - (1 << first)
    return CpuSet.of_mask(mask)
