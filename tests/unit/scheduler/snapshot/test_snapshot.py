"""Snapshot: the same objects make the same snapshot, whatever their order and history."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api.codec import convert
from plimsoll.api.core import Namespace, Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.process.informers import WATCHED_KINDS
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import (
    CLASS,
    DRIVER,
    charging_device,
    claim,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
)
from tests.sizes import examples
from tests.unit.scheduler.snapshots import snapshot_of


def result(device: str, pool: str) -> dict[str, Any]:
    return {"request": "r", "driver": DRIVER, "pool": pool, "device": device}


def charges(claim: str, cpu: str) -> dict[str, Any]:
    """Return the status of a pod with a recorded charge."""
    entry = {"resourceClaimName": claim, "containers": ["main"], "resources": {"cpu": cpu}}
    return {"nodeAllocatableResourceClaimStatuses": [entry]}


def gpus(name: str, number: int = 2, cpu: str = "1") -> Any:
    """Return a slice of devices on a node that charge CPUs."""
    return resource_slice([charging_device(f"gpu{n}", cpu=cpu) for n in range(number)], name)


def cluster_state(snapshot: Snapshot) -> dict[str, Any]:
    """Return everything in a snapshot that does not depend on the order of events, nodes by name."""
    assert verify(snapshot) == []
    nodes = {}
    for row in snapshot.rows():
        ledger, name = snapshot.ledger(row), snapshot.node(row).metadata.name
        assert snapshot.row_of(name) == row
        assert snapshot.alive[row]
        nodes[name] = {
            "node": snapshot.node(row),
            "requested": {key: amount for key, amount in ledger.requested.items() if amount},
            "entries": {
                key: (entry.pod, entry.assumed, {b.claim: b.charge.resources for b in entry.charged_claims})
                for key, entry in ledger.entries.items()
            },
            "free": {key: int(snapshot.columns.free(key)[row]) for key in ledger.allocatable},
            "line": {key: int(snapshot.columns.allocatable(key)[row]) for key in ledger.allocatable},
        }
    assert int(snapshot.alive.sum()) == len(snapshot) == len(nodes)
    found = {key: snapshot.find_pod(key) for key in snapshot.pod_keys()}
    pods = {key: each[1] for key, each in found.items() if each is not None}
    claims = {
        (each.metadata.namespace, name)
        for each in pods.values()
        for name in resolve_claim_names(each).values()
    } | {each.metadata.key for each in snapshot.all(ResourceClaim)}
    allocations = snapshot.allocations
    return {
        "nodes": nodes,
        "pods": pods,
        "held": {
            each.metadata.key: allocations.of(each.metadata.uid) for each in snapshot.all(ResourceClaim)
        },
        "devices": dict(snapshot.state),
        "pending": {
            uid: (allocations.assumed_by(uid), each) for uid, each in allocations.without_claims(()).items()
        },
        "users": {name: set(snapshot.claim_users(*name)) for name in claims},
        "objects": {kind.view: list_objects(snapshot, kind.view) for kind in WATCHED_KINDS},
        "assumed": set(snapshot.assumed),
    }


def list_objects(snapshot: Snapshot, kind: type[Any]) -> dict[tuple[str, str], Any]:
    return {each.metadata.key: each for each in snapshot.all(kind)}


def states_with_unknown_nodes(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the state of a snapshot, and again with all nodes that pods of `objects` may be bound to."""
    before = cluster_state(snapshot)
    for name in ("unknown", "n0", "n1", "n2"):
        if snapshot.row_of(name) is None:
            snapshot.set(node(name))
    return [before, cluster_state(snapshot)]


def cpu(snapshot: Snapshot, name: str = "n0") -> int:
    """Return the CPU charged to a node, in millicores."""
    row = snapshot.row_of(name)
    assert row is not None
    return snapshot.ledger(row).requested.get("cpu", 0)


def placed(snapshot: Snapshot, new: Pod) -> Placement:
    """Return the placement of a pod, not assumed yet."""
    pod_info = read_pod_info(new, snapshot)
    assert isinstance(pod_info, PodInfo)
    numbers = itertools.count()
    found = schedule_one(pod_info, snapshot, SchedulerProfile.default(), lambda: f"share-{next(numbers)}")
    assert isinstance(found, Placement), found
    return found


def written(claim: ResourceClaim, placement: Placement, version: str = "9") -> ResourceClaim:
    """Return a claim with its assumed allocation written, which has a timestamp then."""
    allocation = placement.allocations[claim.metadata.name]
    status = replace(
        claim.status, allocation=replace(allocation, allocation_timestamp="2026-01-01T00:00:00Z")
    )
    return replace(claim, status=status, metadata=replace(claim.metadata, resource_version=version))


