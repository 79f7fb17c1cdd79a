"""Devices, pools and claims: free and allocated add up, compared with naive counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.allocator.availability import fits_minimal_share
from plimsoll.allocator.devices.capacity import Consumption, capacity_value, consume
from plimsoll.api import codec
from plimsoll.api.core import Node
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceCapacity, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.top import claim_rows, device_rows, pool_rows
from plimsoll.tools.top.devices import STALE
from tests.dumps import make_cluster_state
from tests.sizes import examples

DRIVER = "dra.example.com"


def node(name: str = "n") -> Node:
    return codec.convert({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8"}}}, Node)


def piece(
    *devices: Any, name: str = "s", pool: str = "p", generation: int = 1, count: int = 1, **spec: Any
) -> Any:
    where = {"nodeName": "n"} if not spec.keys() & {"nodeSelector", "allNodes"} else {}
    body = {"driver": DRIVER, "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}}
    if devices:
        body["devices"] = list(devices)
    tree = {"metadata": {"name": name, "uid": name}, "spec": {**body, **where, **spec}}
    return codec.convert(tree, ResourceSlice)


def claim(name: str, *results: dict[str, Any], **status: Any) -> ResourceClaim:
    full = [{"request": "r", "driver": DRIVER, "pool": "p", **each} for each in results]
    body = {"allocation": {"devices": {"results": full}}} if results else {}
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    tree = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"devices": {"requests": [request]}},
        "status": {**body, **status},
    }
    return codec.convert(tree, ResourceClaim)


def share(device: str, number: int, **consumed: str) -> dict[str, Any]:
    return {"device": device, "shareID": f"share-{number}", "consumedCapacity": consumed}


def states(cluster_state: ClusterState, node: str = "") -> dict[str, str]:
    return {row.device: row.state for row in device_rows(cluster_state, node)}


# -- single devices


def test_each_state() -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"bw": {"value": "10"}}}
    part = {"consumesCounters": [{"counterSet": "g", "counters": {"m": {"value": "6"}}}]}
    counters: dict[str, Any] = {"sharedCounters": [{"name": "g", "counters": {"m": {"value": "10"}}}]}
    devices = [
        {"name": "free"},
        {"name": "taken"},
        {"name": "partly", **shared},
        {"name": "full", **shared},
        {"name": "shared", "allowMultipleAllocations": True},
        {"name": "part", **part},
        {"name": "blocked", **part},
        {"name": "tainted", "taints": [{"key": "k", "effect": "NoExecute"}]},
        {"name": "noted", "taints": [{"key": "k", "effect": "None"}]},
    ]
    held = claim(
        "held",
        {"device": "taken"},
        share("partly", 1, bw="4"),
        share("full", 2, bw="10"),
        {"device": "shared", "shareID": "share-3"},
        {"device": "part"},
        {"device": "missing"},
        {"device": "free", "adminAccess": True},
    )
    objects = ClusterObjects([node(), piece(*devices, count=2), piece(name="t", count=2, **counters), held])
    expected = {
        "free": "free",
        "taken": "taken",
        "partly": "partly",
        "full": "taken",
        "shared": "shared",
        "part": "taken",
        "blocked": "blocked",
        "tainted": "tainted",
        "noted": "free",
        "missing": "stale",
    }
    assert states(ClusterState(objects)) == expected
    del expected["missing"]
    assert states(ClusterState(objects), "n") == expected
    rows = {row.device: row for row in device_rows(ClusterState(objects))}
    assert rows["blocked"].why == "g/m: needs 6, 4 left"
    assert [holder.admin for holder in rows["free"].holders] == [True]
    assert rows["partly"].capacity == {"bw": (Quantity.parse("10"), Quantity.parse("4"))}


def test_a_taint_rule_counts() -> None:
    rule = {"deviceSelector": {"device": "a"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    tainted = codec.convert({"metadata": {"name": "r"}, "spec": rule}, DeviceTaintRule)
    assert states(ClusterState(ClusterObjects([node(), piece({"name": "a"}), tainted]))) == {"a": "tainted"}


def test_two_holders_of_a_whole_device_are_reported() -> None:
    objects = ClusterObjects(
        [node(), piece({"name": "a"}), claim("x", {"device": "a"}), claim("y", {"device": "a"})]
    )
    (row,) = device_rows(ClusterState(objects))
    assert (row.state, row.why) == ("taken", "allocated 2 times")
    assert [holder.claim for holder in row.holders] == ["x", "y"]


def test_only_the_newest_generation_is_offered() -> None:
    old = piece({"name": "a"}, {"name": "b"}, name="old", generation=1)
    new = piece({"name": "a"}, name="new", generation=2)
    cluster_state = ClusterState(ClusterObjects([node(), old, new]))
    rows = {row.device: (row.state, row.why) for row in device_rows(cluster_state)}
    assert rows == {"a": ("free", ""), "b": ("stale", "generation 1, newest is 2")}
    (pool,) = pool_rows(cluster_state)
    assert (pool.generation, pool.slices) == (2, 1)
    assert (pool.devices["all"], pool.devices["free"], pool.devices["unavailable"]) == (2, 1, 1)


def test_an_incomplete_pool_says_so() -> None:
    cluster_state = ClusterState(ClusterObjects([node(), piece({"name": "a"}, count=3)]))
    (pool,) = pool_rows(cluster_state)
    assert (pool.standing, pool.slices, pool.expected, pool.devices["free"]) == ("incomplete", 1, 3, 0)
    assert states(cluster_state, "n") == {"a": "stale"}


def test_a_shared_device_is_counted_once() -> None:
    """kubernetes/kubernetes 140170: a device with three shares is one device, not three."""
    shared = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"bw": {"value": "10"}}}
    claims = [claim(f"c{i}", share("nic", i, bw="2")) for i in range(3)]
    (pool,) = pool_rows(ClusterState(ClusterObjects([node(), piece(shared, {"name": "other"}), *claims])))
    assert pool.devices == {"all": 2, "free": 1, "partly": 1, "taken": 0, "unavailable": 0}
    assert pool.shares == {"bw": (Quantity.parse("10"), Quantity.parse("4"))}


def test_a_pool_for_several_nodes_is_listed_once() -> None:
    everywhere = piece({"name": "a"}, allNodes=True)
    cluster_state = ClusterState(ClusterObjects([node("n"), node("m"), everywhere]))
    assert [row.node for row in device_rows(cluster_state)] == [""]
    assert states(cluster_state, "m") == {"a": "free"}


# -- any number of them


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    """A pool of full, shared and partitioned devices, with any claims on them, even too many."""
    kinds = st.sampled_from(("whole", "shared", "open", "part", "hot"))
    names = [f"d{i}" for i in range(draw(st.integers(1, 6)))]
    bodies: dict[str, dict[str, Any]] = {
        "whole": {},
        "shared": {"allowMultipleAllocations": True, "capacity": {"bw": {"value": "4"}}},
        "open": {"allowMultipleAllocations": True},
        "part": {"consumesCounters": [{"counterSet": "g", "counters": {"m": {"value": "3"}}}]},
        "hot": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    }
    made = {name: draw(kinds) for name in names}
    results = []
    for number, name in enumerate(draw(st.lists(st.sampled_from([*names, "gone"]), max_size=8))):
        kind = made.get(name, "whole")
        sharing = kind in ("shared", "open")
        amounts = {"bw": str(draw(st.integers(0, 3)))} if kind == "shared" else {}
        results.append(share(name, number, **amounts) if sharing else {"device": name})
    claims = [claim(f"c{i}", each) for i, each in enumerate(results)]
    slices = [piece(*({"name": name, **bodies[kind]} for name, kind in made.items()), count=2)]
    counters = [{"name": "g", "counters": {"m": {"value": "7"}}}]
    slices.append(piece(name="t", count=2, sharedCounters=counters))
    return ClusterState(ClusterObjects([node(), *slices, *claims]))


@settings(max_examples=examples(80), deadline=None)
@given(clusters())
def test_free_and_allocated_add_up(cluster_state: ClusterState) -> None:
    rows = device_rows(cluster_state)
    assert len({row.id for row in rows}) == len(rows)
    (pool,) = pool_rows(cluster_state)
    assert pool.published == len(rows)
    assert sum(pool.devices.values()) == 2 * pool.devices["all"]
    single = [row for row in rows if not row.draws]
    together = pool.devices["all"] - len(single)  # all others draw from one set of counters
    assert together == (len(single) < len(rows))
    free = sum(row.state == "free" for row in single)
    assert free <= pool.devices["free"] <= free + together
    for row in rows:
        assert (row.state == "free") <= (not row.holders)
        assert row.state == STALE or (row.state in ("taken", "partly", "shared")) == bool(row.holders)


@settings(max_examples=examples(80), deadline=None)
@given(clusters())
def test_counters_are_drawn_once_for_each_device(cluster_state: ClusterState) -> None:
    """Reference: the sum of all allocated partitions."""
    (pool,) = pool_rows(cluster_state)
    drawn = sum(3 for row in device_rows(cluster_state) if row.draws and row.holders)
    assert pool.counters == {("g", "m"): (Quantity.parse("7"), Quantity(7 * 10**9 - drawn * 10**9))}
    for row in device_rows(cluster_state):
        if row.draws and not row.holders:
            assert (row.state == "blocked") == (7 - drawn < 3)


POLICIES: list[Any] = [
    None,
    {"default": "2"},
    {"default": "2", "validValues": ["2", "4", "8"]},
    {"default": "3", "validRange": {"min": "2", "step": "2", "max": "8"}},
    {"default": "1", "validRange": {"min": "4"}},
]


@given(st.sampled_from(POLICIES), st.integers(0, 10))
def test_a_device_is_free_if_any_request_fits(policy: Any, free: int) -> None:
    """Reference: try every possible request."""
    tree = {"value": "10", **({"requestPolicy": policy} if policy else {})}
    capacity = {"bw": codec.convert(tree, DeviceCapacity)}
    asked: list[dict[str, Quantity]] = [{}, *({"bw": Quantity.of(n)} for n in range(1, 11))]
    found = [consume(each, capacity) for each in asked]
    least = min(each.nano[0] for each in found if isinstance(each, Consumption))
    assert capacity_value(capacity["bw"]) == Quantity.of(10)
    assert fits_minimal_share(capacity, [free * 10**9]) == (least <= free * 10**9)


# -- claims


@pytest.mark.parametrize(
    ("made", "state"),
    [
        (claim("c"), "pending"),
        (claim("c", {"device": "a"}), "allocated"),
        (
            claim("c", {"device": "a"}, reservedFor=[{"resource": "pods", "name": "x", "uid": "x"}]),
            "allocated,reserved",
        ),
    ],
)
def test_the_state_of_a_claim(made: ResourceClaim, state: str) -> None:
    (row,) = claim_rows(ClusterState(ClusterObjects([node(), piece({"name": "a"}), made])))
    assert row.state == state
    assert row.classes == ("c",)
    assert row.node == ("n" if made.status.allocation else "")


def test_an_unused_claim_shows_its_charge() -> None:
    mapped = {"name": "a", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
    (row,) = claim_rows(ClusterState(ClusterObjects([node(), piece(mapped), claim("c", {"device": "a"})])))
    assert not row.booked
    assert [(each.resource, each.amount, each.rule) for each in row.charges] == [("cpu", 2000, "AddPerClaim")]


def test_the_cpus_of_a_claim_come_from_its_driver() -> None:
    status = {"driver": DRIVER, "pool": "p", "device": "a", "data": {"cpuset": "0-3"}}
    odd = {"driver": DRIVER, "pool": "p", "device": "b", "data": ["not", "ours"]}
    made = claim("c", {"device": "a"}, devices=[status, odd])
    (row,) = claim_rows(ClusterState(ClusterObjects([node(), piece({"name": "a"}), made])))
    assert {device.device: cpus for device, cpus in row.cpus.items()} == {"a": "0-3"}


def test_claims_written_by_hand_hold_their_own_devices() -> None:
    """Without UIDs they are distinguished by name."""
    trees = []
    for name, kind, body in [
        ("n", "Node", {}),
        ("s", "ResourceSlice", {"spec": codec.to_tree(piece({"name": "a"}, {"name": "b"}).spec)}),
        *((each, "ResourceClaim", codec.to_tree(claim(each, {"device": each}))) for each in ("a", "b")),
    ]:
        version = "v1" if kind == "Node" else "resource.k8s.io/v1"
        trees.append({**body, "apiVersion": version, "kind": kind, "metadata": {"name": name}})
    assert states(make_cluster_state(trees)) == {"a": "taken", "b": "taken"}
