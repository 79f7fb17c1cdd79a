"""Simulated removal of pods: the snapshot is restored exactly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import LedgerError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.placeholders import is_placeholder
from plimsoll.scheduler.devices import NodeFit, try_node
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.candidates import LowestPriorities
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import DRIVER, claim, device, device_class, exactly, node, pod, resource_slice
from tests.sizes import examples
from tests.unit.scheduler.index_states import MEMORIES, comparable
from tests.unit.scheduler.preemption.clusters import (
    CLUSTERS,
    WISHES,
    Cluster,
    Preemptor,
    attempt,
    ids,
    pod_info_of,
    snapshot_of,
)
from tests.unit.scheduler.snapshots import pod_info_of as pod_info_of_pod
from tests.unit.scheduler.snapshots import snapshot_of as snapshot_of_objects


def state_of(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "ledgers": [id(each) for each in snapshot.ledgers],
        "amounts": [
            None if each is None else (list(each.entries.items()), dict(each.requested), dict(each.claims))
            for each in snapshot.ledgers
        ],
        "free": {name: comparable(snapshot.columns.free(name)) for name in ("cpu", "memory", "pods")},
        "devices": snapshot.state.copy(),
        "held": {
            each.metadata.uid: snapshot.allocations.of(each.metadata.uid)
            for each in snapshot.all(ResourceClaim)
        },
        "pending": snapshot.allocations.without_claims(()),
        "stamp": (snapshot.generations.last, comparable(snapshot.generations.rows)),
        "indexes": {
            kind.__name__: comparable(vars(index), frozenset({"_sums"}))
            for kind, index in snapshot.indexes.items()
            if kind.__name__ not in MEMORIES
        },
        "pods": {key: snapshot.find_pod(key) for key in snapshot.pod_keys()},
    }


@given(CLUSTERS, st.lists(WISHES, min_size=1, max_size=3), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_the_snapshot_is_restored(cluster: Cluster, preemptors: list[Preemptor], data: st.DataObject) -> None:
    snapshot = snapshot_of(cluster)
    snapshot.set_placeholders(data.draw(st.booleans(), "placeholders"))
    snapshot.index(LowestPriorities)
    pod_infos = [
        pod_info_of(preemptor, snapshot, f"new{number}") for number, preemptor in enumerate(preemptors)
    ]
    placed = attempt(pod_infos[0], snapshot)  # rules that keep something keep it from now on
    if isinstance(placed, Placement):
        snapshot.assume(placed)
    others = pod_infos[1:]
    for pod_info in others:
        for kind in FILTERS:
            kind.pre_filter(pod_info, snapshot)
    before = state_of(snapshot)
    assert not verify(snapshot)
    row = data.draw(st.sampled_from(list(snapshot.rows())), "place")
    with NodeSimulation(snapshot, row) as simulation:
        added: list[PodInfo] = []
        for _ in range(data.draw(st.integers(0, 6), "steps")):
            mine = [pod_info.pod for pod_info in added]
            here = [each for each in snapshot.pods_at(row) if each not in mine and not is_placeholder(each)]
            step = data.draw(st.sampled_from(["lift", "put back", "add", "take out"]))
            if step == "lift" and here:
                simulation.remove_pods(data.draw(st.lists(st.sampled_from(here), unique_by=pod_key)))
            elif step == "put back" and simulation.removed_pods:
                simulation.restore_pods([data.draw(st.sampled_from(simulation.removed_pods))])
            elif step == "add" and len(added) < len(others):
                pod_info = others[len(added)]
                fit = try_node(pod_info, row, snapshot, ids())
                simulation.add_pod(pod_info, fit if isinstance(fit, NodeFit) else None)
                added.append(pod_info)
            elif step == "take out" and added:
                simulation.remove_added(added.pop())
            assert not snapshot.ledger(row).verify()
            free = snapshot.columns.free("cpu")[row]
            assert free == snapshot.ledger(row).headroom()["cpu"]
            if snapshot.profile.placeholders:
                continue  # those of removed pods stay in the index
            lowest = min((each.spec.priority or 0 for each in snapshot.pods_at(row)), default=None)
            known = snapshot.index(LowestPriorities).lowest[row]
            assert known == lowest if lowest is not None else known == 2**63 - 1
    assert state_of(snapshot) == before
    assert not verify(snapshot)


class PodNameIndex(SnapshotIndex):
    """Pods by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pod_added(self, row: int, pod: Pod) -> None:
        self.names.append(pod.metadata.name)

    def pod_removed(self, row: int, pod: Pod) -> None:
        self.names.remove(pod.metadata.name)


