"""The allocator agrees with the brute-force reference, and its allocations satisfy every rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from plimsoll.allocator import (
    Allocation,
    AllocationFault,
    Features,
    Preference,
    Refusal,
    allocator,
)
from tests.sizes import examples, some
from tests.unit.allocator.agreement import answer, picks_of
from tests.unit.allocator.invariants import find_violations
from tests.unit.allocator.random_cases import allocation_cases, generate_case, generate_hard_case
from tests.unit.allocator.reference_allocator import AllocationCase, SelectedDevice, StepLimitExceeded, solve
from tests.unit.allocator.reference_rules import InvalidInput


def expected(case: AllocationCase, attempts: int = 20_000) -> tuple[SelectedDevice, ...] | str | None:
    """Return the result of the reference allocator: devices, a kind of fault, or None."""
    try:
        return solve(case, attempts)
    except InvalidInput as fault:
        return fault.kind
    except StepLimitExceeded:
        return "too long"


def picks_wanted(case: AllocationCase, taken: tuple[SelectedDevice, ...]) -> list[list[tuple[Any, ...]]]:
    return [
        [
            (
                each.request_spec.full_name,
                each.published.id,
                each.request_spec.admin,
                {name: str(amount) for name, amount in each.consumed.items()},
            )
            for each in taken
            if each.request_spec.claim == number
        ]
        for number in range(len(case.claims))
    ]


def assert_agreement(case: AllocationCase) -> None:
    wanted, got = expected(case), answer(case)
    if wanted == "too long":
        return
    if isinstance(wanted, str):
        assert isinstance(got, AllocationFault), got
        assert got.kind == wanted
        assert str(got)
    elif wanted is None:
        assert isinstance(got, Refusal), got
    else:
        assert isinstance(got, Allocation), got
        assert picks_of(got) == picks_wanted(case, wanted)
        assert find_violations(case, got) == []


@settings(max_examples=examples(120))
@given(allocation_cases())
def test_the_reference_allocator_agrees(case: AllocationCase) -> None:
    assert_agreement(case)


@settings(max_examples=examples(80))
@given(allocation_cases(budget=True))
def test_the_reference_allocator_agrees_within_a_budget(case: AllocationCase) -> None:
    assert_agreement(case)


@pytest.mark.sized
@pytest.mark.parametrize("budget", [False, True])
def test_the_reference_allocator_agrees_many_times(budget: bool) -> None:
    for seed in some(600):
        assert_agreement(generate_case(seed, budget))


@pytest.mark.sized
@pytest.mark.parametrize("lists", [True, False])
def test_the_reference_allocator_agrees_on_hard_cases(lists: bool) -> None:
    for seed in some(600 if lists else 200):
        assert_agreement(
            generate_hard_case(seed, budget=seed % 4 == 3, features=Features(list_attributes=lists))
        )


@pytest.mark.sized
@pytest.mark.parametrize("lists", [False, True])
def test_a_proof_in_another_order_of_requests_holds_for_this_one(
    lists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stuck search looks for a proof of impossibility; here it always does."""
    monkeypatch.setattr(allocator, "PROOF_AFTER_STEPS", 0)
    features = Features(list_attributes=lists)
    for seed in some(200):
        assert_agreement(generate_case(1_000 + seed, features=features))
        assert_agreement(generate_hard_case(1_000 + seed, features=features))


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32), st.booleans())
def test_least_waste_finds_an_allocation_if_there_is_one(seed: int, budget: bool) -> None:
    case = generate_case(seed, budget)
    wanted = expected(case)
    # In another order of devices a fault may be met that this one never meets, and the other way round.
    got = answer(case, Preference.LEAST_WASTE)
    assume(not isinstance(wanted, str) and not isinstance(got, AllocationFault))
    assert isinstance(got, Allocation) == (wanted is not None)
    if isinstance(got, Allocation):
        assert find_violations(case, got) == []


@pytest.mark.slow
@settings(max_examples=8_000, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_the_reference_allocator_agrees_for_long(seed: int, budget: bool, lists: bool) -> None:
    assert_agreement(generate_case(seed, budget))
    assert_agreement(generate_hard_case(seed, budget, Features(list_attributes=lists)))
