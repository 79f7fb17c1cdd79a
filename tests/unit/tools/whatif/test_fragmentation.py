"""Fragmentation, compared with naive counting."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.whatif.fragmentation import find_fragments, read_node_fragments
from plimsoll.tools.whatif.totals import free_by_node, sum_totals
from tests.build import DRIVER, charging_device, claim, device_class, exactly, node, pod, resource_slice
from tests.sizes import examples

#: A node: its cpu, what each device charges, how many are taken, what pods request, cordoned?
NODE = st.tuples(
    st.integers(0, 6), st.lists(st.integers(0, 3), max_size=4), st.integers(0, 4), st.integers(0, 6),
    st.booleans(),
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(NODE, max_size=4))
def test_pieces_agree_with_counting(nodes: list[tuple[int, list[int], int, int, bool]]) -> None:
    objects: list[Any] = [device_class()]
    free_cpu: list[int] = []
    free_devices: list[list[int]] = []
    for number, (cpu, charges, taken, requested, closed) in enumerate(nodes):
        name = f"n{number}"
        objects.append(node(name, cpu=str(cpu), unschedulable=closed))
        offered = [charging_device(f"d{place}", cpu=str(charge)) for place, charge in enumerate(charges)]
        if offered:
            objects.append(resource_slice(offered, name))
        used = min(taken, len(charges))
        for place in range(used):
            result = {"request": "r", "driver": DRIVER, "pool": name, "device": f"d{place}"}
            held = claim(f"c{number}-{place}", exactly(), results=[result], node=name)
            objects.append(held)
        objects.append(pod(f"p{number}", cpu=str(requested), node=name))
        free_cpu.append(cpu - requested)
        free_devices.append(charges[used:])
    cluster_state = ClusterState(ClusterObjects(objects))
    rooms = free_by_node(cluster_state.snapshot)
    found = find_fragments(cluster_state.snapshot, read_node_fragments(cluster_state.snapshot, rooms))
    open_nodes = [number for number, each in enumerate(nodes) if not each[4]]
    cpus = [max(0, free_cpu[number]) for number in open_nodes]
    pieces = {piece.resource: piece for piece in found.pieces}
    if open_nodes:
        assert (pieces["cpu"].most, pieces["cpu"].free) == (max(cpus) * 1000, sum(cpus) * 1000)
    counts = [len(free_devices[number]) for number in open_nodes]
    assert found.free_devices.get(DRIVER, 0) == sum(counts)
    assert found.most_devices.get(DRIVER, 0) == max(counts, default=0)
    bare = [n for n in open_nodes if nodes[n][1] and not free_devices[n] and free_cpu[n] > 0]
    assert found.nodes_without_devices == len(bare)
    assert found.without_devices.get("cpu", 0) == 1000 * sum(free_cpu[n] for n in bare)
    full = [n for n in open_nodes if free_cpu[n] <= 0 and free_devices[n]]
    assert found.without_room.get(DRIVER, 0) == sum(len(free_devices[n]) for n in full)
    # The largest claim: the most devices whose charges go together below what is left.
    most = max((_affordable(free_devices[n], free_cpu[n]) for n in open_nodes), default=0)
    assert found.classes[0].most == most
    totals = sum_totals(cluster_state, rooms)
    assert totals.free.get("cpu", 0) == 1000 * sum(free_cpu[n] for n in open_nodes)


def _affordable(charges: list[int], cpu: int) -> int:
    """Return the number of devices that fit; devices without charge always fit."""
    count = left = 0
    left = cpu
    for charge in sorted(charges):
        if charge and charge > left:
            break
        left -= charge
        count += 1
    return count