def bound(pod: Pod, name: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=name))


# -- objects in any order


def objects(random: Random) -> list[Any]:
    """Small cluster: charging devices, claims, pods with and without recorded charges, finished pods, unknown
    nodes.
    """
    names = [f"n{number}" for number in range(random.randint(1, 3))]
    found: list[Any] = [device_class(CLASS), *(node(name) for name in names)]
    found += [gpus(name, 3, random.choice(["1", "2"])) for name in names]
    free = {name: [f"gpu{n}" for n in range(3)] for name in names}
    for number in range(random.randint(0, 6)):
        home = random.choice([*names, "unknown"])
        uses: list[str] = []
        for each in range(random.randint(0, 2)):
            name = f"c{number}-{each}"
            results = [result(free[home].pop(), home)] if free.get(home) and random.random() < 0.8 else []
            uses.append(name)
            if random.random() < 0.9:
                found.append(claim(name, exactly("r"), results=results, node=home if results else ""))
        status: dict[str, Any] = charges(uses[0], "3") if uses and random.random() < 0.3 else {}
        if random.random() < 0.15:
            status["phase"] = random.choice(["Succeeded", "Failed", "Running"])
        where = home if random.random() < 0.8 else ""
        found.append(pod(f"p{number}", cpu="500m", node=where, claims=uses, status=status))
    found.append(convert({"metadata": {"name": "default"}}, Namespace))
    return found


@settings(max_examples=examples(150))
@given(st.integers(0, 2**64 - 1).map(Random))
def test_objects_in_any_order(random: Random) -> None:
    given_objects = objects(random)
    expected = states_with_unknown_nodes(snapshot_of(*given_objects))
    shuffled = random.sample(given_objects, len(given_objects))
    assert states_with_unknown_nodes(snapshot_of(*shuffled)) == expected


@settings(max_examples=examples(150))
@given(st.integers(0, 2**64 - 1).map(Random))
def test_removed_objects_leave_no_state(random: Random) -> None:
    """Set the objects of a larger cluster in any order, and remove the surplus in any order."""
    given_objects = objects(random)
    stay = [each for each in given_objects if random.random() < 0.6]
    snapshot = snapshot_of(*random.sample(given_objects, len(given_objects)))
    gone = [each for each in given_objects if each not in stay]
    for each in random.sample(gone, len(gone)):
        snapshot.remove(each)
    assert states_with_unknown_nodes(snapshot) == states_with_unknown_nodes(snapshot_of(*stay))


@settings(max_examples=examples(100))
@given(st.integers(0, 2**64 - 1).map(Random))
def test_setting_an_object_again_changes_nothing(random: Random) -> None:
    given_objects = objects(random)
    snapshot = snapshot_of(*given_objects)
    expected = cluster_state(snapshot)
    for each in random.choices(given_objects, k=10):
        snapshot.set(each)
        assert cluster_state(snapshot) == expected


# -- pods


def test_a_pod_bound_without_charges_is_priced() -> None:
    """Its status has no charges; its claim has a device that charges two CPUs."""
    held = claim("c", exactly("r"), results=[result("gpu0", "n0")])
    around = [device_class(CLASS), node("n0"), gpus("n0", cpu="2"), held]
    silent = pod("p", cpu="1", node="n0", claims=["c"])
    assert cpu(snapshot_of(*around, silent)) == 3000
    assert (
        cpu(snapshot_of(*around, pod("p", cpu="1", node="n0", claims=["c"], status=charges("c", "5"))))
        == 6000
    )
    off = Gates.of({"DRANodeAllocatableResources": False})
    assert cpu(snapshot_of(*around, silent, gates=off)) == 1000
    assert cpu(snapshot_of(*around, silent, profile=AccountingProfile.upstream_1_36())) == 1000


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_charges_follow_late_objects(order: tuple[int, ...]) -> None:
    """Charges are recomputed as claims and slices become known, in any order."""
    given_objects = [
        pod("p", cpu="1", node="n0", claims=["c", "d"]),
        claim("c", exactly("r"), results=[result("gpu0", "n0")]),
        claim("d", exactly("r"), results=[result("gpu1", "n0")]),
        gpus("n0", cpu="2"),
    ]
    snapshot = snapshot_of(device_class(CLASS), node("n0"), *(given_objects[number] for number in order))
    assert cpu(snapshot) == 5000
    assert verify(snapshot) == []


