"""The fewest moves, compared with trying all sets of pods and all of their placements by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.defrag import DefragLimits, DefragResult, DefragTarget, MoveOrder, find_moves
from tests.build import DRIVER, claim, device, device_class, exactly, node, pod, resource_slice
from tests.sizes import examples

HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True)
class Load:
    """Pod by its needs; `home` is its node, `pinned` that it can run there only."""

    cpu: int
    devices: int
    home: int = -1
    pinned: bool = False
    movable: bool = True


@dataclass(frozen=True)
class SmallCluster:
    """Nodes by CPUs and devices, their pods, and the pod that must fit."""

    nodes: tuple[tuple[int, int], ...]
    pods: tuple[Load, ...]
    wanted: Load


@st.composite
def small_clusters(draw: st.DrawFn) -> SmallCluster:
    """Draw nodes that are nearly full, and a pod that is larger than what most of them have left."""
    random = Random(draw(st.integers(0, 2**32)))
    nodes = [(random.randint(3, 9), random.randint(0, 4)) for _ in range(random.randint(2, 4))]
    left, pods = list(nodes), list[Load]()
    for _ in range(random.randint(4, 12)):
        home, cpu, devices = random.randrange(len(nodes)), random.randint(1, 3), random.randint(0, 2)
        if cpu <= left[home][0] and devices <= left[home][1] and len(pods) < 7:
            left[home] = left[home][0] - cpu, left[home][1] - devices
            pods.append(Load(cpu, devices, home, random.random() < 0.1, random.random() < 0.85))
    most = max(cpu for cpu, _ in left)
    return SmallCluster(tuple(nodes), tuple(pods), Load(random.randint(most, most + 3), random.randint(0, 3)))


def can_place(free: Sequence[tuple[int, int]], pods: Sequence[Load]) -> bool:
    """Return whether all pods fit on nodes with these free amounts, in any arrangement."""
    if not pods:
        return True
    pod, *rest = pods
    for number, (cpu, devices) in enumerate(free):
        if pod.cpu <= cpu and pod.devices <= devices and not (pod.pinned and pod.home != number):
            taken = [*free]
            taken[number] = cpu - pod.cpu, devices - pod.devices
            if can_place(taken, rest):
                return True
    return False


def fewest_moves(cluster: SmallCluster) -> int | None:
    movable = [load for load in cluster.pods if load.movable]
    for size in range(len(movable) + 1):
        for moved in combinations(range(len(movable)), size):
            chosen = [movable[number] for number in moved]
            free = [*cluster.nodes]
            for load in cluster.pods:
                if all(load is not each for each in chosen):
                    free[load.home] = free[load.home][0] - load.cpu, free[load.home][1] - load.devices
            if can_place(free, [*chosen, cluster.wanted]):
                return size
    return None


def build(cluster: SmallCluster) -> ClusterState:
    things: list[Any] = [device_class()]
    for number, (cpu, devices) in enumerate(cluster.nodes):
        name = f"n{number}"
        things.append(node(name, cpu=str(cpu), labels={HOSTNAME: name}))
        things += [resource_slice([device(f"d{each}") for each in range(devices)], name)] * bool(devices)
    used = [0] * len(cluster.nodes)
    for number, load in enumerate(cluster.pods):
        name, home, fields = f"p{number}", f"n{load.home}", dict[str, Any]()
        if load.devices:
            first = used[load.home]
            used[load.home] += load.devices
            results = [
                {"request": "r", "driver": DRIVER, "pool": home, "device": f"d{each}"}
                for each in range(first, first + load.devices)
            ]
            request = exactly(count=load.devices)
            things.append(claim(f"c-{name}", request, results=results, node=home, reserved=[name]))
            fields["claims"] = [f"c-{name}"]
        if load.pinned:
            fields["nodeSelector"] = {HOSTNAME: home}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs"}
        owners = [{**owner, "controller": True}] if load.movable else []
        things.append(pod(name, cpu=str(load.cpu), node=home, metadata={"ownerReferences": owners}, **fields))
    claims = ["wanted"] if cluster.wanted.devices else []
    things += [claim(each, exactly(count=cluster.wanted.devices)) for each in claims]
    things.append(pod("big", cpu=str(cluster.wanted.cpu), claims=claims))
    return ClusterState(ClusterObjects(things))


def check_result(cluster: SmallCluster, found: DefragResult) -> None:
    """Check that the pods fit where the result has them."""
    homes = {f"p{number}": load.home for number, load in enumerate(cluster.pods)}
    loads = {f"p{number}": load for number, load in enumerate(cluster.pods)} | {"big": cluster.wanted}
    homes |= {move.pod[1]: int(move.node[1:]) for move in found.moves}
    homes |= {name[1]: int(where[1:]) for name, where, _ in found.placements}
    for number, (cpu, devices) in enumerate(cluster.nodes):
        here = [loads[name] for name, home in homes.items() if home == number]
        assert sum(load.cpu for load in here) <= cpu
        assert sum(load.devices for load in here) <= devices
    assert all(loads[move.pod[1]].movable for move in found.moves)
    assert all(not load.pinned or homes[name] == load.home for name, load in loads.items())


@settings(max_examples=examples(80), deadline=None)
@given(small_clusters())
def test_the_fewest_moves_of_all_sets_and_placements(cluster: SmallCluster) -> None:
    found = find_moves(build(cluster), DefragTarget(pod="big"), DefragLimits(moves=len(cluster.pods)))
    assert found.exact
    assert (len(found.moves) if found.fits else None) == fewest_moves(cluster)
    if found.fits:
        check_result(cluster, found)


def test_a_placement_that_the_scheduler_does_not_choose_by_itself() -> None:
    """The pods of 2 and 3 CPUs on n0 and n1 change places, in one arrangement only."""
    pods = (Load(2, 0, 0), Load(3, 0, 1), Load(3, 0, 0))
    cluster = SmallCluster(((6, 0), (4, 1)), pods, Load(2, 0))
    found = find_moves(build(cluster), DefragTarget(pod="big"))
    assert (len(found.moves), found.order) == (2, MoveOrder.DIRECTED)
    check_result(cluster, found)
