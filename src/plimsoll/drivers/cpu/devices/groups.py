"""Layout of the CPUs: reserved CPUs, always shared CPUs, and the domains published as devices. Pure.

`compute_layout` guarantees: domains, reserved and always shared CPUs are disjoint; all other online CPUs are
in a domain (with full cores only: all full cores of compatible sizes); names are unique DNS labels and keep
their CPUs as long as they are known (`earlier`, `allocated`). Names and order are the Go driver's where it
has the mode (docs/spec/cpu-driver.md, "Devices and ResourceSlices"); groups by L3 cache and by PCIe root are
additions.

DIFF: SMT siblings are adjacent in the numbering of CPUs for any SMT width; the Go driver handles pairs only
(test_problem_2_siblings_of_four_way_smt_are_adjacent).

DIFF: a machine device without CPUs is omitted, and contains only CPUs with known topology; the Go driver
publishes it, and counts CPUs that it can never assign (test_problem_12_skipped_cpus_are_not_counted).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.drivers.cpu.devices.reserved import (
    choose_always_shared,
    choose_reserved,
    compute_min_shared,
)
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.cpu.topology import Cpu, Topology

#: API limit on attribute values of a device, list items included; number of those that are not PCIe roots.
_VALUES_MAX = 48
_OTHER_VALUES = 10
ROOTS_MAX = _VALUES_MAX - _OTHER_VALUES

_INDIVIDUAL = re.compile(r"cpudev([0-9]{3,6})")
_NONE_ALLOCATED: Mapping[str, CpuSet] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CpuDomain:
    """CPUs of one device.

    `cpus` are online and can be claimed. Properties that differ between them are -1. `cpu` is set for a
    device of a single CPU. Amounts are multiples of `step`.
    """

    name: str
    cpus: CpuSet
    numa: int = -1
    socket: int = -1
    l3: int = -1
    pcie_roots: tuple[str, ...] = ()
    cpu: Cpu | None = None
    step: int = 1

    @property
    def capacity(self) -> int:
        """Number of CPUs that can be claimed."""
        return len(self.cpus) // self.step * self.step


@dataclass(frozen=True, slots=True)
class CpuLayout:
    """Partition of the CPUs of a machine.

    `always_shared` are CPUs of the shared pool that cannot be claimed, `min_shared` is their minimum number.
    `offline_devices` are devices without online CPUs. `names` are the device names by CPU, including offline
    CPUs. `preferred_shared` are CPUs to choose as always shared, first ones first: those that were chosen
    before, including offline ones.
    """

    reserved: CpuSet
    always_shared: CpuSet
    domains: Mapping[str, CpuDomain]
    warnings: tuple[NodeFinding, ...] = ()
    offline_devices: Mapping[str, CpuDomain] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    min_shared: int = 0
    preferred_shared: tuple[int, ...] = ()

    @property
    def claimable(self) -> CpuSet:
        return union(domain.cpus for domain in self.domains.values())


def compute_layout(
    topology: Topology,
    settings: CpuSettings,
    *,
    earlier: CpuLayout | None = None,
    allocated: Mapping[str, CpuSet] = _NONE_ALLOCATED,
    shared_in_use: bool = False,
    preferred_shared: Sequence[int] = (),
) -> CpuLayout:
    """Compute the layout of a machine. `shared_in_use`: containers run on the shared pool.

    `allocated` are the CPUs allocated to claims, by device name: they never become always shared, and if
    their device is no longer published they are in no domain. `earlier` is the previous layout;
    without one, `preferred_shared` are the CPUs to choose as always shared.
    """
    taken = union(allocated.values())
    warnings: list[NodeFinding] = []
    reserved = choose_reserved(topology, settings, taken, earlier.reserved if earlier else None, warnings)
    free = topology.all - reserved
    min_shared = compute_min_shared(topology, settings, shared_in_use=shared_in_use)
    preferred = [
        cpu for cpu in (earlier.preferred_shared if earlier else preferred_shared) if cpu not in taken
    ]
    always_shared = choose_always_shared(topology, settings, free, taken, preferred, min_shared, warnings)
    preferred += always_shared - settings.shared - CpuSet(preferred)
    claimable = free - always_shared
    known = earlier.names if earlier else {}
    if settings.mode is DeviceMode.INDIVIDUAL:
        # Always shared CPUs have numbers, too: names do not change if others become shared.
        names = _number(topology, free, known, allocated)
        groups = {names[cpu]: CpuSet([cpu]) for cpu in names if cpu in claimable}
    else:
        groups = _keep_names(_GROUPINGS[settings.group_by](topology), known, allocated)
        names = {**known, **{cpu: name for name, cpus in groups.items() for cpu in cpus}}
    foreign = _foreign(groups, names, allocated, warnings)
    domains: dict[str, CpuDomain] = {}
    for name, cpus in groups.items():
        domain = _domain(topology, settings, name, (cpus & claimable) - foreign)
        if domain.capacity:
            domains[name] = domain
    if settings.mode is DeviceMode.INDIVIDUAL:
        domains = {name: domains[name] for name in sorted(domains, key=lambda name: (len(name), name))}
    _warn(topology, settings, claimable - foreign, domains, warnings)
    offline_devices = _offline_devices(earlier, domains)
    return CpuLayout(
        reserved,
        always_shared,
        domains,
        tuple(warnings),
        offline_devices,
        names,
        min_shared,
        tuple(preferred),
    )


def _domain(topology: Topology, settings: CpuSettings, name: str, cpus: CpuSet) -> CpuDomain:
    step = 1
    if settings.assign.full_cores and settings.mode is DeviceMode.GROUPED:
        cpus, step = _whole_cores([core for core in topology.cores.values() if core <= cpus])
    places = [topology.by_id[cpu] for cpu in cpus]
    roots = tuple(sorted({root for place in places for root in place.pcie_roots}))
    return CpuDomain(
        name=name,
        cpus=cpus,
        numa=_common(place.numa for place in places),
        socket=places[0].socket
        if places and settings.group_by is GroupBy.NUMA
        else _common(place.socket for place in places),
        l3=_common(place.l3_id for place in places),
        pcie_roots=roots,
        cpu=places[0] if settings.mode is DeviceMode.INDIVIDUAL and places else None,
        step=step,
    )


def _whole_cores(cores: Sequence[CpuSet]) -> tuple[CpuSet, int]:
    """Return the CPUs of full cores, and the step of amounts that full cores can always make up.

    The step is the size of the largest core, if each size divides the next larger one: then the remaining
    CPUs are full cores again. Cores of other sizes (with offline CPUs) are left out.
    """
    sizes: list[int] = []
    for size in sorted({len(core) for core in cores}, reverse=True):
        if not sizes or sizes[-1] % size == 0:
            sizes.append(size)
    return union(core for core in cores if len(core) in sizes), sizes[0] if sizes else 1


def _common(values: Iterable[int]) -> int:
    found = set(values)
    return found.pop() if len(found) == 1 else -1


# -- single CPUs


def _number(
    topology: Topology, cpus: CpuSet, known: Mapping[int, str], allocated: Mapping[str, CpuSet]
) -> dict[int, str]:
    """Assign a device name to each CPU: its known name, else the next free number; siblings are adjacent."""
    names: dict[int, str] = {}
    used = set(allocated)
    for name in sorted(allocated):
        if _INDIVIDUAL.fullmatch(name) and len(allocated[name]) == 1:
            names.setdefault(next(iter(allocated[name])), name)
    for cpu, name in known.items():
        if cpu not in names and name not in used:
            names[cpu] = name
            used.add(name)
    number = 0
    for core in sorted((core & cpus for core in topology.cores.values()), key=_lowest):
        for cpu in core:
            if cpu in names:
                continue
            while (name := f"cpudev{number:03d}") in used:
                number += 1
            names[cpu] = name
            used.add(name)
    return names


def _lowest(cpus: CpuSet) -> int:
    return next(iter(cpus), -1)


# -- groups of CPUs

_Groups = Iterator[tuple[str, CpuSet]]
#: Names of groups that may lack an ID: they are numbered by their lowest CPU, which may go offline.
_UNSTABLE_NAME = re.compile(r"cpudev(l3|pci)[0-9a-f-]+")


def _keep_names(
    groups: _Groups, known: Mapping[int, str], allocated: Mapping[str, CpuSet]
) -> dict[str, CpuSet]:
    """Return groups by name, reusing the known name of any of their CPUs."""
    found = list(groups)
    old = dict(known)
    for name in sorted(allocated):
        old.update({cpu: name for cpu in allocated[name] if cpu not in known})
    kept: dict[str, CpuSet] = {}
    for name, cpus in found:
        if _UNSTABLE_NAME.fullmatch(name):
            kind = name[:8]
            before = (old[cpu] for cpu in cpus if old.get(cpu, "").startswith(kind))
            taken = {*kept, *(other for other, _ in found if other != name)}
            name = next((one for one in before if one not in taken), name)
        kept[name] = cpus
    return kept


def _by_numa(topology: Topology) -> _Groups:
    for numa, cpus in topology.numa.items():
        yield f"cpudevnuma{numa:03d}", cpus


def _by_socket(topology: Topology) -> _Groups:
    for socket, cpus in topology.sockets.items():
        yield f"cpudevsocket{socket:03d}", cpus


def _by_l3(topology: Topology) -> _Groups:
    """Group CPUs by L3 cache; CPUs without one by NUMA node, so that every CPU is in a device."""
    for l3, cpus in topology.l3.items():
        yield f"cpudevl3{l3:03d}", cpus
    yield from _rest(topology, topology.all - union(topology.l3.values()), "cpudevnol3")


def _by_pcie(topology: Topology) -> _Groups:
    """Group CPUs by their set of local PCIe roots; overlapping sets are separate devices."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for cpu in topology.cpus:
        groups.setdefault(tuple(sorted(set(cpu.pcie_roots))), []).append(cpu.id)
    bare = CpuSet(groups.pop((), ()))
    firsts = [roots[0] for roots in groups]
    for roots in sorted(groups):
        name = f"cpudev{_label(roots[0])}"
        if firsts.count(roots[0]) > 1:
            name += f"-{hashlib.sha256(','.join(roots).encode()).hexdigest()[:6]}"
        yield name, CpuSet(groups[roots])
    yield from _rest(topology, bare, "cpudevnopci")