def test_charges_follow_changed_objects() -> None:
    held = claim("c", exactly("r"), results=[result("gpu0", "n0")])
    snapshot = snapshot_of(device_class(CLASS), node("n0"), gpus("n0", cpu="2"), held)
    snapshot.set(pod("p", cpu="1", node="n0", claims=["c"]))
    snapshot.set(gpus("n0", cpu="3"))
    assert cpu(snapshot) == 4000
    before = snapshot.generations.last
    snapshot.set(gpus("n0", cpu="1"))
    assert cpu(snapshot) == 2000
    assert snapshot.generations.rows[0] > before
    snapshot.remove(held)
    assert cpu(snapshot) == 1000


def test_recorded_charges_do_not_change() -> None:
    held = claim("c", exactly("r"), results=[result("gpu0", "n0")])
    snapshot = snapshot_of(device_class(CLASS), node("n0"), gpus("n0", cpu="2"), held)
    snapshot.set(pod("p", cpu="1", node="n0", claims=["c"], status=charges("c", "2")))
    snapshot.set(gpus("n0", cpu="7"))
    assert cpu(snapshot) == 3000


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_is_removed_from_the_ledger(phase: str) -> None:
    snapshot = snapshot_of(node("n0"), pod("p", cpu="1", node="n0"))
    assert cpu(snapshot) == 1000
    snapshot.set(pod("p", cpu="1", node="n0", status={"phase": phase}))
    assert cpu(snapshot) == 0
    assert not snapshot.pod_keys()
    assert cluster_state(snapshot) == cluster_state(snapshot_of(node("n0")))


def test_a_finished_pod_is_not_waited_for() -> None:
    """It is not charged again when its node returns either."""
    ended = pod("p", cpu="1", node="n0", status={"phase": "Failed"})
    snapshot = snapshot_of(pod("p", cpu="1", node="n0"), ended, node("n0"))
    assert cpu(snapshot) == 0


def test_a_scaled_down_pod_frees_capacity() -> None:
    snapshot = snapshot_of(node("n0"), node("n1"), pod("p", cpu="2", node="n0"))
    before = snapshot.generations.last
    snapshot.set(pod("p", cpu="1", node="n0"))
    assert cpu(snapshot) == 1000
    assert snapshot.generations.rows[0] > before >= snapshot.generations.rows[1]
    before = snapshot.generations.last
    snapshot.set(pod("p", cpu="2", node="n0"))
    assert snapshot.generations.last == before


def test_changed_pod_labels_invalidate_all_nodes() -> None:
    """Pods with anti-affinity to it may be on any node."""
    snapshot = snapshot_of(node("n0"), node("n1"), pod("p", node="n0", labels={"app": "a"}))
    before = snapshot.generations.last
    snapshot.set(pod("p", node="n0", labels={"app": "b"}))
    assert snapshot.generations.rows[1] > before


def test_labels_that_a_binding_adds_do_not_invalidate_searches_for_devices() -> None:
    """The API server copies the topology labels of the node to each pod that is bound."""
    snapshot = snapshot_of(node("n0"), node("n1"), pod("p", cpu="2", node="n0"))
    before = snapshot.generations.last
    snapshot.set(pod("p", cpu="2", node="n0", labels={"topology.kubernetes.io/zone": "z"}))
    assert max(snapshot.generations.device_rows) <= before
    snapshot.set(pod("p", cpu="1", node="n0"))
    assert snapshot.generations.device_rows[0] > before >= snapshot.generations.device_rows[1]


def test_an_unscheduled_pod_is_on_no_node() -> None:
    snapshot = snapshot_of(node("n0"), pod("p", cpu="1"))
    assert not snapshot.pod_keys()
    snapshot.remove(pod("p", cpu="1"))
    snapshot.remove(pod("q", cpu="1", node="n7"))
    assert cluster_state(snapshot) == cluster_state(snapshot_of(node("n0")))


# -- nodes


def test_a_deleted_and_recreated_node() -> None:
    around = [device_class(CLASS), gpus("n0", cpu="2")]
    there = [pod("p", cpu="1", node="n0"), pod("q", cpu="2", node="n0", claims=["c"])]
    held = claim("c", exactly("r"), results=[result("gpu0", "n0")])
    snapshot = snapshot_of(*around, node("n0"), node("n1"), held, *there)
    expected = cluster_state(snapshot)
    snapshot.remove(node("n0"))
    assert len(snapshot) == 1
    assert not snapshot.pod_keys()
    snapshot.remove(there[0])
    snapshot.set(there[0])
    snapshot.set(node("n0"))
    assert cluster_state(snapshot) == expected