def test_an_index_built_during_the_simulation_stays_correct() -> None:
    snapshot = snapshot_of_objects(node("a"), pod("p", node="a"), pod("q", node="a"))
    new = pod_info_of_pod(pod("new"), snapshot)
    with NodeSimulation(snapshot, 0) as simulation:
        simulation.remove_pods([snapshot.pods_at(0)[0]])
        simulation.add_pod(new)
        assert sorted(snapshot.index(PodNameIndex).names) == ["new", "q"]
    assert sorted(snapshot.index(PodNameIndex).names) == ["p", "q"]


def test_an_error_restores_the_snapshot() -> None:
    snapshot = snapshot_of_objects(node("a"), pod("p", cpu="2", node="a"))
    before = state_of(snapshot)
    with pytest.raises(LedgerError, match="not in the ledger"), NodeSimulation(snapshot, 0) as simulation:
        simulation.remove_pods([*snapshot.pods_at(0), pod("q", node="a")])
    assert state_of(snapshot) == before


def held(snapshot: Snapshot) -> set[str]:
    return {each.device for each, _ in snapshot.state}


def shared_claim(*reserved: str) -> Snapshot:
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": "d1"}]
    return snapshot_of_objects(
        device_class(),
        node("a"),
        resource_slice([device("d1"), device("d2")], "a"),
        claim("c", exactly("r"), results=results, node="a", reserved=reserved),
        pod("one", node="a", claims=["c"]),
        pod("two", node="a", claims=["c"]),
    )


def test_devices_are_freed_with_the_last_consumer() -> None:
    snapshot = shared_claim("one", "two")
    one, two = snapshot.pods_at(0)
    with NodeSimulation(snapshot, 0) as simulation:
        simulation.remove_pods([one])
        assert held(snapshot) == {"d1"}
        simulation.remove_pods([two])
        assert held(snapshot) == set()
        simulation.restore_pods([one])
        assert held(snapshot) == {"d1"}
    assert held(snapshot) == {"d1"}


def test_an_unrecorded_consumer_keeps_the_devices() -> None:
    snapshot = shared_claim("one", "two", "elsewhere")
    with NodeSimulation(snapshot, 0) as simulation:
        simulation.remove_pods(snapshot.pods_at(0))
        assert held(snapshot) == {"d1"}


def test_a_consumer_that_is_not_reserved_yet_keeps_the_devices() -> None:
    snapshot = shared_claim("one")
    with NodeSimulation(snapshot, 0) as simulation:
        simulation.remove_pods([snapshot.pods_at(0)[0]])
        assert held(snapshot) == {"d1"}


def test_claims_that_are_about_to_be_used_keep_their_devices() -> None:
    snapshot = shared_claim("one", "two")
    with NodeSimulation(snapshot, 0, kept=["uid-c"]) as simulation:
        simulation.remove_pods(snapshot.pods_at(0))
        assert held(snapshot) == {"d1"}


def test_devices_of_an_assumed_pod_are_freed_and_promised_again() -> None:
    snapshot = snapshot_of_objects(
        device_class(), node("a"), resource_slice([device("d1")], "a"), claim("c", exactly("r"))
    )
    placed = attempt(pod_info_of_pod(pod("p", claims=["c"]), snapshot), snapshot)
    assert isinstance(placed, Placement)
    snapshot.assume(placed)
    with NodeSimulation(snapshot, 0) as simulation:
        simulation.remove_pods(snapshot.pods_at(0))
        assert held(snapshot) == set()
    assert held(snapshot) == {"d1"}
    assert not verify(snapshot)
