"""CPU maps from published devices, with the claims of each CPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.cpu_map import ANNOTATION
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.drivers.cpu.devices import CpuLayout, compute_layout, make_annotations, make_devices
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.dashboard.topology import cpus_of_claim, read_topology
from tests.unit.drivers.cpu.machines import machines, make_machine

GROUPED = CpuSettings("n")
INDIVIDUAL = CpuSettings("n", mode=DeviceMode.INDIVIDUAL)
Tree = dict[str, Any]


def slices_of(
    topology: Topology, settings: CpuSettings, *, annotated: bool = True, generation: int = 1
) -> list[ResourceSlice]:
    layout = compute_layout(topology, settings)
    devices = make_devices(topology, layout, settings, None)
    parts = [devices[start : start + 128] for start in range(0, len(devices), 128)] or [[]]
    made = []
    for index, part in enumerate(parts):
        tree: Tree = {
            "metadata": {"name": f"s{generation}-{index}"},
            "spec": {
                "driver": "dra.cpu",
                "nodeName": "n",
                "pool": {"name": "n", "generation": generation, "resourceSliceCount": len(parts)},
                "devices": part,
            },
        }
        if annotated and index == 0:
            tree["metadata"]["annotations"] = make_annotations(topology, layout)
        made.append(codec.convert(tree, ResourceSlice))
    return made


def claim(name: str, *devices: str, cpuset: str | None = None, pool: str = "n") -> ResourceClaim:
    results = [{"driver": "dra.cpu", "pool": pool, "device": device, "request": "r"} for device in devices]
    status: Tree = {"allocation": {"devices": {"results": results}}}
    if cpuset is not None:
        head = {"driver": "dra.cpu", "pool": pool, "device": devices[0]}
        status["devices"] = [{**head, "data": {"cpuset": cpuset}}]
    return codec.convert({"metadata": {"name": name, "namespace": "w"}, "status": status}, ResourceClaim)


def draw(slices: list[ResourceSlice], *claims: ResourceClaim) -> Tree:
    found = read_topology(ClusterState(ClusterObjects([*slices, *claims])), "n", claims)
    assert found is not None
    return found


def cpus_in(drawn: Tree) -> dict[int, tuple[int, int, int, int, Tree]]:
    """Return (socket, NUMA node, cache, core, as drawn) of each CPU in a map."""
    return {
        cpu["id"]: (socket["id"], numa["id"], cache["id"], core["id"], cpu)
        for socket in drawn["sockets"]
        for numa in socket["numa"]
        for cache in numa["l3"]
        for core in cache["cores"]
        for cpu in core["cpus"]
    }


@given(machines(), st.booleans())
def test_every_cpu_has_its_place_in_the_map(topology: Topology, annotated: bool) -> None:
    """From the annotation, and from devices of one CPU each: the same machine."""
    settings = GROUPED if annotated else INDIVIDUAL
    drawn = draw(slices_of(topology, settings, annotated=annotated))
    assert drawn["source"] == ("driver annotation" if annotated else "slices")
    found = cpus_in(drawn)
    assert found.keys() == set(topology.all)
    for cpu in topology.cpus:
        socket, numa, _, core, shown = found[cpu.id]
        assert (socket, numa, shown["state"]) == (cpu.socket, cpu.numa, "shared")
        assert core <= cpu.id
    if annotated:
        assert {
            frozenset(c for c in found if found[c][3] == core) for core in {f[3] for f in found.values()}
        } == {frozenset(cpus) for cpus in topology.cores.values()}
        assert {cpu["id"] for cpu in drawn["offline"]} == set(topology.offline)


@pytest.mark.parametrize(
    ("sockets", "numa", "l3", "cores", "threads"),
    [(1, 1, 1, 8, 1), (1, 2, 2, 4, 2), (2, 2, 4, 8, 2), (2, 4, 4, 8, 2), (4, 4, 2, 4, 4)],
)
@pytest.mark.parametrize("settings", [GROUPED, INDIVIDUAL], ids=["grouped", "individual"])
def test_machines_from_8_to_512_cpus(
    sockets: int, numa: int, l3: int, cores: int, threads: int, settings: CpuSettings
) -> None:
    topology = make_machine(sockets, numa, l3, cores, threads)
    drawn = draw(slices_of(topology, settings, annotated=settings is GROUPED))
    assert len(drawn["sockets"]) == sockets
    assert {len(socket["numa"]) for socket in drawn["sockets"]} == {numa}
    assert {len(node["l3"]) for socket in drawn["sockets"] for node in socket["numa"]} == {l3}
    assert len(cpus_in(drawn)) == sockets * numa * l3 * cores * threads


def test_cpus_have_the_claim_that_holds_them() -> None:
    topology = make_machine(cores=8, offline=[7])
    settings = CpuSettings("n", reserved=CpuSet([0]), min_shared=1)
    layout: CpuLayout = compute_layout(topology, settings)
    drawn = draw(
        slices_of(topology, settings),
        claim("a", "cpudevnuma000", cpuset="2-3"),
        claim("b", "cpudevnuma000", cpuset="4,7"),
        claim("elsewhere", "cpudevnuma000", cpuset="5", pool="other"),
        claim("silent", "cpudevnuma000"),
    )
    found = {cpu: shown for cpu, (*_, shown) in cpus_in(drawn).items()}
    assert found[0] == {"id": 0, "state": "reserved", "claim": None, "claimable": False}
    (floor,) = layout.always_shared
    assert found[floor] == {"id": floor, "state": "shared", "claim": None, "claimable": False}
    assert found[2] == {"id": 2, "state": "claimed", "claim": "w/a"}
    assert found[4]["claim"] == "w/b"
    assert found[5] == {"id": 5, "state": "shared", "claim": None}
    assert drawn["offline"] == [{"id": 7, "state": "offline", "claim": "w/b"}]


def test_devices_of_one_cpu_show_the_holder() -> None:
    """Also those of a driver that writes no status."""
    topology = make_machine(cores=4)
    slices = slices_of(topology, INDIVIDUAL, annotated=False)
    drawn = draw(slices, claim("a", "cpudev001", "cpudev003"))
    held = {cpu for cpu, (*_, shown) in cpus_in(drawn).items() if shown["claim"] == "w/a"}
    assert held == {1, 3}


def test_kinds_of_cores_are_reported() -> None:
    topology = make_machine(cores=2, threads=2, efficient=2)
    for settings, annotated in ((GROUPED, True), (INDIVIDUAL, False)):
        found = cpus_in(draw(slices_of(topology, settings, annotated=annotated)))
        for cpu in topology.cpus:
            assert found[cpu.id][4]["kind"] == cpu.kind.value


def test_only_the_newest_generation_counts() -> None:
    old = slices_of(make_machine(cores=8), GROUPED)
    new = slices_of(make_machine(cores=4), GROUPED, generation=2)
    assert len(cpus_in(draw([*old, *new]))) == 4


def test_unpublished_devices_are_not_drawn() -> None:
    assert read_topology(ClusterState(ClusterObjects()), "n", ()) is None
    groups = slices_of(make_machine(cores=8), GROUPED, annotated=False)
    assert read_topology(ClusterState(ClusterObjects(groups)), "n", ()) is None
    assert (
        read_topology(ClusterState(ClusterObjects(slices_of(make_machine(), GROUPED))), "other", ()) is None
    )


@pytest.mark.parametrize("text", ["", "{}", "null", '{"groups":[{"cores":["0-99999999"]}]}'])
def test_an_invalid_annotation_is_skipped(text: str) -> None:
    tree = codec.to_tree(slices_of(make_machine(cores=4), INDIVIDUAL)[0])
    tree["metadata"]["annotations"] = {ANNOTATION: text}
    drawn = draw([codec.convert(tree, ResourceSlice)])
    assert drawn["source"] == "slices"
    assert len(cpus_in(drawn)) == 4


@pytest.mark.parametrize(
    "data", [None, 3, "0-3", [], {}, {"cpuset": 3}, {"cpuset": "x"}, {"cpuset": "0-99999"}]
)
def test_an_invalid_status_is_skipped(data: Any) -> None:
    tree = {"status": {"devices": [{"driver": "d", "pool": "n", "device": "x", "data": data}]}}
    assert cpus_of_claim(codec.convert(tree, ResourceClaim)) == CpuSet()
