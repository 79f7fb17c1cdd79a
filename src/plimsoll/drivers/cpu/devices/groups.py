"""Which CPUs can be claimed, and under which device. Pure.

Owns `arrange`: reserved CPUs, the floor of the shared pool, and the domains, each of which is published as
one device. Promises: domains, reserved CPUs and floor are disjoint; all other online CPUs are in a domain
(with whole cores only: all whole cores of sizes that go together); names are unique DNS labels, and mean the
same CPUs for as long as somebody remembers them (`earlier`, `held`). Names and order are the Go driver's
where it has the mode (section 4 of the CPU driver's specification); groups by L3 cache and by PCIe root are
ours.

DIFF: SMT siblings are neighbours in the numbering of CPUs whatever the width of SMT; the Go driver knows
pairs only (test_problem_2_siblings_of_four_way_smt_are_neighbours).

DIFF: a machine device without CPUs is left out, and has CPUs with a known place only; the Go driver publishes
it, and counts CPUs it can never hand out (test_problem_12_skipped_cpus_are_not_counted).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from types import MappingProxyType

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import Finding, Severity
from plimsoll.drivers.cpu.devices.reserved import choose_floor, choose_reserved
from plimsoll.drivers.cpu.settings import CpuSettings, GroupBy, Mode
from plimsoll.drivers.cpu.topology import Cpu, Topology

#: Attribute values of a device, items of lists included, that the API takes; how many are not PCIe roots.
_VALUES_MAX = 48
_OTHER_VALUES = 10
ROOTS_MAX = _VALUES_MAX - _OTHER_VALUES

_INDIVIDUAL = re.compile(r"cpudev([0-9]{3,6})")
_NOBODY: Mapping[str, CpuSet] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Domain:
    """The CPUs behind one device.

    `cpus` are online and can be claimed. What they do not have in common is -1. `cpu` is the CPU of a device
    that stands for one. Amounts are multiples of `step`.
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
        """How many CPUs can be claimed in all."""
        return len(self.cpus) // self.step * self.step


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What is published and what is not.

    `floor` are CPUs of the shared pool that cannot be claimed. `away` are devices of which no CPU is online.
    `names` are the names of devices by CPU, also of CPUs that are not online now.
    """

    reserved: CpuSet
    floor: CpuSet
    domains: Mapping[str, Domain]
    warnings: tuple[Finding, ...] = ()
    away: Mapping[str, Domain] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)

    @property
    def claimable(self) -> CpuSet:
        return _union(domain.cpus for domain in self.domains.values())


def arrange(
    topology: Topology,
    settings: CpuSettings,
    *,
    earlier: Arrangement | None = None,
    held: Mapping[str, CpuSet] = _NOBODY,
) -> Arrangement:
    """Arrange the CPUs of a machine.

    `held` are the CPUs that claims hold, by the name of the device: they are not made part of the floor, and
    where they are held under a name that is published no more they are in no domain. `earlier` is how the
    CPUs were arranged before CPUs came or went.
    """
    taken = _union(held.values())
    warnings: list[Finding] = []
    reserved = choose_reserved(topology, settings, taken, earlier.reserved if earlier else None, warnings)
    free = topology.all - reserved
    floor = choose_floor(topology, settings, free, taken, earlier.floor if earlier else EMPTY, warnings)
    claimable = free - floor
    known = earlier.names if earlier else {}
    if settings.mode is Mode.INDIVIDUAL:
        names = _number(topology, claimable, known, held)
        groups = {names[cpu]: CpuSet([cpu]) for cpu in names if cpu in claimable}
    else:
        groups = _keep_names(_GROUPINGS[settings.group_by](topology), known, held)
        names = {**known, **{cpu: name for name, cpus in groups.items() for cpu in cpus}}
    foreign = _foreign(groups, names, held, warnings)
    domains: dict[str, Domain] = {}
    for name, cpus in groups.items():
        domain = _domain(topology, settings, name, (cpus & claimable) - foreign)
        if domain.capacity:
            domains[name] = domain
    if settings.mode is Mode.INDIVIDUAL:
        domains = {name: domains[name] for name in sorted(domains, key=lambda name: (len(name), name))}
    _warn(topology, settings, claimable - foreign, domains, warnings)
    away = _away(earlier, domains)
    return Arrangement(reserved, floor, domains, tuple(warnings), away, names)


def _domain(topology: Topology, settings: CpuSettings, name: str, cpus: CpuSet) -> Domain:
    step = 1
    if settings.assign.full_cores and settings.mode is Mode.GROUPED:
        cpus, step = _whole_cores([core for core in topology.cores.values() if core <= cpus])
    places = [topology.by_id[cpu] for cpu in cpus]
    roots = tuple(sorted({root for place in places for root in place.pcie_roots}))
    return Domain(
        name=name,
        cpus=cpus,
        numa=_common(place.numa for place in places),
        socket=places[0].socket
        if places and settings.group_by is GroupBy.NUMA
        else _common(place.socket for place in places),
        l3=_common(place.l3_id for place in places),
        pcie_roots=roots,
        cpu=places[0] if settings.mode is Mode.INDIVIDUAL and places else None,
        step=step,
    )


def _whole_cores(cores: Sequence[CpuSet]) -> tuple[CpuSet, int]:
    """The CPUs of cores, and what amounts must be multiples of so that whole cores always make them up.

    That is the size of the largest core, if each size divides the next: then whatever is taken, what is left
    is made up of whole cores again. Cores of other sizes (some of their CPUs are offline) are left out.
    """
    sizes: list[int] = []
    for size in sorted({len(core) for core in cores}, reverse=True):
        if not sizes or sizes[-1] % size == 0:
            sizes.append(size)
    return _union(core for core in cores if len(core) in sizes), sizes[0] if sizes else 1


def _common(values: Iterable[int]) -> int:
    found = set(values)
    return found.pop() if len(found) == 1 else -1


def _union(sets: Iterable[CpuSet]) -> CpuSet:
    return reduce(or_, sets, EMPTY)


# -- single CPUs


def _number(
    topology: Topology, claimable: CpuSet, known: Mapping[int, str], held: Mapping[str, CpuSet]
) -> dict[int, str]:
    """A name for each CPU: the one it has, else the next free number; siblings are neighbours."""
    names: dict[int, str] = {}
    used = set(held)
    for name in sorted(held):
        if _INDIVIDUAL.fullmatch(name) and len(held[name]) == 1:
            names.setdefault(next(iter(held[name])), name)
    for cpu, name in known.items():
        if cpu not in names and name not in used:
            names[cpu] = name
            used.add(name)
    number = 0
    for core in sorted((cpus & claimable for cpus in topology.cores.values()), key=_lowest):
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
#: Groups of which the machine may not say a number: they have one of their lowest CPU, which may go offline.
_FLEETING = re.compile(r"cpudev(l3|pci)[0-9a-f-]+")


def _keep_names(groups: _Groups, known: Mapping[int, str], held: Mapping[str, CpuSet]) -> dict[str, CpuSet]:
    """Groups by name: by the name that any of their CPUs is known by, where there is one."""
    found = list(groups)
    old = dict(known)
    for name in sorted(held):
        old.update({cpu: name for cpu in held[name] if cpu not in known})
    kept: dict[str, CpuSet] = {}
    for name, cpus in found:
        if _FLEETING.fullmatch(name):
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
    """CPUs without an L3 cache are grouped by NUMA node: every CPU must be in some device."""
    for l3, cpus in topology.l3.items():
        yield f"cpudevl3{l3:03d}", cpus
    yield from _rest(topology, topology.all - _union(topology.l3.values()), "cpudevnol3")


def _by_pcie(topology: Topology) -> _Groups:
    """By the set of roots that are near. A CPU is in one device only: sets that overlap are two devices."""
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


# -- what is not published


def _foreign(
    groups: Mapping[str, CpuSet],
    names: Mapping[int, str],
    held: Mapping[str, CpuSet],
    warnings: list[Finding],
) -> CpuSet:
    """CPUs of claims on devices that are published no more, since CPUs are grouped otherwise now.

    The scheduler does not count those claims against any device of today.
    """
    known = set(groups) | set(names.values()) | {""}
    cpus = _union(held[name] for name in held if name not in known)
    if cpus:
        old = ", ".join(sorted(name for name in held if name not in known and held[name]))
        what = f"claims hold CPUs {cpus} of devices that are published no more ({old})"
        fix = "nothing needs to be done: they are published again when the claims are released"
        warnings.append(Finding(Severity.WARNING, what, fix))
    return cpus


def _away(earlier: Arrangement | None, domains: Mapping[str, Domain]) -> dict[str, Domain]:
    if earlier is None:
        return {}
    known = {**earlier.away, **earlier.domains}
    return {name: replace(known[name], cpus=EMPTY) for name in known if name not in domains}


def _warn(
    topology: Topology,
    settings: CpuSettings,
    claimable: CpuSet,
    domains: Mapping[str, Domain],
    warnings: list[Finding],
) -> None:
    left = claimable - _union(domain.cpus for domain in domains.values())
    if left and settings.mode is Mode.GROUPED:
        what = f"CPUs {left} cannot be claimed: only whole cores can, and others of their cores are not there"
        fix = "reserve all CPUs of a core or none (reservedCPUs, sharedCPUs)"
        warnings.append(Finding(Severity.WARNING, what, fix))
    for domain in domains.values():
        if domain.capacity < len(domain.cpus):
            what = (
                f"device {domain.name} has {len(domain.cpus)} CPUs and offers {domain.capacity}: "
                f"its cores differ, and amounts must be multiples of {domain.step}"
            )
            warnings.append(Finding(Severity.INFO, what))
        if len(domain.pcie_roots) > ROOTS_MAX and settings.needs_pcie:
            what = (
                f"device {domain.name} is near {len(domain.pcie_roots)} PCIe roots; "
                f"the first {ROOTS_MAX} are published"
            )
            warnings.append(Finding(Severity.WARNING, what, "group by NUMA node: groupBy: numanode"))
    if settings.mode is Mode.INDIVIDUAL and settings.assign.full_cores:
        what = "fullCores does not change what is published: with a device for each CPU, claims name CPUs"
        warnings.append(Finding(Severity.INFO, what, "publish groups: cpuDeviceMode: grouped"))
    if not domains:
        what = f"no device is published: none of {len(topology.all)} CPUs can be claimed"
        fix = "reserve fewer CPUs (reservedCPUs, reservedCPUCount, minSharedCPUs, sharedCPUs)"
        warnings.append(Finding(Severity.WARNING, what, fix))