def test_pods_deleted_while_their_node_is_missing_do_not_return() -> None:
    snapshot = snapshot_of(node("n0"), pod("p", cpu="1", node="n0"), pod("q", cpu="2", node="n0"))
    snapshot.remove(node("n0"))
    snapshot.remove(pod("p", cpu="1", node="n0"))
    snapshot.set(pod("q", cpu="2", node="n0", status={"phase": "Succeeded"}))
    snapshot.set(node("n0"))
    assert cpu(snapshot) == 0


def test_rows_are_reused() -> None:
    snapshot = Snapshot()
    for number in range(1000):
        snapshot.set(node(f"n{number}"))
        snapshot.set(pod(f"p{number}", cpu="1", node=f"n{number}"))
        snapshot.remove(node(f"n{number}"))
        snapshot.remove(pod(f"p{number}", cpu="1", node=f"n{number}"))
    assert snapshot.size == 64
    assert cluster_state(snapshot) == cluster_state(Snapshot())


def test_many_nodes() -> None:
    many = [node(f"n{number}", cpu=str(number + 1)) for number in range(300)]
    there = [pod(f"p{number}", cpu="1", node=f"n{number}") for number in range(300)]
    assert cluster_state(snapshot_of(*many, *there)) == cluster_state(snapshot_of(*there, *reversed(many)))


def test_a_heartbeat_invalidates_nothing() -> None:
    snapshot = snapshot_of(node("n0"))
    before = snapshot.generations.last
    beat = node("n0")
    beat = replace(beat, metadata=replace(beat.metadata, resource_version="8"))
    snapshot.set(beat)
    assert snapshot.generations.last == before
    snapshot.set(node("n0", cpu="9"))
    assert snapshot.generations.last > before


def test_a_slice_invalidates_the_nodes_of_its_pool() -> None:
    """On its node; on all nodes if the pool has several slices and may be complete now."""
    snapshot = snapshot_of(node("n0"), node("n1"))
    before = snapshot.generations.last
    snapshot.set(gpus("n0"))
    assert snapshot.generations.rows[0] > before >= snapshot.generations.rows[1]
    before = snapshot.generations.last
    snapshot.set(resource_slice([], "n1", name="more", pool="n0"))
    assert snapshot.generations.rows[0] > before
    assert snapshot.generations.rows[1] > before


# -- assuming


@pytest.fixture
def cluster() -> Snapshot:
    return snapshot_of(device_class(CLASS), node("n0"), gpus("n0", cpu="2"), claim("c", exactly("r")))


NEW = pod("new", cpu="1", claims=["c"])


def test_assume_and_forget_are_inverses(cluster: Snapshot) -> None:
    expected = cluster_state(cluster)
    placement = placed(cluster, NEW)
    assert cluster_state(cluster) == expected
    cluster.assume(placement)
    assert cpu(cluster) == 3000
    assert (
        cluster.allocations.assumed("uid-c") == cluster.allocations.of("uid-c") == placement.allocations["c"]
    )
    assert set(cluster.assumed) == {"uid-new"}
    assert verify(cluster) == []
    cluster.forget("uid-new")
    assert cluster_state(cluster) == expected
    cluster.forget("uid-new")
    assert cluster_state(cluster) == expected


def test_assumed_then_bound(cluster: Snapshot) -> None:
    placement = placed(cluster, NEW)
    cluster.assume(placement)
    claimed = written(claim("c", exactly("r")), placement)
    with patch.object(cluster, "on_devices_released") as on_devices_released:
        cluster.set(claimed)
    on_devices_released.assert_called_once_with(None)
    assert cluster.allocations.of("uid-c") == claimed.status.allocation
    there = pod("new", cpu="1", node="n0", claims=["c"], status=charges("c", "2"))
    cluster.set(there)
    assert not cluster.assumed
    cluster.confirm("uid-new")
    assert cluster.allocations.assumed("uid-c") is None
    cluster.forget("uid-new")
    assert cluster_state(cluster) == cluster_state(
        snapshot_of(device_class(CLASS), node("n0"), gpus("n0", cpu="2"), claimed, there)
    )


