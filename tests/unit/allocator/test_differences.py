"""Documented differences between the allocator and Kubernetes 1.36 (docs/compat.md)."""

from __future__ import annotations

from plimsoll.allocator import Allocation, AllocationFault, AllocationState, DeviceId, Features, Refusal
from plimsoll.allocator.devices.capacity import CapacityFault, Consumption, consume
from plimsoll.api.codec import convert, to_tree
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceCapacity, DeviceRequestAllocationResult
from tests.build import DRIVER, claim, device, device_class, exactly, first_available, node, resource_slice
from tests.unit.allocator.allocate import attempt, picked
from tests.unit.allocator.holdings import hold_share


def capacity(**fields: object) -> dict[str, DeviceCapacity]:
    return {"c": convert(fields, DeviceCapacity)}


def request(amount: str) -> dict[str, Quantity]:
    return {"c": Quantity.parse(amount)}


def test_a_step_past_64_bits_is_a_fault() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "4Ei"}}
    entry = capacity(value="7Ei", requestPolicy=policy)
    assert consume(request("7Ei"), entry) == CapacityFault("c", Quantity.parse("7Ei"), negative=False)
    assert consume(request("1e30"), entry) == CapacityFault("c", Quantity.parse("1e30"), negative=False)

    devices = [device("d", shared=True, capacity={"c": {"value": "7Ei", "requestPolicy": policy}})]
    outcome = attempt([resource_slice(devices)], claim("c", exactly(capacity={"c": "7Ei"})))
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "capacity"
    assert "passes 64 bits" in str(outcome)


def test_a_rounded_amount_has_the_format_of_the_step() -> None:
    binary = {"default": "1Ki", "validRange": {"min": "1Ki", "step": "1Ki"}}
    decimal = {"default": "1024", "validRange": {"min": "1024", "step": "1024"}}
    for policy, written in ((binary, "2Ki"), (decimal, "2048")):
        found = consume(request("1500"), capacity(value="1Mi", requestPolicy=policy))
        assert isinstance(found, Consumption)
        assert str(found.amounts["c"]) == written


def test_list_values_never_break_a_selector() -> None:
    slices = [resource_slice([device("d0", numa=[0, 1], model="a"), device("d1", model="b")])]
    wanted = claim("c", exactly(select='device.attributes["gpu.example.com"].model == "a"'))
    assert picked(attempt(slices, wanted, features=Features(list_attributes=False))) == [["d0"]]


def test_all_fails_on_an_exhausted_device() -> None:
    slices = [resource_slice([device(name, shared=True, capacity={"mem": "4"}) for name in ("d0", "d1")])]
    state = AllocationState()
    hold_share(state, DeviceId(DRIVER, "p", "d0"), "x", {"mem": Quantity.parse("4")})
    wanted = claim("c", exactly(mode="All", capacity={"mem": "1"}))
    assert picked(attempt(slices, wanted)) == [["d0", "d1"]]
    assert isinstance(attempt(slices, wanted, state=state), Refusal)


def test_a_device_made_dedicated_waits_for_its_shares() -> None:
    dedicated = [resource_slice([device("d0", capacity={"mem": "4"}), device("d1", capacity={"mem": "4"})])]
    wanted = claim("c", exactly(capacity={"mem": "1"}))
    state = AllocationState()
    share = DeviceRequestAllocationResult(
        driver=DRIVER, pool="p", device="d0", share_id="x", consumed_capacity={"mem": Quantity.parse("1")}
    )
    state.hold(share)
    assert picked(attempt(dedicated, wanted, state=state)) == [["d1"]]
    state.release(share)
    assert picked(attempt(dedicated, wanted, state=state)) == [["d0"]]


def config(**fields: object) -> dict[str, object]:
    return {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}, **fields}


def test_claim_configuration_is_listed_once() -> None:
    slices = [resource_slice([device("d0"), device("d1"), device("d2")])]
    wanted = claim("c", exactly("a"), exactly("b"), exactly("c"), config=[config(requests=["a", "b"])])
    outcome = attempt(slices, wanted)
    assert isinstance(outcome, Allocation)
    made = outcome.results[0].devices.config
    assert [(each.source, each.requests) for each in made] == [("FromClaim", ("a", "b"))]


def test_configuration_for_all_requests_names_none() -> None:
    slices = [resource_slice([device("d0"), device("d1")])]
    classes = [device_class(config=[config()])]
    wanted = claim(
        "c",
        exactly("a"),
        first_available("b", exactly("x")),
        config=[config(requests=["a", "b/x"]), config()],
    )
    outcome = attempt(slices, wanted, classes=classes)
    assert isinstance(outcome, Allocation)
    made = to_tree(outcome.results[0])["devices"]["config"]
    assert [each["source"] for each in made] == ["FromClass", "FromClaim", "FromClaim"]
    assert all("requests" not in each for each in made)


def test_distinct_holds_for_three_devices_of_one_request() -> None:
    devices = [device("d0", grp="a"), device("d1", grp="b"), device("d2", grp="a"), device("d3", grp="c")]
    wanted = claim("c", exactly(count=3), constraints=[{"distinctAttribute": f"{DRIVER}/grp"}])
    assert isinstance(attempt([resource_slice(devices[:3])], wanted), Refusal)
    assert picked(attempt([resource_slice(devices)], wanted)) == [["d0", "d1", "d3"]]


def test_a_list_match_is_undone_exactly() -> None:
    """d1 narrows the common values to {1}; without d1, d0 and d2 share 0 again."""
    devices = [device("d0", numa=[0, 1]), device("d1", numa=[1, 2]), device("d2", numa=[0, 3])]
    has_three = 'device.attributes["gpu.example.com"].numa.includes(3)'
    together = [{"matchAttribute": f"{DRIVER}/numa"}]
    two = claim("c", exactly("a"), exactly("b", select=has_three), constraints=together)
    assert picked(attempt([resource_slice(devices)], two)) == [["d0", "d2"]]
    three = claim("c", exactly("a"), exactly("b"), exactly("c", select=has_three), constraints=together)
    more = [*devices, device("d3", numa=[0, 4])]
    assert picked(attempt([resource_slice(more)], three)) == [["d0", "d3", "d2"]]


def test_counter_slices_of_other_nodes_are_ignored() -> None:
    """An incomplete pool of another node with only its counters here does not block All."""
    mine = resource_slice([device("d0")], name="mine")
    foreign = resource_slice(
        counters={"set": {"slices": "4"}}, name="foreign", pool="other", count=2, nodeName="node-b"
    )
    assert picked(attempt([mine, foreign], claim("c", exactly(mode="All")))) == [["d0"]]


def test_a_persisted_share_draws_its_counters_once() -> None:
    """A share that recorded no capacity counts as a share: the next one draws no counters again."""
    slices = [
        resource_slice([device("d0", shared=True, draws={"set": {"units": "3"}})], name="a", count=2),
        resource_slice(counters={"set": {"units": "4"}}, name="b", count=2),
    ]
    state = AllocationState()
    hold_share(state, DeviceId(DRIVER, "p", "d0"), "x")
    assert picked(attempt(slices, claim("c", exactly()), state=state)) == [["d0"]]


def test_devices_of_one_node_are_not_allocated_on_another() -> None:
    assert isinstance(attempt([resource_slice([device("d0")])], claim("c", exactly()), at=node("b")), Refusal)
