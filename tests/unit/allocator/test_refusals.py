"""Refusals: the number of devices each rule excluded, and the closest device."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from plimsoll.allocator import (
    Allocation,
    AllocationOutcome,
    AllocationState,
    BudgetLine,
    Features,
    Inventory,
    NodeBudget,
    Refusal,
    allocate_claims,
    explain_lines,
)
from plimsoll.allocator.reasons.refusal import (
    BudgetShortage,
    CapacityShortage,
    ConstraintConflict,
    CounterShortage,
    GroupShortage,
    RefusalRule,
    RequestRefusal,
    SelectorRefusal,
    TaintRefusal,
)
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequest, DeviceRequestAllocationResult, DeviceTaint
from tests.build import (
    DRIVER,
    NODE,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    resource_slice,
)
from tests.unit.allocator.agreement import answer
from tests.unit.allocator.allocate import attempt, id, partitions, refused, shared
from tests.unit.allocator.holdings import hold_device
from tests.unit.allocator.random_cases import generate_case, generate_hard_case
from tests.unit.allocator.reference_allocator import AllocationCase, StepLimitExceeded, solve
from tests.unit.allocator.reference_rules import InvalidInput


def only(outcome: AllocationOutcome) -> RequestRefusal:
    """Return the refusal of a single request."""
    (request,) = refused(outcome).requests
    assert request.devices == request.left + sum(removal.count for removal in request.removals)
    return request


def counted(request: RequestRefusal) -> dict[RefusalRule, int]:
    return {removal.rule: removal.count for removal in request.removals}


def quantity(text: str) -> Quantity:
    return Quantity.parse(text)


# -- single rules


def test_no_devices() -> None:
    request = only(attempt([], claim("c", exactly())))
    assert (request.wanted, request.devices, request.left, request.removals) == (1, 0, 0, ())
    assert (request.claim, request.request, request.takes_all) == ("default/c", "r", False)


def test_too_few_devices() -> None:
    request = only(attempt([resource_slice([device("d0"), device("d1")])], claim("c", exactly(count=3))))
    assert (request.wanted, request.devices, request.left) == (3, 2, 2)
    assert not request.served


def test_selectors_name_the_device_that_passed_most() -> None:
    """The first selector of the class, or the second of the request, and its text."""
    slices = [resource_slice([device("d0", model="a"), device("d1", model="b")])]
    classes = [device_class(select=f'device.attributes["{DRIVER}"].model == "a"')]
    wanted = claim(
        "c",
        {
            "name": "r",
            "exactly": {
                "deviceClassName": "gpu",
                "allocationMode": "ExactCount",
                "count": 1,
                "selectors": [{"cel": {"expression": text}} for text in ("true", "false", "true")],
            },
        },
    )
    request = only(attempt(slices, wanted, classes=classes))
    assert counted(request) == {RefusalRule.CLASS_SELECTOR: 1, RefusalRule.REQUEST_SELECTOR: 1}
    of_class, of_request = request.removals
    assert of_class.device == id("d1")
    assert of_class.detail == SelectorRefusal(0, f'device.attributes["{DRIVER}"].model == "a"')
    assert of_request.device == id("d0")
    assert of_request.detail == SelectorRefusal(1, "false")


def test_devices_for_other_nodes() -> None:
    devices = [device("d0", fields={"nodeName": "node-b"}), device("d1", fields={"nodeName": NODE})]
    request = only(
        attempt([resource_slice(devices, perDeviceNodeSelection=True)], claim("c", exactly(count=2)))
    )
    assert counted(request) == {RefusalRule.NODE: 1}
    assert request.removals[0].device == id("d0")


def test_binding_conditions_with_the_gate_off() -> None:
    slices = [resource_slice([device("d0", fields={"bindingConditions": ["ready"]})])]
    request = only(attempt(slices, claim("c", exactly()), features=Features(binding_conditions=False)))
    assert counted(request) == {RefusalRule.BINDING: 1}


def test_devices_allocated_to_others() -> None:
    state = AllocationState()
    hold_device(state, id("d1"))
    slices = [resource_slice([device("d0"), device("d1")])]
    request = only(attempt(slices, claim("c", exactly(count=2)), state=state))
    assert counted(request) == {RefusalRule.TAKEN: 1}
    assert (request.left, request.removals[0].device) == (1, id("d1"))


def test_taints_that_are_not_tolerated() -> None:
    taint = {"key": "sick", "value": "yes", "effect": "NoSchedule"}
    slices = [resource_slice([device("d0", taints=[{"key": "fine", "effect": "None"}, taint])])]
    request = only(attempt(slices, claim("c", exactly())))
    assert counted(request) == {RefusalRule.TAINT: 1}
    assert request.removals[0].detail == TaintRefusal(
        DeviceTaint(key="sick", value="yes", effect="NoSchedule")
    )


@pytest.mark.parametrize(
    ("capacity", "asked", "shortage"),
    [
        (shared("4Gi"), "5Gi", CapacityShortage("short", "mem", quantity("5Gi"), quantity("4Gi"))),
        (
            shared("8", default="1", validRange={"min": "1", "max": "4"}),
            "5",
            CapacityShortage("above-max", "mem", quantity("5"), quantity("4")),
        ),
        (
            shared("8", default="1", validValues=["1", "2"]),
            "3",
            CapacityShortage("no-valid-value", "mem", quantity("3"), quantity("2")),
        ),
        ({"other": "4"}, "1", CapacityShortage("undefined", "mem", quantity("1"), quantity("0"))),
    ],
)
def test_insufficient_capacity(capacity: dict[str, Any], asked: str, shortage: CapacityShortage) -> None:
    slices = [resource_slice([device("d0", shared=True, capacity=capacity)])]
    request = only(attempt(slices, claim("c", exactly(capacity={"mem": asked}))))
    assert counted(request) == {RefusalRule.CAPACITY: 1}
    assert request.removals[0].detail == shortage


def test_capacity_consumed_by_others() -> None:
    """Of the three, the one that lacks least is named, with what is left of it."""
    state = AllocationState()
    for name, amount in (("d0", "7Gi"), ("d1", "5Gi"), ("d2", "6Gi")):
        consumed = {"mem": quantity(amount)}
        state.hold(
            DeviceRequestAllocationResult(
                driver=DRIVER, pool="p", device=name, share_id=name, consumed_capacity=consumed
            )
        )
    slices = [resource_slice([device(f"d{n}", shared=True, capacity={"mem": "8Gi"}) for n in range(3)])]
    request = only(attempt(slices, claim("c", exactly(capacity={"mem": "4Gi"})), state=state))
    assert counted(request) == {RefusalRule.CAPACITY: 3}
    assert request.removals[0].device == id("d1")
    assert request.removals[0].detail == CapacityShortage("short", "mem", quantity("4Gi"), quantity("3Gi"))


def test_insufficient_counters() -> None:
    request = only(attempt(partitions("1", "3", "2"), claim("c", exactly())))
    assert counted(request) == {RefusalRule.COUNTER: 2}
    assert request.removals[0].device == id("d1")
    assert request.removals[0].detail == CounterShortage("set", "units", 2 * 10**9, 10**9)


def test_counters_consumed_by_others() -> None:
    state = AllocationState()
    hold_device(state, id("d0"))
    request = only(attempt(partitions("4", "3", "2"), claim("c", exactly()), state=state))
    assert counted(request) == {RefusalRule.TAKEN: 1, RefusalRule.COUNTER: 1}
    assert request.removals[1].detail == CounterShortage("set", "units", 2 * 10**9, 10**9)


def test_overdrawn_counters_block_all_devices_of_their_set() -> None:
    state = AllocationState()
    hold_device(state, id("d0"))
    request = only(attempt(partitions("2", "3", "0"), claim("c", exactly()), state=state))
    assert counted(request) == {RefusalRule.TAKEN: 1, RefusalRule.COUNTER: 1}
    assert request.removals[1].detail == CounterShortage("set", "units", 0, -(10**9))


def test_partitions_with_the_gate_off() -> None:
    off = Features(partitionable_devices=False)
    refusal = refused(attempt(partitions("4", "1"), claim("c", exactly()), features=off))
    assert counted(refusal.requests[0]) == {RefusalRule.COUNTER: 1}
    assert any("partitionable devices are switched off" in line for line in explain_lines(refusal))


def test_devices_without_the_attribute() -> None:
    slices = [resource_slice([device("d0", numa=0), device("d1")])]
    request = only(
        attempt(slices, claim("c", exactly(count=2), constraints=[{"matchAttribute": f"{DRIVER}/numa"}]))
    )
    assert counted(request) == {RefusalRule.CONSTRAINT: 1}
    assert request.removals[0].detail == ConstraintConflict(f"{DRIVER}/numa", False, (), None)


@pytest.mark.parametrize(
    ("kind", "values", "pair"),
    [("matchAttribute", (0, 1, 2), (0, 1)), ("distinctAttribute", (5, 5, 5), (5, 5))],
)
def test_devices_that_break_a_constraint(kind: str, values: tuple[int, ...], pair: tuple[int, int]) -> None:
    """All three are there, but at most one at a time: a pair is named."""
    slices = [resource_slice([device(f"d{n}", numa=value) for n, value in enumerate(values)])]
    request = only(attempt(slices, claim("c", exactly(count=2), constraints=[{kind: f"{DRIVER}/numa"}])))
    assert (request.left, request.largest_group, request.removals) == (3, 1, ())
    conflict = ConstraintConflict(
        f"{DRIVER}/numa", kind == "distinctAttribute", (str(pair[1]),), id("d0"), (str(pair[0]),)
    )
    assert request.conflict == (id("d1"), conflict)
    assert not request.served


def test_insufficient_node_resources() -> None:
    budget = NodeBudget(lambda *_: {"cpu": 8}, [BudgetLine("node headroom", {"cpu": 6})])
    request = only(attempt([resource_slice([device("d0")])], claim("c", exactly()), budget=budget))
    assert counted(request) == {RefusalRule.BUDGET: 1}
    assert request.removals[0].detail == BudgetShortage("node headroom", "cpu", 8, 6)


def test_incomplete_and_invalid_pools() -> None:
    refusal = refused(attempt([resource_slice([device("d0")], count=3)], claim("c", exactly())))
    (pool,) = refusal.pools
    assert (pool.pool, pool.status, pool.reason) == (
        id("d0").pool_id,
        "incomplete",
        "has 1 of 3 slices of generation 1",
    )
    assert refusal.requests[0].devices == 0


def test_all_with_one_unavailable_device() -> None:
    state = AllocationState()
    hold_device(state, id("d1"))
    slices = [resource_slice([device("d0"), device("d1")])]
    request = only(attempt(slices, claim("c", exactly(mode="All")), state=state))
    assert (request.takes_all, request.wanted, request.left, request.served) == (True, 2, 1, False)
    assert counted(request) == {RefusalRule.TAKEN: 1}


# -- several requests


def test_requests_that_compete_for_devices() -> None:
    refusal = refused(attempt([resource_slice([device("d0")])], claim("c", exactly("a"), exactly("b"))))
    assert refusal.together
    assert all(request.served for request in refusal.requests)
    assert refusal.dead_end is not None
    assert refusal.dead_end.held == (("default/c", "a", id("d0")),)
    assert refusal.dead_end.request.request == "b"
    assert counted(refusal.dead_end.request) == {RefusalRule.PICKED: 1}


def test_a_request_that_cannot_be_served_alone_is_the_reason() -> None:
    slices = [resource_slice([device("d0"), device("d1")])]
    refusal = refused(attempt(slices, claim("c", exactly("a"), exactly("b", select="false"))))
    assert not refusal.together
    assert refusal.dead_end is None
    assert [request.served for request in refusal.requests] == [True, False]
    assert [line for line in explain_lines(refusal) if "request a" in line] == []


def test_a_list_is_the_reason_if_none_of_its_alternatives_can_be_served() -> None:
    slices = [resource_slice([device("d0")])]
    listed = first_available("r", exactly("many", count=2), exactly("other", select="false"))
    refusal = refused(attempt(slices, claim("c", listed)))
    assert [(request.request, request.served) for request in refusal.requests] == [
        ("r/many", False),
        ("r/other", False),
    ]
    assert not refusal.together


def test_a_constraint_over_several_requests() -> None:
    slices = [resource_slice([device(f"d{n}", numa=n) for n in range(3)])]
    wanted = claim("c", exactly("a"), exactly("b"), constraints=[{"matchAttribute": f"{DRIVER}/numa"}])
    refusal = refused(attempt(slices, wanted))
    assert refusal.together
    assert refusal.groups == (GroupShortage("default/c", f"{DRIVER}/numa", False, ("a", "b"), 2, 1),)
    apart = claim(
        "c",
        exactly("a", count=2),
        exactly("b", count=2),
        constraints=[{"distinctAttribute": f"{DRIVER}/numa"}],
    )
    refusal = refused(attempt([resource_slice([device(f"d{n}", numa=n % 3) for n in range(6)])], apart))
    assert refusal.groups == (GroupShortage("default/c", f"{DRIVER}/numa", True, ("a", "b"), 4, 3),)


def test_a_claim_that_is_allocated_on_other_nodes() -> None:
    made = attempt([resource_slice([device("d0")])], claim("c", exactly()))
    assert isinstance(made, Allocation)
    old, allocation = claim("old", exactly()), made.results[0]
    old = msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, allocation=allocation))
    refusal = refused(attempt([], old, at=node("node-b")))
    assert refusal.allocated_elsewhere is not None
    assert refusal.allocated_elsewhere.selector == allocation.node_selector
    assert explain_lines(refusal) == ["claim default/old is allocated on other nodes"]


# -- invariants


def alone(case: AllocationCase, request: RequestRefusal) -> AllocationCase:
    """Return a case with one request or alternative of one claim only."""
    number = next(
        number
        for number, each in enumerate(case.claims)
        if f"{each.metadata.namespace}/{each.metadata.name}" == request.claim
    )
    name, _, sub = request.request.partition("/")
    old = case.claims[number]
    kept: list[DeviceRequest] = []
    for each in old.spec.devices.requests:
        if each.name == name:
            subs = tuple(one for one in each.first_available if one.name == sub)
            kept.append(DeviceRequest(name=each.name, exactly=each.exactly, first_available=subs))
    devices = msgspec.structs.replace(old.spec.devices, requests=tuple(kept))
    wanted = msgspec.structs.replace(old, spec=msgspec.structs.replace(old.spec, devices=devices))
    return dataclasses.replace(case, claims=[wanted])


@pytest.mark.parametrize("make", [generate_case, generate_hard_case])
def test_numbers_add_up_and_only_real_holders_are_named(make: Any) -> None:
    """Each device is kept or excluded by one rule; a request reported as infeasible is infeasible by
    itself.
    """
    seen = blamed = 0
    for seed in range(400):
        case = make(seed, budget=seed % 3 == 0)
        outcome = answer(case)
        if not isinstance(outcome, Refusal):
            continue
        seen += 1
        assert outcome.node == NODE
        assert explain_lines(outcome)
        for request in (*outcome.requests, *((outcome.dead_end.request,) if outcome.dead_end else ())):
            assert request.devices == request.left + sum(removal.count for removal in request.removals)
            assert len(counted(request)) == len(request.removals)
        for request in outcome.requests:
            if request.served:
                continue
            blamed += 1
            try:
                assert solve(alone(case, request), 5_000) is None
            except (InvalidInput, StepLimitExceeded):
                continue
    assert seen > 100
    assert blamed > 50


def test_without_explaining_a_refusal_is_short() -> None:
    outcome = allocate_claims(
        Inventory([]),
        AllocationState(),
        [claim("c", exactly())],
        node(),
        classes={"gpu": device_class()},
        new_id=str,
        explain=False,
    )
    assert outcome == Refusal(NODE)