def test_bound_elsewhere(cluster: Snapshot) -> None:
    """Another scheduler binds the pod first."""
    cluster.set(node("n1"))
    placement = placed(cluster, NEW)
    cluster.assume(placement)
    cluster.set(bound(NEW, "n1"))
    assert (cpu(cluster, "n0"), cpu(cluster, "n1")) == (0, 1000)
    assert not cluster.assumed
    assert cluster.allocations.of("uid-c") is not None  # a write of it may be under way
    cluster.forget("uid-new")
    assert cluster.allocations.of("uid-c") is None
    assert verify(cluster) == []


def test_bound_to_an_unknown_node(cluster: Snapshot) -> None:
    cluster.assume(placed(cluster, NEW))
    cluster.set(bound(NEW, "n1"))
    assert cpu(cluster) == 0
    cluster.forget("uid-new")
    cluster.set(node("n1"))
    assert cpu(cluster, "n1") == 1000
    assert verify(cluster) == []


def test_the_node_is_removed_while_a_pod_is_assumed(cluster: Snapshot) -> None:
    before = cluster_state(cluster)
    cluster.assume(placed(cluster, NEW))
    cluster.remove(node("n0"))
    assert not cluster.assumed
    assert cluster.allocations.of("uid-c") is not None
    cluster.set(node("n0"))
    assert cpu(cluster) == 3000  # the binding may succeed
    assert verify(cluster) == []
    cluster.remove(node("n0"))
    cluster.forget("uid-new")
    cluster.set(node("n0"))
    assert cluster_state(cluster) == before


def test_the_pod_is_deleted_while_it_is_assumed(cluster: Snapshot) -> None:
    before = cluster_state(cluster)
    cluster.assume(placed(cluster, NEW))
    cluster.remove(NEW)
    assert cpu(cluster) == 0
    cluster.forget("uid-new")
    assert cluster_state(cluster) == before


def test_updates_of_an_unbound_pod_keep_the_assumption(cluster: Snapshot) -> None:
    cluster.assume(placed(cluster, NEW))
    expected = cluster_state(cluster)
    cluster.set(pod("new", cpu="1", claims=["c"], labels={"more": "labels"}))
    assert cluster_state(cluster) == expected


# -- claims


def test_a_claim_written_by_others(cluster: Snapshot) -> None:
    """The allocation written by another component counts, and forgetting ours does not remove it."""
    cluster.assume(placed(cluster, NEW))
    promised = cluster.allocations.of("uid-c")
    theirs = claim("c", exactly("r"), results=[result("gpu1", "n0")])
    cluster.set(theirs)
    assert cluster.allocations.of("uid-c") == theirs.status.allocation != promised
    cluster.forget("uid-new")
    assert cluster.allocations.of("uid-c") == theirs.status.allocation
    assert verify(cluster) == []


def test_an_assumed_allocation_survives_updates_without_it(cluster: Snapshot) -> None:
    """Our finalizer, for example, or a label of another client."""
    cluster.assume(placed(cluster, NEW))
    promised = cluster.allocations.of("uid-c")
    cluster.set(claim("c", exactly("r"), metadata={"finalizers": ["x"], "resourceVersion": "5"}))
    assert cluster.allocations.of("uid-c") == cluster.allocations.assumed("uid-c") == promised


def test_an_allocation_that_is_removed_stays_assumed_until_the_binding_ends(cluster: Snapshot) -> None:
    """The claim controller has released it because the pod was deleted; the binding may write it again."""
    placement = placed(cluster, NEW)
    cluster.assume(placement)
    cluster.set(written(claim("c", exactly("r")), placement))
    cluster.set(claim("c", exactly("r"), metadata={"resourceVersion": "10"}))
    assert cluster.allocations.of("uid-c") == cluster.allocations.assumed("uid-c") is not None
    assert verify(cluster) == []
    cluster.forget("uid-new")
    assert cluster.allocations.of("uid-c") is None
    assert verify(cluster) == []


def test_a_deleted_and_recreated_claim(cluster: Snapshot) -> None:
    placement = placed(cluster, NEW)
    cluster.assume(placement)
    cluster.set(written(claim("c", exactly("r")), placement))
    again = claim("c", exactly("r"), uid="another", metadata={"resourceVersion": "20"})
    cluster.set(again)
    assert cluster.allocations.of("uid-c") is None
    assert cluster.allocations.of("another") is None
    cluster.forget("uid-new")
    assert verify(cluster) == []
    assert dict(cluster.state) == {}


