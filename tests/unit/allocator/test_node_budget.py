"""Joint allocation: devices are chosen so that their charges fit the node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from plimsoll.allocator import (
    Allocation,
    AllocationOutcome,
    AllocationState,
    BudgetLine,
    DeviceId,
    NodeBudget,
    Refusal,
)
from plimsoll.allocator.reasons.refusal import BudgetShortage, RefusalRule
from plimsoll.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim
from tests.build import DRIVER, claim, device, exactly, first_available, resource_slice
from tests.sizes import some
from tests.unit.allocator.agreement import answer, picks_of
from tests.unit.allocator.allocate import attempt, picked, results
from tests.unit.allocator.holdings import hold_device
from tests.unit.allocator.random_cases import charge as any_charge
from tests.unit.allocator.random_cases import generate_case, generate_hard_case

CPU = "cpu.example.com"

#: A node with a GPU, which takes 2 GiB of the host's memory, and 16 CPUs to be had as a device.
SLICES = [
    resource_slice([device("g0", hostMemory=2)], name="gpus"),
    resource_slice([device("socket0", shared=True, capacity={"cpu": "16"})], name="cpus", driver=CPU),
]
GPU = exactly("gpu", select=f'device.driver == "{DRIVER}"')
CPUS = exactly("cpus", select=f'device.driver == "{CPU}"', capacity={"cpu": "8"})


def price(_: ResourceClaim, result: DeviceRequestAllocationResult, device: Device) -> Mapping[str, int]:
    """Return the charge of a device: CPUs for CPU devices, memory for the GPU."""
    if result.driver == CPU:
        return {"cpu": result.consumed_capacity["cpu"].value()}
    memory = device.attributes.get("hostMemory")
    return {"memory": memory.int_value or 0} if memory is not None else {}


def headroom(**amounts: int) -> NodeBudget:
    return NodeBudget(price, [BudgetLine("node headroom", amounts)])


def ask(*requests: Mapping[str, Any], budget: NodeBudget | None = None) -> AllocationOutcome:
    return attempt(SLICES, claim("c", *requests), budget=budget)


# -- a GPU, or 8 CPUs


def test_a_gpu_or_eight_cpus() -> None:
    """The GPU where the CPUs would not fit, and the CPUs where the GPU would not."""
    prefers_cpus, prefers_gpu = first_available("r", CPUS, GPU), first_available("r", GPU, CPUS)
    plenty, few_cpus, little_memory = (
        headroom(cpu=8, memory=2),
        headroom(cpu=7, memory=2),
        headroom(cpu=8, memory=1),
    )
    for wanted, budget, found in (
        (prefers_cpus, plenty, "socket0"),
        (prefers_cpus, few_cpus, "g0"),
        (prefers_cpus, little_memory, "socket0"),
        (prefers_gpu, plenty, "g0"),
        (prefers_gpu, few_cpus, "g0"),
        (prefers_gpu, little_memory, "socket0"),
    ):
        assert picked(ask(wanted, budget=budget)) == [[found]]
    assert isinstance(ask(prefers_gpu, budget=headroom(cpu=7, memory=1)), Refusal)


def test_without_a_budget_the_first_alternative_is_taken() -> None:
    assert picked(ask(first_available("r", CPUS, GPU))) == [["socket0"]]


def test_the_devices_of_all_claims_share_the_budget() -> None:
    one, other = claim("c", first_available("r", CPUS, GPU)), claim("other", first_available("r", CPUS, GPU))
    assert picked(attempt(SLICES, one, other, budget=headroom(cpu=16))) == [["socket0"], ["socket0"]]
    # For both there are not enough CPUs: the second takes the GPU.
    assert picked(attempt(SLICES, one, other, budget=headroom(cpu=15))) == [["socket0"], ["g0"]]
    assert isinstance(attempt(SLICES, one, other, budget=headroom(cpu=15, memory=0)), Refusal)


def test_the_search_backtracks_for_the_budget() -> None:
    """With CPUs for the first request, the second, which fits nothing else, would exceed the budget."""
    flexible, strict = first_available("a", CPUS, GPU), {**CPUS, "name": "b"}
    assert picked(ask(flexible, strict, budget=headroom(cpu=16))) == [["socket0", "socket0"]]
    assert picked(ask(flexible, strict, budget=headroom(cpu=8))) == [["g0", "socket0"]]


def test_a_smaller_device_is_chosen_if_the_first_exceeds_the_budget() -> None:
    slices = [resource_slice([device("dear", hostMemory=8), device("cheap", hostMemory=1), device("free")])]
    for memory, found in ((8, "dear"), (7, "cheap"), (0, "free")):
        assert picked(attempt(slices, claim("c", exactly()), budget=headroom(memory=memory))) == [[found]]
    assert picked(attempt(slices, claim("c", exactly(count=2)), budget=headroom(memory=8))) == [
        ["dear", "free"]
    ]
    assert picked(attempt(slices, claim("c", exactly(count=2)), budget=headroom(memory=7))) == [
        ["cheap", "free"]
    ]


# -- lines


def test_every_resource_of_the_budget_is_a_bound() -> None:
    """The node has 12 CPUs left, the pod-level request allows its claims 6."""

    def lines(node: int, pod: int) -> NodeBudget:
        return NodeBudget(
            price, [BudgetLine("node headroom", {"cpu": node}), BudgetLine("pod-level request", {"cpu": pod})]
        )

    assert picked(ask(CPUS, budget=lines(8, 8))) == [["socket0"]]
    for node, pod, line, had in ((12, 6, "pod-level request", 6), (6, 12, "node headroom", 6)):
        outcome = ask(CPUS, budget=lines(node, pod))
        assert isinstance(outcome, Refusal)
        removal = outcome.requests[0].removals[-1]
        assert (removal.rule, removal.count) == (RefusalRule.BUDGET, 1)
        assert removal.detail == BudgetShortage(line, "cpu", 8, had)


def test_a_resource_outside_the_budget_is_not_bounded() -> None:
    assert picked(ask(CPUS, budget=headroom(memory=0))) == [["socket0"]]
    assert picked(ask(CPUS, budget=NodeBudget(price))) == [["socket0"]]


def test_a_device_without_charge_fits_an_exceeded_budget() -> None:
    """The node is overcommitted; devices without charge can still be allocated."""
    broken = headroom(cpu=-4, memory=-1)
    slices = [resource_slice([device("g0", hostMemory=1), device("g1")])]
    assert picked(attempt(slices, claim("c", exactly()), budget=broken)) == [["g1"]]
    assert isinstance(attempt(slices, claim("c", exactly(count=2)), budget=broken), Refusal)


def test_all_fails_if_it_exceeds_the_budget() -> None:
    slices = [resource_slice([device("g0", hostMemory=1), device("g1", hostMemory=2)])]
    everything = claim("c", exactly(mode="All"))
    assert picked(attempt(slices, everything, budget=headroom(memory=3))) == [["g0", "g1"]]
    assert isinstance(attempt(slices, everything, budget=headroom(memory=2)), Refusal)


# -- charges


def test_the_charge_is_computed_from_the_recorded_result() -> None:
    asked: list[tuple[str, DeviceRequestAllocationResult, str]] = []

    def note(
        claim: ResourceClaim, result: DeviceRequestAllocationResult, device: Device
    ) -> Mapping[str, int]:
        asked.append((claim.metadata.name, result, device.name))
        return {}

    outcome = ask(first_available("r", CPUS), budget=NodeBudget(note))
    (made,) = results(outcome)
    assert made.share_id == "share-1"
    assert made.request == "r/cpus"
    assert asked == [("c", msgspec.structs.replace(made, share_id=None), "socket0")]


def test_every_share_is_charged() -> None:
    two = [{**CPUS, "name": name} for name in ("a", "b")]
    assert picked(ask(*two, budget=headroom(cpu=16))) == [["socket0", "socket0"]]
    assert isinstance(ask(*two, budget=headroom(cpu=15)), Refusal)


def test_claims_that_are_allocated_already_are_not_charged() -> None:
    """Their cost is already part of the headroom."""
    before = ask(CPUS)
    assert isinstance(before, Allocation)
    old = claim("old", CPUS)
    status = msgspec.structs.replace(old.status, allocation=before.results[0])
    old = msgspec.structs.replace(old, status=status)
    outcome = attempt(SLICES, old, claim("c", CPUS), budget=headroom(cpu=8), state=AllocationState.of([old]))
    assert picked(outcome) == [["socket0"], ["socket0"]]


# -- no budget and a boundless one


@pytest.mark.sized
@pytest.mark.parametrize("make", [generate_case, generate_hard_case])
def test_an_unlimited_budget_changes_nothing(make: Any) -> None:
    for seed in some(300):
        case = make(seed)
        free = answer(case)
        for bounds in ([], [{"cpu": 10**9, "memory": 10**9}, {"cpu": 10**9}]):
            priced = answer(dataclasses.replace(case, charge=any_charge, bounds=bounds))
            assert type(priced) is type(free)
            if isinstance(free, Allocation) and isinstance(priced, Allocation):
                assert picks_of(priced) == picks_of(free)


@pytest.mark.sized
def test_a_budget_never_adds_devices() -> None:
    """Whatever is found within a budget could be found without one."""
    for seed in some(300):
        case = generate_case(seed, budget=True)
        if isinstance(answer(case), Allocation):
            assert isinstance(answer(dataclasses.replace(case, charge=None)), Allocation)


def test_the_free_device_that_exceeds_the_budget_is_named() -> None:
    state = AllocationState()
    hold_device(state, DeviceId(DRIVER, "p", "g0"))
    slices = [
        resource_slice([device("g0", hostMemory=1), device("g1", hostMemory=5), device("g2", hostMemory=4)])
    ]
    outcome = attempt(slices, claim("c", exactly()), budget=headroom(memory=3), state=state)
    assert isinstance(outcome, Refusal)
    found = {removal.rule: removal for removal in outcome.requests[0].removals}
    assert found[RefusalRule.TAKEN].count == 1
    assert (found[RefusalRule.BUDGET].count, found[RefusalRule.BUDGET].device.device) == (2, "g2")
    assert found[RefusalRule.BUDGET].detail == BudgetShortage("node headroom", "memory", 4, 3)
