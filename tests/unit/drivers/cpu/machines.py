"""Machines for tests: topologies by a short description, and directories that stand in for their sysfs.

    topology = make_machine(sockets=2, numa=1, l3=2, cores=4, threads=2)   # 2 x 1 x 2 x 4 x 2 = 32 CPUs
    write_sysfs(topology, tmp_path)                                        # tmp_path/sys/devices/system/...
    assert read_topology(tmp_path, pcie=True) == topology
    smaller = switch_off(topology, CpuSet([3]))                            # hotplug: write_sysfs it again

`machines()` is a hypothesis strategy of machines of every shape.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.topology import CoreKind, Cpu, Topology

#: Where caches get numbers of ours if the machine's repeat.
OWN_L3_NUMBERS = 1 << 16


def make_machine(
    sockets: int = 1,
    numa: int = 1,
    l3: int = 1,
    cores: int = 4,
    threads: int = 1,
    *,
    efficient: int = 0,
    numbering: str = "spread",
    core_ids: str = "repeat",
    l3_ids: str = "unique",
    clusters: int = 0,
    dies: bool = False,
    offline: Iterable[int] = (),
    roots: int = 0,
    smt: bool | None = None,
) -> Topology:
    """A machine of `sockets`, each of `numa` nodes, each of `l3` caches (0: none), each of `cores`.

    `threads`: of each core. `efficient`: how many e-cores of one thread each node has beside (then the
    others are p-cores).
    `numbering`: `spread` numbers the first threads of all cores and then the second ones, as most servers do;
    `packed` numbers the threads of a core one after the other.
    `core_ids`: `repeat` in every socket, `unique`, or repeat in every `cluster` or `die`, or `gaps`.
    `l3_ids`: `unique`, `repeat` in every socket, `lowest` (the machine gives none: their lowest CPUs).
    `clusters`: how many cores make a cluster (0: none). `dies`: each node is a die of its own.
    `offline`: CPUs that are switched off. `roots`: PCIe roots of each node.
    """
    places: list[tuple[int, int, int, int, CoreKind, int]] = []  # socket, node, cache, core, kind, threads
    hybrid = efficient > 0
    for socket in range(sockets):
        core = 0
        for node in range(numa):
            for cache in range(max(l3, 1)):
                extra = efficient if cache == 0 else 0
                for index in range(cores + extra):
                    kind = CoreKind.PERFORMANCE if hybrid else CoreKind.STANDARD
                    if index >= cores:
                        kind = CoreKind.EFFICIENT
                    places.append((socket, node, cache, core, kind, 1 if index >= cores else threads))
                    core += 1
    numbered = _number(places, numbering)
    off = set(offline)
    online = [cpu for cpu, _ in numbered if cpu not in off]
    lowest_of_core: dict[int, int] = {}
    lowest_of_cache: dict[tuple[int, int, int], int] = {}
    for cpu, index in numbered:
        if cpu not in off:
            lowest_of_core.setdefault(index, cpu)
            lowest_of_cache.setdefault(places[index][:3], cpu)
    per_socket = len(places) // sockets
    cpus = []
    for cpu, index in numbered:
        if cpu in off:
            continue
        socket, node, cache, core, kind, _ = places[index]
        cluster = index // clusters if clusters else -1
        core_id = {
            "repeat": core,
            "unique": index,
            "gaps": 7 * core + 1,
            "cluster": core % clusters if clusters else core,
            "die": core % (per_socket // numa),
        }[core_ids]
        in_socket = node * l3 + cache
        lowest = lowest_of_cache[socket, node, cache]
        l3_id = {"unique": socket * numa * l3 + in_socket, "repeat": in_socket, "lowest": lowest}[l3_ids]
        nodes_roots = (f"pci0000:{16 * (socket * numa + node) + root:02x}" for root in range(roots))
        cpus.append(
            Cpu(
                id=cpu,
                core=lowest_of_core[index],
                socket=socket,
                numa=socket * numa + node,
                l3=l3_id if l3 else -1,
                cluster=cluster,
                kind=kind,
                core_id=core_id,
                pcie_roots=tuple(nodes_roots),
                die=node if dies else -1,
                l3_id=l3_id if l3 else -1,
            )
        )
    if l3_ids == "repeat":
        cpus = _keep_first_ids(cpus)
    threads_on = len({cpu.core for cpu in cpus}) < len(cpus)
    there = CpuSet(cpu for cpu, _ in numbered)
    return Topology(tuple(cpus), threads_on if smt is None else smt, there - CpuSet(online))


def switch_off(topology: Topology, off: CpuSet) -> Topology:
    """Return the machine with CPUs switched off (for machines whose L3 caches have IDs)."""
    left = [cpu for cpu in topology.cpus if cpu.id not in off]
    lowest = {core: min(cpus - off, default=-1) for core, cpus in topology.cores.items()}
    cpus = tuple(replace(cpu, core=lowest[cpu.core]) for cpu in left)
    return replace(topology, cpus=cpus, offline=topology.offline | (topology.all & off))


def write_sysfs(
    topology: Topology,
    root: Path,
    *,
    l3_ids: bool = True,
    siblings: str = "core_cpus_list",
    nodes: str = "both",
) -> Path:
    """Write `root/sys` anew as the kernel shows such a machine; `online` comes last. Answers the root.

    `l3_ids`: whether caches have an `id`. `siblings`: the name of the list of threads, empty for none.
    `nodes`: `both`, only `entries` in the directories of CPUs, only the `lists` of the nodes, or `none`.
    """
    system = root / "sys/devices/system"
    (system / "cpu/online").unlink(missing_ok=True)
    shutil.rmtree(root / "sys", ignore_errors=True)
    for cpu in topology.cpus:
        directory = system / f"cpu/cpu{cpu.id}"
        _write(directory / "topology/physical_package_id", cpu.socket)
        _write(directory / "topology/core_id", cpu.core_id)
        _write(directory / "topology/cluster_id", 65535 if cpu.cluster < 0 else cpu.cluster)
        _write(directory / "topology/die_id", cpu.die)
        if siblings:
            _write(directory / "topology" / siblings, topology.cores[cpu.core])
        _write(directory / "cache/index0/level", 1)
        _write(directory / "cache/index0/id", cpu.core)
        if cpu.l3 >= 0:
            _write(directory / "cache/index3/level", 3)
            _write(directory / "cache/index3/shared_cpu_list", topology.l3[cpu.l3])
            if l3_ids:
                _write(directory / "cache/index3/id", cpu.l3_id)
        if nodes in ("both", "entries"):
            (directory / f"node{cpu.numa}").symlink_to(f"../../node/node{cpu.numa}")
    for skipped in topology.skipped:
        (system / f"cpu/cpu{skipped.cpu}").mkdir(parents=True)
    for cpu_off in topology.offline:
        _write(system / f"cpu/cpu{cpu_off}/online", 0)
    if nodes in ("both", "lists"):
        for node, cpus in topology.numa.items():
            _write(system / f"node/node{node}/cpulist", cpus)
    efficient = CpuSet(cpu.id for cpu in topology.cpus if cpu.kind is CoreKind.EFFICIENT)
    if any(cpu.kind is not CoreKind.STANDARD for cpu in topology.cpus):
        _write(root / "sys/devices/cpu_atom/cpus", efficient)
    roots: dict[str, CpuSet] = {}
    for cpu in topology.cpus:
        for name in cpu.pcie_roots:
            roots[name] = roots.get(name, EMPTY) | CpuSet([cpu.id])
    for name, near in roots.items():
        _write(root / f"sys/devices/{name}/pci_bus/{name.removeprefix('pci')}/cpulistaffinity", near)
    online = topology.all | CpuSet(entry.cpu for entry in topology.skipped)
    _write(system / "cpu/smt/control", "on" if topology.smt else "notsupported")
    _write(system / "cpu/present", online | topology.offline)
    _write(system / "cpu/possible", online | topology.offline)
    _write(system / "cpu/online", online)
    return root


@st.composite
def machines(draw: st.DrawFn) -> Topology:
    """Generate machines of every shape, some with CPUs switched off (never all)."""
    clusters = draw(st.sampled_from([0, 0, 2]))
    build = functools.partial(
        make_machine,
        sockets=draw(st.integers(1, 3)),
        numa=draw(st.integers(1, 2)),
        l3=draw(st.integers(0, 2)),
        cores=draw(st.integers(1, 3)),
        threads=draw(st.sampled_from([1, 2, 2, 4])),
        efficient=draw(st.sampled_from([0, 0, 2])),
        roots=draw(st.integers(0, 2)),
        clusters=clusters,
        numbering=draw(st.sampled_from(["spread", "packed"])),
        core_ids=draw(st.sampled_from(["repeat", "unique", "gaps", *(["cluster"] if clusters else [])])),
        l3_ids=draw(st.sampled_from(["unique", "repeat"])),
        dies=draw(st.booleans()),
    )
    whole = build()
    if draw(st.booleans()):
        return whole
    return build(offline=draw(st.sets(st.sampled_from(sorted(whole.all)), max_size=len(whole.all) - 1)))


def _number(places: list[tuple[int, int, int, int, CoreKind, int]], how: str) -> list[tuple[int, int]]:
    """Yield (CPU, position) by CPU."""
    if how == "packed":
        order = [index for index, place in enumerate(places) for _ in range(place[5])]
    else:
        most = max(place[5] for place in places)
        order = [index for turn in range(most) for index, place in enumerate(places) if turn < place[5]]
    return list(enumerate(order))


def _keep_first_ids(cpus: list[Cpu]) -> list[Cpu]:
    """Of caches with the same ID, let the one with the lowest CPU keep it and renumber the others."""
    lowest: dict[tuple[int, int], int] = {}
    for cpu in cpus:
        key = (cpu.l3_id, cpu.socket)
        lowest[key] = min(lowest.get(key, cpu.id), cpu.id)
    kept = []
    for cpu in cpus:
        own = lowest[cpu.l3_id, cpu.socket]
        first = min(low for (l3_id, _), low in lowest.items() if l3_id == cpu.l3_id)
        number = cpu.l3_id if own == first or cpu.l3_id < 0 else OWN_L3_NUMBERS + own
        kept.append(replace(cpu, l3=number))
    return kept


def _write(path: Path, contents: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{contents}\n")
