"""Pools from slices: complete, newest, valid, and for this node."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.allocator import (
    Allocation,
    AllocationFault,
    AllocationState,
    DeviceId,
    Features,
    Inventory,
    Refusal,
)
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.pools import GatheredPool, PoolStatus
from plimsoll.api.codec import to_tree
from plimsoll.api.core import Node
from plimsoll.api.resource import ResourceSlice
from tests.build import DRIVER, NODE, claim, device, exactly, node, resource_slice
from tests.unit.allocator.allocate import attempt, picked, results
from tests.unit.allocator.holdings import hold_device
from tests.unit.allocator.random_cases import generate_case
from tests.unit.allocator.reference_pools import gather

ONE = claim("c", exactly())
ALL = claim("c", exactly(mode="All"))


def selector(key: str, *values: str) -> dict[str, Any]:
    requirement = {"key": key, "operator": "In", "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}


def pools(
    slices: list[ResourceSlice], at: Node | None = None, features: Features | None = None
) -> list[GatheredPool]:
    found = Inventory(slices, features).devices_for(at or node())
    assert isinstance(found, NodeDevices)
    return list(found.pools)


def all_devices(outcome: object) -> list[str]:
    assert isinstance(outcome, Allocation), outcome
    return [each.device for result in outcome.results for each in result.devices.results]


# -- for this node


@pytest.mark.parametrize(
    ("place", "matches"),
    [
        ({"nodeName": NODE}, True),
        ({"nodeName": "node-b"}, False),
        ({"allNodes": True}, True),
        ({"nodeSelector": selector("zone", "x", "y")}, True),
        ({"nodeSelector": selector("zone", "y")}, False),
        ({"nodeSelector": {"nodeSelectorTerms": [{}]}}, False),
        ({"perDeviceNodeSelection": True}, False),
        ({"perDeviceNodeSelection": False}, False),
    ],
)
def test_a_slice_is_for_the_nodes_it_names(place: dict[str, Any], matches: bool) -> None:
    outcome = attempt([resource_slice([device("d0")], **place)], ONE, at=node(labels={"zone": "x"}))
    assert isinstance(outcome, Allocation if matches else Refusal)


def test_devices_of_one_slice_may_be_for_different_nodes() -> None:
    devices = [
        device("a", fields={"nodeName": "node-b"}),
        device("b", fields={"nodeSelector": selector("zone", "y")}),
        device("c", fields={"nodeSelector": selector("zone", "x")}),
        device("d", fields={"allNodes": True}),
        device("e", fields={"nodeName": NODE}),
        device("f"),
    ]
    slices = [resource_slice(devices, perDeviceNodeSelection=True)]
    assert picked(attempt(slices, ALL, at=node(labels={"zone": "x"}))) == [["c", "d", "e"]]
    assert picked(attempt(slices, ALL, at=node("node-b", labels={"zone": "y"}))) == [["a", "b", "d"]]


def test_an_invalid_selector_is_a_fault() -> None:
    slices = [resource_slice([device("d0")], name="broken", nodeSelector=selector("zone"))]
    outcome = attempt(slices, ONE)
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "node-selection"
    assert "failed to perform node selection for slice broken" in str(outcome)


def test_an_invalid_device_selector_is_a_fault_when_it_is_evaluated() -> None:
    devices = [
        device("d0", fields={"allNodes": True}),
        device("d1", fields={"nodeSelector": selector("zone")}),
    ]
    slices = [resource_slice(devices, perDeviceNodeSelection=True)]
    assert picked(attempt(slices, ONE)) == [["d0"]]
    outcome = attempt(slices, claim("c", exactly(count=2)))
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "node-selection"


def test_the_node_selector_of_an_allocation() -> None:
    """A device of one node binds the claim to it, a network device to the nodes of its selector."""
    own, zone, everywhere = {"nodeName": NODE}, {"nodeSelector": selector("zone", "x")}, {"allNodes": True}

    def where(*places: dict[str, Any]) -> Any:
        slices = [
            resource_slice([device("d0")], name=f"s{number}", pool=f"p{number}", **place)
            for number, place in enumerate(places)
        ]
        outcome = attempt(
            slices, claim("c", exactly(count=len(places))), at=node(labels={"zone": "x", "rack": "r"})
        )
        assert isinstance(outcome, Allocation)
        return to_tree(outcome.results[0]).get("nodeSelector")

    here = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]
    }
    assert where(everywhere) is None
    assert where(own) == here
    assert where(zone) == selector("zone", "x")
    assert where(everywhere, zone, zone) == selector("zone", "x")
    assert where(zone, own) == here
    both = where(zone, {"nodeSelector": selector("rack", "r")})
    assert [each["key"] for each in both["nodeSelectorTerms"][0]["matchExpressions"]] == ["zone", "rack"]


def test_a_device_may_bind_its_claim_to_the_node() -> None:
    slices = [resource_slice([device("d0", fields={"bindsToNode": True})], allNodes=True)]
    outcome = attempt(slices, ONE)
    assert isinstance(outcome, Allocation)
    assert outcome.results[0].node_selector is not None


def test_a_device_selector_of_several_terms_cannot_be_allocated() -> None:
    terms = selector("zone", "x")["nodeSelectorTerms"] + selector("zone", "y")["nodeSelectorTerms"]
    slices = [
        resource_slice(
            [device("d0", fields={"nodeSelector": {"nodeSelectorTerms": terms}})], perDeviceNodeSelection=True
        )
    ]
    outcome = attempt(slices, ONE, at=node(labels={"zone": "x"}))
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "node-selector-terms"
    assert "2 terms" in str(outcome)


# -- complete


def test_an_incomplete_pool_is_not_used() -> None:
    slices = [resource_slice([device("d0")], count=2)]
    refused = attempt(slices, ONE)
    assert isinstance(refused, Refusal)
    (pool,) = refused.pools
    assert (str(pool.pool), pool.status) == (f"{DRIVER}/p", "incomplete")
    assert pool.reason == "has 1 of 2 slices of generation 1"
    complete = [*slices, resource_slice([device("d1")], name="t", count=2)]
    assert picked(attempt(complete, ALL)) == [["d0", "d1"]]


def test_a_pool_with_too_many_slices_is_incomplete() -> None:
    slices = [resource_slice([device(f"d{n}")], name=f"s{n}") for n in range(2)]
    (pool,) = pools(slices)
    assert pool.status is PoolStatus.INCOMPLETE
    assert isinstance(attempt(slices, ONE), Refusal)


def test_slices_of_other_nodes_make_a_pool_complete() -> None:
    slices = [
        resource_slice([device("d0")], count=2),
        resource_slice([device("d1")], name="t", count=2, nodeName="node-b"),
    ]
    assert picked(attempt(slices, ALL)) == [["d0"]]
    assert picked(attempt(slices, ALL, at=node("node-b"))) == [["d1"]]
    assert isinstance(attempt(slices[:1], ONE), Refusal)


def test_an_incomplete_pool_does_not_stop_others() -> None:
    slices = [
        resource_slice([device("d0")], count=2),
        resource_slice([device("d1")], name="t", pool="q"),
    ]
    assert picked(attempt(slices, ONE)) == [["d1"]]


def test_all_waits_for_every_pool() -> None:
    """The missing slices may hold a matching device."""
    slices = [
        resource_slice([device("d0")], count=2, pool="a"),
        resource_slice([device("d1")], name="t", pool="b"),
    ]
    outcome = attempt(slices, claim("c", exactly(mode="All", select='device.driver == "other"')))
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "all-incomplete-pool"
    assert not outcome.is_node_scoped
    assert f"asks for all devices, but resource pool {DRIVER}/a is currently being updated" in str(outcome)


# -- newest


def test_only_the_newest_generation_counts() -> None:
    old = [resource_slice([device(f"old{n}")], name=f"o{n}", generation=1, count=2) for n in range(2)]
    new = resource_slice([device("new")], name="n", generation=2)
    for slices in ([*old, new], [new, *old]):
        assert picked(attempt(slices, ALL)) == [["new"]]


def test_a_pool_half_way_to_its_next_generation_is_not_used() -> None:
    old = [resource_slice([device(f"d{n}")], name=f"o{n}", generation=1, count=2) for n in range(2)]
    new = resource_slice([device("d0")], name="n", generation=2, count=2)
    assert isinstance(attempt([*old, new], ONE), Refusal)


def test_a_pool_replaced_on_another_node_is_ignored() -> None:
    """This node's slice is left over: the newer generation has none for it, and All need not wait."""
    left_over = resource_slice([device("d0")], generation=1, count=2)
    newer = resource_slice([device("d0")], name="t", generation=2, nodeName="node-b")
    other = resource_slice([device("d1")], name="u", pool="q")
    assert pools([left_over, newer]) == []
    assert picked(attempt([left_over, newer, other], ALL)) == [["d1"]]