def _label(root: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", root.lower())[:40].strip("-") or "pci"


def _by_machine(topology: Topology) -> _Groups:
    yield "cpudevmachine", topology.all


def _rest(topology: Topology, cpus: CpuSet, prefix: str) -> _Groups:
    for numa, near in topology.numa.items():
        if near & cpus:
            yield f"{prefix}{numa:03d}", near & cpus


_GROUPINGS: dict[GroupBy, Callable[[Topology], _Groups]] = {
    GroupBy.NUMA: _by_numa,
    GroupBy.SOCKET: _by_socket,
    GroupBy.L3: _by_l3,
    GroupBy.PCIE: _by_pcie,
    GroupBy.MACHINE: _by_machine,
}


# -- CPUs that are not published


def _foreign(
    groups: Mapping[str, CpuSet],
    names: Mapping[int, str],
    allocated: Mapping[str, CpuSet],
    warnings: list[NodeFinding],
) -> CpuSet:
    """Return the CPUs of claims on devices that are no longer published because the grouping has changed.

    The scheduler does not count those claims against any current device.
    """
    known = set(groups) | set(names.values()) | {""}
    cpus = union(allocated[name] for name in allocated if name not in known)
    if cpus:
        old = ", ".join(sorted(name for name in allocated if name not in known and allocated[name]))
        what = f"claims have CPUs {cpus} of devices that are no longer published ({old})"
        fix = "no action needed: they are published again when the claims are released"
        warnings.append(NodeFinding(FindingSeverity.WARNING, what, fix))
    return cpus


def _offline_devices(earlier: CpuLayout | None, domains: Mapping[str, CpuDomain]) -> dict[str, CpuDomain]:
    if earlier is None:
        return {}
    known = {**earlier.offline_devices, **earlier.domains}
    return {name: replace(known[name], cpus=EMPTY) for name in known if name not in domains}


def _warn(
    topology: Topology,
    settings: CpuSettings,
    claimable: CpuSet,
    domains: Mapping[str, CpuDomain],
    warnings: list[NodeFinding],
) -> None:
    left = claimable - union(domain.cpus for domain in domains.values())
    if left and settings.mode is DeviceMode.GROUPED:
        what = f"CPUs {left} cannot be claimed: only full cores can, and their cores are incomplete"
        fix = "reserve all CPUs of a core or none (reservedCPUs, sharedCPUs)"
        warnings.append(NodeFinding(FindingSeverity.WARNING, what, fix))
    for domain in domains.values():
        if domain.capacity < len(domain.cpus):
            what = (
                f"device {domain.name} has {len(domain.cpus)} CPUs and offers {domain.capacity}: "
                f"its cores differ, and amounts must be multiples of {domain.step}"
            )
            warnings.append(NodeFinding(FindingSeverity.INFO, what))
        if len(domain.pcie_roots) > ROOTS_MAX and settings.needs_pcie:
            what = (
                f"device {domain.name} is near {len(domain.pcie_roots)} PCIe roots; "
                f"the first {ROOTS_MAX} are published"
            )
            warnings.append(
                NodeFinding(FindingSeverity.WARNING, what, "group by NUMA node: groupBy: numanode")
            )
    if settings.mode is DeviceMode.INDIVIDUAL and settings.assign.full_cores:
        what = "fullCores does not change what is published: with a device for each CPU, claims name CPUs"
        warnings.append(NodeFinding(FindingSeverity.INFO, what, "publish groups: cpuDeviceMode: grouped"))
    if not domains:
        what = f"no device is published: none of {len(topology.all)} CPUs can be claimed"
        fix = "reserve fewer CPUs (reservedCPUs, reservedCPUCount, minSharedCPUs, sharedCPUs)"
        warnings.append(NodeFinding(FindingSeverity.WARNING, what, fix))
