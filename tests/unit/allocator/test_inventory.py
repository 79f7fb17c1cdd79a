"""Inventory: replacing slices keeps unchanged devices and drops outdated results."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.allocator import (
    AllocationFault,
    AllocationOutcome,
    AllocationState,
    Features,
    Inventory,
    allocate_claims,
)
from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.api.core import Node
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.cel import ProgramCache
from tests.build import claim, device, device_class, exactly, node, resource_slice
from tests.sizes import examples
from tests.unit.allocator.allocate import picked
from tests.unit.allocator.random_cases import CaseGenerator, generate_case
from tests.unit.allocator.taint_rules import taint_rule

ONE = claim("c", exactly())
ALL = claim("c", exactly(mode="All"))


def ask(inventory: Inventory, wanted: ResourceClaim = ALL, at: Node | None = None) -> AllocationOutcome:
    return allocate_claims(
        inventory,
        AllocationState(),
        [wanted],
        at or node(),
        classes={"gpu": device_class()},
        new_id=lambda: "share",
    )


def devices_of(inventory: Inventory, at: Node | None = None) -> NodeDevices:
    found = inventory.devices_for(at or node())
    assert isinstance(found, NodeDevices)
    return found


MINE = resource_slice([device("d0")], name="mine")
THEIRS = resource_slice([device("d0")], name="theirs", pool="q", nodeName="node-b")


# -- kept devices


def test_devices_of_a_node_are_computed_once() -> None:
    inventory = Inventory([MINE, THEIRS])
    assert devices_of(inventory) is devices_of(inventory)
    assert devices_of(inventory, node("node-b")) is not devices_of(inventory)


def test_a_change_on_another_node_keeps_the_devices_of_this_one() -> None:
    inventory = Inventory([MINE, THEIRS])
    before = devices_of(inventory)
    after = inventory.replace(
        [MINE, resource_slice([device("d1")], name="theirs", pool="q", nodeName="node-b")]
    )
    assert devices_of(after) is before
    assert picked(ask(after, at=node("node-b"))) == [["d1"]]


def test_changes_of_unqueried_nodes_are_kept() -> None:
    inventory = Inventory([MINE, THEIRS])
    before = devices_of(inventory)
    assert devices_of(inventory.replace([MINE]).replace([MINE, THEIRS])) is before


def test_a_changed_slice_is_read_again() -> None:
    inventory = Inventory([MINE, THEIRS])
    before = devices_of(inventory)
    after = inventory.replace([resource_slice([device("d1")], name="mine"), THEIRS])
    assert devices_of(after) is not before
    assert picked(ask(after)) == [["d1"]]
    assert picked(ask(inventory)) == [["d0"]]


def test_the_inventory_returns_its_slices() -> None:
    inventory = Inventory(each for each in (MINE, THEIRS))
    assert list(inventory.slices) == [MINE, THEIRS]
    assert list(inventory.replace([THEIRS]).slices) == [THEIRS]
    assert list(inventory.slices) == [MINE, THEIRS]


def test_selectors_are_compiled_once_for_all_inventories() -> None:
    programs = ProgramCache()
    first, second = Inventory([MINE], programs=programs), Inventory([THEIRS], programs=programs)
    wanted = claim("c", exactly(select='device.driver == "gpu.example.com"'))
    assert picked(ask(first, wanted)) == picked(ask(second, wanted, node("node-b"))) == [["d0"]]


# -- dropped devices


def test_a_slice_of_another_node_may_complete_or_invalidate_a_pool() -> None:
    half = resource_slice([device("d0")], name="mine", count=2)
    other = resource_slice([device("d1")], name="theirs", count=2, nodeName="node-b")
    inventory = Inventory([half])
    assert isinstance(ask(inventory), AllocationFault)
    complete = inventory.replace([half, other])
    assert picked(ask(complete)) == [["d0"]]
    newer = resource_slice([device("d1")], name="theirs", generation=2, nodeName="node-b")
    assert isinstance(ask(complete.replace([half]), ALL), AllocationFault)
    assert not isinstance(ask(complete.replace([half, newer]), ONE), AllocationFault)


def test_a_nodes_labels_may_change() -> None:
    zone = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]}
    inventory = Inventory([MINE, resource_slice([device("z")], name="zone", pool="z", nodeSelector=zone)])
    assert picked(ask(inventory)) == [["d0"]]
    assert picked(ask(inventory, at=node(labels={"zone": "x"}))) == [["d0", "z"]]
    assert picked(ask(inventory.replace(inventory.slices), at=node(labels={"zone": "y"}))) == [["d0"]]
    assert picked(ask(inventory, at=node(labels={"zone": "x"}))) == [["d0", "z"]]


def test_taint_rules_can_be_added_and_removed() -> None:
    slices = [resource_slice([device("d0"), device("d1")])]
    inventory = Inventory(slices)
    assert picked(ask(inventory, ONE)) == [["d0"]]
    tainted = inventory.replace(slices, [taint_rule(device="d0")])
    assert picked(ask(tainted, ONE)) == [["d1"]]
    assert picked(ask(tainted.replace(slices), ONE)) == [["d1"]]  # the rules stay unless others are given
    assert picked(ask(tainted.replace(slices, []), ONE)) == [["d0"]]
    assert picked(ask(inventory, ONE)) == [["d0"]]


def test_without_the_gate_rules_are_not_read() -> None:
    off = Inventory([MINE], Features(device_taints=False), [taint_rule()])
    assert picked(ask(off)) == [["d0"]]
    assert picked(ask(off.replace([MINE], [taint_rule()]))) == [["d0"]]


# -- agreement with a new inventory


def change(maker: CaseGenerator, slices: list[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices after a random change."""
    kind = maker.choose(4)
    if kind == 0 or not slices:
        return [*slices, *maker.slices(3)]
    index = maker.choose(len(slices))
    if kind == 1:
        return slices[:index] + slices[index + 1 :]
    old = slices[index]
    if kind == 2:
        # The same content in a new object, as a watch brings it.
        return [*slices[:index], msgspec.structs.replace(old), *slices[index + 1 :]]
    some = old.spec.devices or ()
    spec = msgspec.structs.replace(old.spec, devices=some[1:] if old.spec.devices is not None else None)
    return [*slices[:index], msgspec.structs.replace(old, spec=spec), *slices[index + 1 :]]


def answers(inventory: Inventory, case: Any, at: Node) -> Any:
    outcome = allocate_claims(
        inventory,
        case.state,
        case.claims,
        at,
        classes=case.classes,
        new_id=lambda: "share",
    )
    return (outcome.kind, str(outcome)) if isinstance(outcome, AllocationFault) else outcome


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32), st.integers(1, 6), st.randoms(use_true_random=False))
def test_replacing_slices_agrees_with_a_new_inventory(seed: int, changes: int, random: Any) -> None:
    case = generate_case(seed)
    maker = CaseGenerator(random.randrange)
    programs = ProgramCache()
    nodes = [case.node, node("node-b"), node(labels={"zone": "y"})]
    slices, rules = list(case.slices), list(case.taint_rules)
    inventory = Inventory(slices, case.features, rules, programs)
    for _ in range(changes):
        for each in nodes[: maker.choose(len(nodes) + 1)]:
            answers(inventory, case, each)
        slices = change(maker, slices)
        if maker.chance(4):
            rules = [maker.taint_rule()] if maker.chance(2) else []
            inventory = inventory.replace(slices, rules)
        else:
            inventory = inventory.replace(slices)
        fresh = Inventory(slices, case.features, rules, programs)
        for each in nodes:
            assert answers(inventory, case, each) == answers(fresh, case, each)