def test_a_complete_pool_ignores_slices_of_other_nodes() -> None:
    mine = resource_slice([device("d0")], generation=1)
    newer = resource_slice([device("d0")], name="t", generation=2, nodeName="node-b")
    assert picked(attempt([mine, newer], ONE)) == [["d0"]]


# -- validity


def counters(*sets: str) -> ResourceSlice:
    return resource_slice(counters={name: {"units": "4"} for name in sets}, name="counters", count=2)


INVALID = {
    "duplicate device name d0": [resource_slice([device("d0"), device("d0")])],
    "duplicate device name d1": [
        resource_slice([device("d1")], count=2),
        resource_slice([device("d1")], name="t", count=2),
    ],
    "counter set set not found": [
        resource_slice([device("d0", draws={"set": {"units": "1"}})], count=2),
        counters("x"),
    ],
    "counter lanes not found in counter set set": [
        resource_slice([device("d0", draws={"set": {"lanes": "1"}})], count=2),
        counters("set"),
    ],
    "duplicate counter set name set": [
        resource_slice(counters={"set": {"units": "4"}}, name="a", count=2),
        resource_slice(counters={"set": {"units": "4"}}, name="b", count=2),
    ],
}


@pytest.mark.parametrize("reason", INVALID)
def test_an_invalid_pool_is_not_used(reason: str) -> None:
    slices = INVALID[reason]
    (pool,) = pools(slices)
    assert (pool.status, pool.reason) == (PoolStatus.INVALID, reason)
    outcome = attempt(slices, ONE)
    assert isinstance(outcome, AllocationFault)
    assert (outcome.kind, outcome.is_node_scoped) == ("invalid-pools", True)
    everything = attempt(slices, ALL)
    assert isinstance(everything, AllocationFault)
    assert (everything.kind, everything.is_node_scoped) == ("all-invalid-pool", False)
    # Another pool serves requests that do not ask for all.
    other = resource_slice([device("e0")], name="other", pool="q")
    assert picked(attempt([*slices, other], ONE)) == [["e0"]]


