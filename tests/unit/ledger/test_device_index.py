"""Lookup of the device of an allocation result: examples, and a reference that scans every slice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import Device, DeviceRequestAllocationResult, ResourceSlice
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.profile import AccountingProfile
from tests.build import NODE, charging_device, node, resource_slice


def amount(found: Device | None) -> str | None:
    return (
        None if found is None else str(found.node_allocatable_resource_mappings["cpu"].allocation_multiplier)
    )


def wanted(driver: str = "x", pool: str = "p", name: str = "d") -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(driver=driver, pool=pool, device=name)


def test_a_device_id_has_driver_pool_and_name() -> None:
    assert DeviceId.of(wanted("x", "p", "d")) == DeviceId("x", "p", "d")
    assert str(DeviceId("x.example.com", "p", "d")) == "x.example.com/p/d"


def test_slices_for_all_nodes_and_by_label() -> None:
    everywhere = DeviceIndex([resource_slice([charging_device("d", cpu="1")], driver="x", allNodes=True)])
    assert amount(everywhere.find(wanted(), node())) == "1"
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
    chosen = resource_slice(
        [charging_device("d", cpu="1")], driver="x", nodeSelector={"nodeSelectorTerms": [term]}
    )
    assert amount(DeviceIndex([chosen]).find(wanted(), node())) == "1"
    assert DeviceIndex([chosen]).find(wanted(), node("node-2")) is None


def test_devices_may_have_their_own_node_selection() -> None:
    devices = [
        charging_device("d", cpu="1", fields={"nodeName": "node-2"}),
        charging_device("e", cpu="2", fields={"nodeName": NODE}),
    ]
    index = DeviceIndex([resource_slice(devices, driver="x", perDeviceNodeSelection=True)])
    assert index.find(wanted(), node()) is None
    assert amount(index.find(wanted(name="e"), node())) == "2"
    assert amount(index.find(wanted())) == "1"  # no node given, none asked for


def test_an_invalid_selector_matches_no_node() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "Sometimes"}]}
    odd = resource_slice(
        [charging_device("d", cpu="1")], driver="x", nodeSelector={"nodeSelectorTerms": [term]}
    )
    assert DeviceIndex([odd]).find(wanted(), node()) is None


def test_a_device_gone_from_the_newest_generation_is_gone() -> None:
    index = DeviceIndex(
        [
            resource_slice([charging_device("d", cpu="1")], driver="x", generation=1),
            resource_slice([charging_device("e", cpu="2")], driver="x", generation=2),
        ]
    )
    assert index.find(wanted(), node()) is None


@st.composite
def slices(draw: st.DrawFn) -> list[ResourceSlice]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        names = draw(st.lists(st.sampled_from("de"), max_size=2))
        found.append(
            resource_slice(
                (charging_device(name, cpu=f"{number}{place}") for place, name in enumerate(names)),
                driver=draw(st.sampled_from("xy")),
                pool=draw(st.sampled_from("pq")),
                generation=draw(st.integers(1, 3)),
                nodeName=draw(st.sampled_from((NODE, "node-2"))),
            )
        )
    return found


@given(slices(), st.sampled_from("xy"), st.sampled_from("pq"), st.booleans())
def test_the_index_agrees_with_a_search(
    pieces: list[ResourceSlice], driver: str, pool: str, exact: bool
) -> None:
    profile = AccountingProfile.default() if exact else AccountingProfile.upstream_1_36()
    result = wanted(driver, pool)
    here = [
        s
        for s in pieces
        if s.spec.pool.name == pool and (not exact or (s.spec.driver == driver and s.spec.node_name == NODE))
    ]
    newest = max((s.spec.pool.generation for s in here), default=0)
    naive = [
        d
        for s in here
        for d in s.spec.devices or ()
        if d.name == "d" and (not exact or s.spec.pool.generation == newest)
    ]
    assert amount(DeviceIndex(pieces, profile).find(result, node())) == amount(naive[0] if naive else None)
