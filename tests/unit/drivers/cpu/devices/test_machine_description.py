"""Machine description in a slice."""

from __future__ import annotations

import pytest
from hypothesis import given

from plimsoll.api.cpu_map import ANNOTATION, parse_cpu_map
from plimsoll.api.cpuset import CpuSet
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.drivers.cpu.devices import compute_layout, make_annotations
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin import DevicePool
from plimsoll.drivers.plugin.slices import DesiredSlice, parse_slice, plan_slices
from tests.unit.drivers.cpu.machines import machines, make_machine
from tests.unit.drivers.plugin.fixtures import cluster_fixture, devices, publisher, running
from tests.waiting import until

SETTINGS = CpuSettings("n")


@given(machines())
def test_every_cpu_has_a_topology_position(topology: Topology) -> None:
    machine = parse_cpu_map(make_annotations(topology, compute_layout(topology, SETTINGS))[ANNOTATION])
    assert machine is not None
    assert machine.locations.keys() == set(topology.all)
    assert machine.offline == topology.offline
    for one in topology.cpus:
        place = machine.locations[one.id]
        assert (place.socket, place.numa) == (one.socket, one.numa)
        for other in topology.cpus:
            there = machine.locations[other.id]
            if (one.socket, one.numa) == (other.socket, other.numa):
                assert (place.l3 == there.l3) == (one.l3 == other.l3)
            assert (place.core == there.core) == (one.core == other.core)


@pytest.mark.parametrize(
    ("sockets", "numa", "l3", "cores", "threads"),
    [(1, 1, 1, 8, 1), (1, 1, 2, 4, 2), (2, 2, 2, 8, 2), (2, 4, 4, 8, 2), (4, 4, 2, 4, 4)],
)
def test_machines_of_all_sizes(sockets: int, numa: int, l3: int, cores: int, threads: int) -> None:
    topology = make_machine(sockets, numa, l3, cores, threads)
    text = make_annotations(topology, compute_layout(topology, SETTINGS))[ANNOTATION]
    assert len(text) < 8192
    machine = parse_cpu_map(text)
    assert machine is not None
    assert len(machine.locations) == sockets * numa * l3 * cores * threads
    assert len({(p.socket, p.numa, p.l3) for p in machine.locations.values()}) == sockets * numa * l3


def test_reserved_and_shared_cpus_are_reported() -> None:
    topology = make_machine(cores=8, offline=[7])
    settings = CpuSettings("n", reserved=CpuSet([0]), min_shared=2)
    layout = compute_layout(topology, settings)
    machine = parse_cpu_map(make_annotations(topology, layout)[ANNOTATION])
    assert machine is not None
    assert machine.reserved == CpuSet([0]) == layout.reserved
    assert machine.shared == layout.always_shared
    assert len(machine.shared)
    assert machine.offline == CpuSet([7])


async def test_one_slice_describes_the_machine() -> None:
    """It is restored when it is removed, and attributes of others are kept."""
    async with cluster_fixture() as cluster, running(publisher(cluster)) as slices_publisher:
        slices_publisher.set_pools([DevicePool("a", devices(200), annotations={ANNOTATION: "one"})])
        await until(lambda: slices_publisher.published)
        first, second = await cluster.slices()
        assert first["metadata"]["annotations"] == {ANNOTATION: "one"}
        assert "annotations" not in second["metadata"]

        first["metadata"]["annotations"] = {"theirs": "x"}
        await cluster.admin.update(RESOURCE_SLICES, first)
        await until(lambda: slices_publisher.counters.updated >= 1)
        first, second = await cluster.slices()
        assert first["metadata"]["annotations"] == {"theirs": "x", ANNOTATION: "one"}
        # The devices are the same: the pool generation stays.
        assert first["spec"]["pool"]["generation"] == second["spec"]["pool"]["generation"] == 1

        slices_publisher.set_pools([DevicePool("a", devices(200), annotations={ANNOTATION: "two"})])
        await until(lambda: slices_publisher.published)
        first, _ = await cluster.slices()
        assert first["metadata"]["annotations"][ANNOTATION] == "two"


def test_dropped_annotations_are_not_written_again() -> None:
    """A webhook may remove them: the slice is not written again until something else changes."""
    desired = DesiredSlice(0, {"devices": []}, {ANNOTATION: "one"})
    tree = {
        "metadata": {"name": "00000-d-n-x", "uid": "u", "resourceVersion": "3"},
        "spec": {
            "driver": "d",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    }
    there = parse_slice(tree)
    assert [slice_.name for slice_, _ in plan_slices([desired], [there]).update] == ["00000-d-n-x"]
    assert not plan_slices([desired], [there], dropped_annotations={0: {ANNOTATION: "one"}})
    assert plan_slices([desired], [there], dropped_annotations={0: {ANNOTATION: "other"}})