def test_a_device_of_another_node_may_make_the_pool_invalid() -> None:
    slices = [
        resource_slice([device("d0")], count=2),
        resource_slice([device("d1", draws={"set": {"units": "1"}})], name="t", count=2, nodeName="node-b"),
    ]
    (pool,) = pools(slices)
    assert pool.status is PoolStatus.INVALID


def test_the_same_names_in_different_pools_are_fine() -> None:
    slices = [
        resource_slice([device("d0")], driver=driver, pool=pool, name=f"{driver}-{pool}")
        for driver in (DRIVER, "nic.example.com")
        for pool in ("p", "q")
    ]
    made = results(attempt(slices, ALL))
    assert len({(each.driver, each.pool) for each in made}) == 4


def test_a_device_is_held_by_driver_pool_and_name() -> None:
    slices = [
        resource_slice([device("d0")], driver=driver, pool=pool, name=f"{driver}-{pool}")
        for driver in (DRIVER, "nic.example.com")
        for pool in ("p", "q")
    ]
    state = AllocationState()
    hold_device(state, DeviceId(DRIVER, "q", "d0"))
    made = results(attempt(slices, claim("c", exactly(count=3)), state=state))
    assert [(each.driver, each.pool) for each in made] == [
        (DRIVER, "p"),
        ("nic.example.com", "p"),
        ("nic.example.com", "q"),
    ]