def test_an_assumed_allocation_does_not_move_to_a_new_claim_of_that_name(cluster: Snapshot) -> None:
    cluster.assume(placed(cluster, NEW))
    cluster.remove(claim("c", exactly("r")))
    cluster.set(claim("c", exactly("r"), uid="another"))
    assert cluster.allocations.assumed("another") is None
    assert dict(cluster.state) == {}
    cluster.forget("uid-new")
    assert verify(cluster) == []


def test_stale_updates_of_a_claim(cluster: Snapshot) -> None:
    """The response to a write outran the watch."""
    new = claim("c", exactly("r"), results=[result("gpu0", "n0")], metadata={"resourceVersion": "10"})
    cluster.set(new)
    cluster.set(claim("c", exactly("r"), metadata={"resourceVersion": "9"}))
    assert cluster.claim("default", "c") is new
    assert cluster.allocations.of("uid-c") == new.status.allocation
    cluster.set(claim("c", exactly("r"), metadata={"resourceVersion": "11"}))
    assert cluster.allocations.of("uid-c") is None


def test_stale_updates_of_a_recreated_claim(cluster: Snapshot) -> None:
    """The response to a write of the deleted claim arrives last."""
    again = claim("c", exactly("r"), uid="another", metadata={"resourceVersion": "20"})
    cluster.set(again)
    old = claim("c", exactly("r"), results=[result("gpu0", "n0")], metadata={"resourceVersion": "9"})
    cluster.set(old)
    assert cluster.claim("default", "c") is again
    assert dict(cluster.state) == {}
    cluster.remove(old)
    assert cluster.claim("default", "c") is again


def test_claim_users() -> None:
    snapshot = snapshot_of(node("n0"), claim("c", exactly("r")), pod("p", node="n0", claims=["c"]))
    snapshot.set(pod("q", node="n0", claims=["c"]))
    assert snapshot.claim_users("default", "c") == {"uid-p", "uid-q"}
    snapshot.remove(pod("p", node="n0", claims=["c"]))
    assert snapshot.claim_users("default", "c") == {"uid-q"}
    snapshot.set(pod("q", node="n0", claims=["c"], status={"phase": "Failed"}))
    assert snapshot.claim_users("default", "c") == set()


# -- index updates


class RecordingIndex(SnapshotIndex):
    """Index that records everything, for comparison."""

    def __init__(self) -> None:
        self.size = 0
        self.nodes: dict[int, Node] = {}
        self.pods: dict[str, tuple[int, Pod]] = {}
        self.objects: dict[tuple[str, str, str], Any] = {}

    def resized(self, size: int) -> None:
        assert size > self.size
        self.size = size

    def node_set(self, row: int, node: Node, old: Node | None) -> None:
        assert self.nodes.get(row) is old
        assert row < self.size
        self.nodes[row] = node

    def node_removed(self, row: int, node: Node) -> None:
        assert self.nodes.pop(row) is node
        assert all(at != row for at, _ in self.pods.values())

    def pod_added(self, row: int, pod: Pod) -> None:
        assert row in self.nodes
        assert pod_key(pod) not in self.pods
        self.pods[pod_key(pod)] = (row, pod)

    def pod_removed(self, row: int, pod: Pod) -> None:
        at, known = self.pods.pop(pod_key(pod))
        assert at == row
        assert known is pod

    def object_changed(self, old: Any, new: Any) -> None:
        changed = old if new is None else new
        key = (type(changed).__name__, changed.metadata.namespace, changed.metadata.name)
        assert self.objects.pop(key, None) is old
        if new is not None:
            self.objects[key] = new


class LateRecordingIndex(RecordingIndex):
    """The same index, created at the end."""


@settings(max_examples=examples(100))
@given(st.integers(0, 2**64 - 1).map(Random))
def test_an_early_index_agrees_with_a_late_one(random: Random) -> None:
    snapshot = Snapshot()
    early = snapshot.index(RecordingIndex)
    given_objects = objects(random)
    for each in random.choices(given_objects, k=3 * len(given_objects)):
        if random.random() < 0.7:
            snapshot.set(each)
        else:
            snapshot.remove(each)
    late = snapshot.index(LateRecordingIndex)
    assert (early.nodes, early.pods, early.objects) == (late.nodes, late.pods, late.objects)
    assert snapshot.index(RecordingIndex) is early


def test_a_pod_of_an_unknown_node_moves_to_a_known_one() -> None:
    snapshot = snapshot_of(node("b"), pod("p", node="a"), pod("p", node="b"))
    snapshot.set(node("a"))
    assert [each.metadata.name for each in snapshot.pods_at(snapshot.row_of("b") or 0)] == ["p"]
    assert verify(snapshot) == []
