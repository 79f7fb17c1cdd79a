"""Nodes of one type share their devices; each has the devices that it would have by itself."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.allocator import AllocationFault, AllocationState, Features, Inventory
from plimsoll.allocator.devices.node_devices import NodeDevices, selector_environment
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import OPTIONAL_NODE_OPERATIONS, ResourceSlice
from plimsoll.cel import compile_selector
from tests.build import DRIVER, device, node, resource_slice
from tests.sizes import examples
from tests.unit.allocator.holdings import hold_device
from tests.unit.allocator.taint_rules import taint_rule

DRAWS = {"card": {"memory": "1"}}
SICK = [{"key": "sick", "effect": "NoSchedule"}]
#: Devices that differ in everything that is computed from them.
DEVICES: tuple[dict[str, Any], ...] = (
    device("a"),
    device("b", capacity={"mem": "4"}, shared=True),
    device("c", draws=DRAWS),
    device("d", taints=SICK),
    device("e", fields={"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}),
    device("f", fields={"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}),
    device("a", numa=1),
)
POOLS = st.lists(
    st.fixed_dictionaries(
        {
            "driver": st.sampled_from(["gpu.example.com", "nic.example.com"]),
            "devices": st.lists(st.sampled_from(DEVICES), max_size=3),
            "more": st.lists(st.sampled_from(DEVICES), max_size=2),
            "counters": st.booleans(),
            "missing": st.integers(0, 5).map(lambda number: number == 0),
            "skip": st.integers(0, 5).map(lambda number: number == 0),
        }
    ),
    max_size=3,
)
FEATURES = st.sampled_from(
    [
        Features(),
        Features(partitionable_devices=False),
        Features(consumable_capacity=False, binding_conditions=False),
    ]
)


def make_node(name: str, skips: bool) -> Node:
    made = node(name)
    features = (OPTIONAL_NODE_OPERATIONS,) if skips else ()
    return replace(made, status=replace(made.status, declared_features=features))


def unique(tree: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a device with an attribute that differs by node."""
    return {**tree, "attributes": {**tree.get("attributes", {}), "uuid": {"string": place}}}


def slices_of(place: str, pools: list[dict[str, Any]]) -> list[ResourceSlice]:
    """Return the slices of a node; a pool without a missing slice is complete."""
    made = []
    for number, pool in enumerate(pools):
        name = f"{place}-{number}"
        skip: dict[str, Any] = {"skipNodeOperations": ["NodePrepareResources"]} if pool["skip"] else {}
        parts: list[dict[str, Any]] = [{"devices": pool["devices"]}, {"devices": pool["more"]}]
        if pool["counters"]:
            parts.append({"counters": {"card": {"memory": "2"}}})
        for part in parts:
            part |= (
                {"devices": [unique(each, place) for each in part["devices"]]} if "devices" in part else {}
            )
        count = len(parts) + pool["missing"]
        made += [
            resource_slice(
                **part,
                name=f"{name}-{index}",
                driver=pool["driver"],
                pool=name,
                count=count,
                **{"nodeName": place, **skip},
            )
            for index, part in enumerate(parts)
        ]
    return made


def content(devices: NodeDevices, state: AllocationState) -> dict[str, Any]:
    """Return everything that a search reads."""
    selectors = (
        'device.driver == "gpu.example.com"',
        'device.attributes["gpu.example.com"].numa == 1',
        'device.attributes["gpu.example.com"].uuid == "n1"',
        'device.attributes["gpu.example.com"].exists(name, name == "numa")',
    )
    usage = DeviceUsage(devices, state)
    return {
        "node": devices.node.metadata.name,
        "pools": [
            (pool.id, pool.status, pool.reason, [view.name for view in pool.slices], pool.counters)
            for pool in devices.pools
        ],
        "entries": [
            (each.id, each.device, each.view.name, each.shareable, each.capacity, each.draw, each.groups)
            for each in devices.entries
        ],
        "index": devices.index,
        "capacities": devices.capacities,
        "counters": (devices.base_counters, devices.counter_pools, devices.group_sets),
        "masks": (devices.all, devices.shareable, devices.counting, devices.elsewhere, devices.binding),
        "more masks": (devices.unsupported, devices.mapped, devices.taint_masks),
        "selected": [repr(devices.select((one,), ())) for one in selectors],
        "numa": [(table.sets, table.values, table.has) for table in devices.tables("gpu.example.com/numa")],
        "signature": devices.signature,
        "usage": (usage.signature, usage.blocked),
    }


@settings(max_examples=examples(150))
@given(
    types=st.lists(POOLS, min_size=1, max_size=2),
    places=st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=2, max_size=4),
    everywhere=st.integers(0, 7).map(lambda number: number == 0),
    tainted=st.sampled_from(["", "", "n0-0", "n1-0"]),
    features=FEATURES,
)
def test_a_node_has_the_devices_it_would_have_alone(
    types: list[list[dict[str, Any]]],
    places: list[tuple[int, bool]],
    everywhere: bool,
    tainted: str,
    features: Features,
) -> None:
    nodes = [make_node(f"n{number}", skips) for number, (_, skips) in enumerate(places)]
    slices = [
        each
        for number, (chosen, _) in enumerate(places)
        for each in slices_of(f"n{number}", types[chosen % len(types)])
    ]
    if everywhere:
        slices.append(resource_slice([device("x")], name="everywhere", pool="everywhere", allNodes=True))
    rules = [taint_rule(pool=tainted)] if tainted else []
    state = AllocationState()
    hold_device(state, DeviceId("gpu.example.com", "n1-0", "a"))
    together = Inventory(slices, features, rules)
    for each in nodes:
        alone = Inventory(slices, features, rules).devices_for(each)
        found = together.devices_for(each)
        if isinstance(alone, AllocationFault) or isinstance(found, AllocationFault):
            assert found == alone
        else:
            assert content(found, state) == content(alone, state)


def test_nodes_of_one_type_share_the_results_of_what_selectors_read() -> None:
    """Attributes that differ by machine matter to the selectors that read them, and only to these."""
    slices = [resource_slice([device("a", model="x", uuid=name)], name) for name in ("n0", "n1")]
    stock = Inventory(slices)
    one, other = (stock.devices_for(node(name)) for name in ("n0", "n1"))
    assert isinstance(one, NodeDevices)
    assert isinstance(other, NodeDevices)
    assert one.structure == other.structure
    assert one.signature != other.signature
    (view,), (twin,) = one.pools[0].slices, other.pools[0].slices
    environment = selector_environment(stock.features)
    model, uuid = (
        compile_selector(f'device.attributes["{DRIVER}"].{text}', environment)
        for text in ('model == "x"', 'uuid == "n0"')
    )
    assert view.matches(model) is twin.matches(model)
    assert (view.matches(uuid).bits, twin.matches(uuid).bits) == (1, 0)
    assert [entry.id.pool for entry in (*one.entries, *other.entries)] == ["n0", "n1"]


def test_a_pool_of_two_nodes_is_not_renamed() -> None:
    """Each of its nodes sees the slices of the other as devices elsewhere."""
    slices = [
        resource_slice([device(name)], name=name, pool="both", count=2, nodeName=name)
        for name in ("n0", "n1")
    ]
    for name in ("n0", "n1"):
        found = Inventory(slices).devices_for(node(name))
        assert isinstance(found, NodeDevices)
        assert [entry.id.device for entry in found.entries] == [name]
        assert [len(pool.elsewhere) for pool in found.pools] == [1]