# -- order


def test_pools_are_taken_by_driver_and_name_slices_by_name_devices_as_listed() -> None:
    slices = [
        resource_slice([device("d1"), device("d0")], name="b", pool="p", count=2),
        resource_slice([device("d9")], name="a", pool="p", count=2),
        resource_slice([device("x")], name="z", pool="pool-9"),
        resource_slice([device("y")], name="z", pool="pool-10"),
        resource_slice([device("first")], name="z", pool="z", driver="a.example.com"),
    ]
    wanted = ["first", "d9", "d1", "d0", "y", "x"]
    assert picked(attempt(slices, ALL)) == [wanted]
    assert picked(attempt(slices[::-1], ALL)) == [wanted]
    assert picked(attempt(slices, claim("c", exactly(count=4)))) == [wanted[:4]]


def test_pools_with_binding_conditions_come_last() -> None:
    ready = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    slices = [
        resource_slice([device("a0"), device("a1", fields=ready)], name="a", pool="a"),
        resource_slice([device("b0")], name="b", pool="b"),
    ]
    outcome = attempt(slices, ALL)
    assert picked(outcome) == [["b0", "a0", "a1"]]
    last = results(outcome)[-1]
    assert (last.binding_conditions, last.binding_failure_conditions) == (("ready",), ("broken",))
    off = Features(binding_conditions=False)
    assert picked(attempt(slices, ALL, features=off)) == [["b0", "a0"]]


# -- without partitionable devices


def test_without_partitions_counters_and_device_selections_are_not_read() -> None:
    off = Features(partitionable_devices=False)
    partitioned = [
        resource_slice([device("d0", draws={"set": {"units": "1"}}), device("d1")], name="a", count=2),
        resource_slice(counters={"set": {"units": "4"}}, name="b", count=2),
    ]
    assert picked(attempt(partitioned, claim("c", exactly(count=2)))) == [["d0", "d1"]]
    assert picked(attempt(partitioned, ONE, features=off)) == [["d1"]]
    assert isinstance(attempt(partitioned, claim("c", exactly(count=2)), features=off), Refusal)
    per_device = [resource_slice([device("d0", fields={"allNodes": True})], perDeviceNodeSelection=True)]
    assert isinstance(attempt(per_device, ONE, features=off), Refusal)


# -- agreement with the definition


def test_pools_agree_with_the_definition() -> None:
    trouble = {PoolStatus.COMPLETE: "", PoolStatus.INCOMPLETE: "incomplete", PoolStatus.INVALID: "invalid"}
    for seed in range(400):
        case = generate_case(seed)
        found = Inventory(case.slices, case.features).devices_for(case.node)
        assert isinstance(found, NodeDevices)
        wanted = gather(case.slices, case.node, case.features)
        assert [(pool.id, trouble[pool.status]) for pool in found.pools] == [
            (pool.id, pool.trouble) for pool in wanted
        ]
        assert [entry.id for entry in found.entries] == [
            published.id for pool in wanted for published in pool.spots
        ]


def test_an_empty_cluster_and_no_claims() -> None:
    assert attempt([]) == Allocation((), 0, ())
    assert isinstance(attempt([], ONE), Refusal)
    assert all_devices(attempt([resource_slice([])])) == []
