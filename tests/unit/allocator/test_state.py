"""Allocation state: holding and releasing results are inverses."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.allocator import Allocation, AllocationState, DeviceId, PoolId, Refusal
from plimsoll.api.codec import convert
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from plimsoll.errors import StateError
from tests.build import DRIVER, claim, device, exactly, resource_slice
from tests.sizes import examples
from tests.unit.allocator.agreement import answer
from tests.unit.allocator.allocate import attempt, picked, results
from tests.unit.allocator.random_cases import generate_case

D0 = DeviceId(DRIVER, "p", "d0")
D1 = DeviceId(DRIVER, "p", "d1")


def result(
    name: str = "d0", share: str | None = None, admin: bool = False, **amounts: str
) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        driver=DRIVER,
        pool="p",
        device=name,
        share_id=share,
        admin_access=True if admin else None,
        consumed_capacity={name: Quantity.parse(text) for name, text in amounts.items()},
    )


def holding(*held: DeviceRequestAllocationResult, shared: bool = True) -> AllocationState:
    state = AllocationState(shared)
    for each in held:
        state.hold(each)
    return state


# -- hold and release

amounts = st.dictionaries(
    st.sampled_from(["mem", "cores"]),
    st.sampled_from(["0", "1", "500m", "1Gi"]).map(Quantity.parse),
    max_size=2,
)


@st.composite
def held_results(draw: st.DrawFn) -> list[DeviceRequestAllocationResult]:
    """Results of claims: a shareID is unique, a device may be held both in full and in shares."""
    made = []
    for number in range(draw(st.integers(0, 8))):
        share = draw(st.booleans())
        made.append(
            DeviceRequestAllocationResult(
                driver=draw(st.sampled_from([DRIVER, "nic.example.com"])),
                pool=draw(st.sampled_from(["p", "q"])),
                device=draw(st.sampled_from(["d0", "d1"])),
                share_id=f"s{number}" if share else None,
                admin_access=True if draw(st.integers(0, 5)) == 0 else None,
                consumed_capacity=draw(amounts) if share else {},
            )
        )
    return made


@given(held_results(), st.randoms(use_true_random=False), st.booleans())
def test_releasing_restores_the_state_in_any_order(
    made: list[DeviceRequestAllocationResult], random: object, shared: bool
) -> None:
    """Whatever was held and released in between, the state is that of what is held now."""
    state = AllocationState(shared)
    held: list[DeviceRequestAllocationResult] = []
    waiting = list(made)
    while waiting or held:
        if waiting and (not held or random.random() < 0.6):  # type: ignore[attr-defined]
            held.append(waiting.pop())
            state.hold(held[-1])
        else:
            state.release(held.pop(random.randrange(len(held))))  # type: ignore[attr-defined]
        assert state == holding(*held, shared=shared)
    assert state == AllocationState(shared)
    assert len(state) == 0


@given(st.lists(held_results(), max_size=5), st.data())
def test_allocations_count_from_when_they_are_held(
    groups: list[list[DeviceRequestAllocationResult]], data: st.DataObject
) -> None:
    """Allocations are counted when the state is read, which has no effect on what is read."""
    deferred, at_once = AllocationState(), AllocationState()
    held: list[AllocationResult] = []
    for number, group in enumerate(groups):
        # A shareID is unique in a group; those of two groups are shares of different claims.
        made = [replace(each, share_id=each.share_id and f"{number}-{each.share_id}") for each in group]
        allocation = AllocationResult(devices=DeviceAllocationResult(results=tuple(made)))
        held.append(allocation)
        deferred.hold_all(allocation)
        for each in made:
            at_once.hold(each)
        if data.draw(st.booleans()):
            assert deferred.copy() == at_once
            assert len(deferred) == len(at_once)
        if data.draw(st.booleans()):
            gone = held.pop(data.draw(st.integers(0, len(held) - 1)))
            for state in (deferred, at_once):
                state.release_all(gone)
    assert dict(deferred) == dict(at_once)
    assert deferred == at_once


@settings(max_examples=examples(50))
@given(held_results(), held_results())
def test_a_copy_is_changed_independently(
    first: list[DeviceRequestAllocationResult], second: list[DeviceRequestAllocationResult]
) -> None:
    state = holding(*first)
    copy = state.copy()
    assert copy == state
    for each in second:
        copy.hold(each)
    assert state == holding(*first)
    assert copy == holding(*first, *second)


def test_the_order_of_holding_does_not_matter() -> None:
    made = [result("d0", "a", mem="1"), result("d1"), result("d0", "b", cores="2"), result("d0", "c")]
    assert all(holding(*order) == holding(*made) for order in itertools.permutations(made))


def test_amounts_add_up() -> None:
    state = holding(result("d0", "a", mem="1Gi", cores="1"), result("d0", "b", mem="500m"))
    held = state.holding(D0)
    assert held is not None
    assert held.consumed == {"mem": Quantity.parse("1Gi").nano + Quantity.parse("500m").nano, "cores": 10**9}
    assert set(held.shares) == {"a", "b"}
    assert not held.exclusive


def test_a_released_share_leaves_no_amounts() -> None:
    """The device was given another capacity while one share was out."""
    state = holding(result("d0", "a", mem="1"))
    newer = result("d0", "b", mem="1", cores="2")
    state.hold(newer)
    state.release(newer)
    assert state == holding(result("d0", "a", mem="1"))


# -- holders


def test_admin_access_holds_nothing() -> None:
    state = holding(result("d0", admin=True), result("d0", "a", admin=True, mem="1"))
    assert state == AllocationState()
    state.release(result("d0", admin=True))
    assert len(state) == 0


def test_a_share_is_not_the_device() -> None:
    state = holding(result("d0", "a", mem="1"), result("d1"))
    share, whole = state.holding(D0), state.holding(D1)
    assert share is not None
    assert whole is not None
    assert (share.exclusive, whole.exclusive) == (0, 1)
    assert (len(share.shares), len(whole.shares)) == (1, 0)


def test_with_the_gate_off_a_share_holds_the_device() -> None:
    state = holding(result("d0", "a", mem="1"), shared=False)
    held = state.holding(D0)
    assert held is not None
    assert (held.exclusive, held.shares, held.consumed) == (1, {}, {})
    state.release(result("d0", "a", mem="1"))
    assert state == AllocationState(shared=False)


def test_states_with_and_without_the_gate_differ() -> None:
    assert AllocationState() != AllocationState(shared=False)
    assert AllocationState() != "nothing"


def test_two_holders_of_one_device_are_distinguished_from_one() -> None:
    """A double allocation found in a cluster: the device is free when both are gone."""
    state = holding(result(), result())
    state.release(result())
    assert state == holding(result())
    state.release(result())
    assert len(state) == 0


def test_devices_of_the_same_name_are_different() -> None:
    state = holding(result())
    assert state.holding(DeviceId(DRIVER, "q", "d0")) is None
    assert state.holding(DeviceId("nic.example.com", "p", "d0")) is None
    assert set(state.pool(PoolId(DRIVER, "p"))) == {"d0"}
    assert not state.pool(PoolId("nic.example.com", "p"))
    assert [id for id, _ in state] == [D0]


# -- releasing what is not held


@pytest.mark.parametrize(
    ("held", "released"),
    [
        ([], result()),
        ([result("d1")], result("d0")),
        ([result()], result("d0", "a")),
        ([result("d0", "a")], result()),
        ([result("d0", "a")], result("d0", "b")),
        ([result("d0", "a")], result("d0", "a", mem="1")),
        ([result("d0", "a", mem="1")], result("d0", "a", cores="1")),
        ([result("d0", "a", mem="1")], result("d0", "a", mem="2")),
    ],
)
def test_releasing_what_is_not_held_is_an_error(
    held: Sequence[DeviceRequestAllocationResult], released: DeviceRequestAllocationResult
) -> None:
    state = holding(*held)
    with pytest.raises(StateError, match=f"{DRIVER}/p/d0 is released but not held"):
        state.release(released)
    assert state == holding(*held)


def test_releasing_twice_is_an_error() -> None:
    state = holding(result("d0", "a", mem="1"))
    state.release(result("d0", "a", mem="1"))
    with pytest.raises(StateError):
        state.release(result("d0", "a", mem="1"))


# -- agreement with the allocator


def allocated(wanted: ResourceClaim, outcome: object) -> ResourceClaim:
    """Return the claim with its allocation in its status."""
    assert isinstance(outcome, Allocation)
    return convert(
        {
            "metadata": {"name": wanted.metadata.name, "namespace": "default"},
            "status": {
                "allocation": {
                    "devices": {
                        "results": [
                            {
                                "request": each.request,
                                "driver": each.driver,
                                "pool": each.pool,
                                "device": each.device,
                                **({"shareID": each.share_id} if each.share_id else {}),
                                **({"adminAccess": True} if each.admin_access else {}),
                                "consumedCapacity": {
                                    name: str(amount) for name, amount in each.consumed_capacity.items()
                                },
                            }
                            for each in results(outcome)
                        ]
                    }
                }
            },
        },
        ResourceClaim,
    )


def test_the_state_of_claims_equals_holding_their_results() -> None:
    slices = [resource_slice([device("d0"), device("d1", shared=True, capacity={"mem": "4"})])]
    wanted = claim(
        "c", exactly("a"), exactly("b", capacity={"mem": "1"}), exactly("c", capacity={"mem": "2"})
    )
    outcome = attempt(slices, wanted)
    state = AllocationState.of([allocated(wanted, outcome), claim("waiting", exactly())])
    assert state == holding(*results(outcome))
    assert len(state) == 2


def test_an_allocation_is_held_and_released() -> None:
    slices = [resource_slice([device("d0"), device("d1"), device("d2")])]
    state = AllocationState()
    first = attempt(slices, claim("c", exactly(count=2)), state=state)
    assert isinstance(first, Allocation)
    state.hold_all(first.results[0])
    assert picked(attempt(slices, claim("c", exactly()), state=state)) == [["d2"]]
    assert isinstance(attempt(slices, claim("c", exactly(count=2)), state=state), Refusal)
    state.release_all(first.results[0])
    assert state == AllocationState()
    assert picked(attempt(slices, claim("c", exactly(count=2)), state=state)) == picked(first)


def test_shares_are_held_and_released() -> None:
    slices = [resource_slice([device("d0", shared=True, capacity={"mem": "4"})])]
    three = claim("c", exactly(capacity={"mem": "3"}))
    state = AllocationState()
    first = attempt(slices, three, state=state)
    assert isinstance(first, Allocation)
    state.hold_all(first.results[0])
    assert isinstance(attempt(slices, three, state=state), Refusal)
    assert picked(attempt(slices, claim("c", exactly(capacity={"mem": "1"})), state=state)) == [["d0"]]
    state.release_all(first.results[0])
    assert picked(attempt(slices, three, state=state)) == [["d0"]]


def test_reading_does_not_change_the_state() -> None:
    for seed in range(150):
        case = generate_case(seed)
        before = case.state.copy()
        answer(case)
        assert case.state == before


def test_every_allocation_can_be_held_and_released() -> None:
    """Allocate, hold, release: the same state, and the same answer."""
    found = 0
    for seed in range(300):
        case = generate_case(seed)
        outcome = answer(case)
        if not isinstance(outcome, Allocation):
            continue
        found += 1
        before = case.state.copy()
        for allocation in outcome.results:
            case.state.hold_all(allocation)
        for allocation in outcome.results:
            case.state.release_all(allocation)
        assert case.state == before
        assert answer(case) == outcome
    assert found > 50


@pytest.mark.parametrize("amounts", [{"mem": "3"}, {"mem": "5"}, {"mem": "4", "cores": "1"}, {}])
def test_only_the_amounts_of_a_share_can_be_released(amounts: dict[str, str]) -> None:
    state = AllocationState()
    held = result(share="x", mem="4")
    state.hold(held)
    state.hold(result(share="y", mem="9"))
    before = state.copy()
    with pytest.raises(StateError):
        state.release(result("d0", "x", False, **amounts))
    assert state == before
    state.release(held)
    assert state != before
