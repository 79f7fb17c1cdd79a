"""Search limits: a search without steps or time left reports it, and hard cases end before that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.allocator import (
    Allocation,
    AllocationFault,
    AllocationOutcome,
    Features,
    Inventory,
    Refusal,
    SearchAborted,
    SearchLimits,
    allocate_claims,
    allocator,
)
from plimsoll.allocator.limits import DEADLINE_CHECK_INTERVAL
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from tests.build import DRIVER, claim, device, exactly, first_available, resource_slice
from tests.sizes import examples
from tests.unit.allocator.agreement import PROGRAMS, answer
from tests.unit.allocator.allocate import attempt, picked
from tests.unit.allocator.random_cases import generate_case


def has(name: str, value: int) -> str:
    return f'device.attributes["{DRIVER}"].{name} == {value}'


def match(attribute: str = "a", *requests: str) -> dict[str, Any]:
    return {"matchAttribute": f"{DRIVER}/{attribute}", **({"requests": list(requests)} if requests else {})}


def distinct(attribute: str = "a") -> dict[str, Any]:
    return {"distinctAttribute": f"{DRIVER}/{attribute}"}


# -- giving up


def stubborn() -> tuple[list[ResourceSlice], ResourceClaim]:
    """Return a case without solution that no sum proves: six triangles, and seven disjoint sides."""
    corners = [[3 * n + k, 3 * n + (k + 1) % 3] for n in range(6) for k in range(3)]
    devices = [device(f"d{n:02}", a=pair) for n, pair in enumerate(corners)]
    return [resource_slice(devices)], claim("c", exactly(count=7), constraints=[distinct("a")])


def test_a_search_without_steps_gives_up() -> None:
    slices = [resource_slice([device("d0"), device("d1")])]
    outcome = attempt(slices, claim("c", exactly(count=2)), limits=SearchLimits(steps=1))
    assert outcome == SearchAborted(steps=2, expired=False)
    assert str(outcome) == "gave up after 2 steps: the step budget is spent"
    assert picked(attempt(slices, claim("c", exactly(count=2)), limits=SearchLimits(steps=2))) == [
        ["d0", "d1"]
    ]


@pytest.mark.parametrize("steps", [0, 1, 10, 100, 300])
def test_running_out_of_steps_is_never_a_refusal(steps: int) -> None:
    slices, wanted = stubborn()
    assert isinstance(attempt(slices, wanted), Refusal)
    outcome = attempt(slices, wanted, limits=SearchLimits(steps=steps))
    assert outcome == SearchAborted(steps=steps + 1, expired=False)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_deadline_ends_the_search(after: int) -> None:
    asked = 0

    def expired() -> bool:
        nonlocal asked
        asked += 1
        return asked > after

    slices, wanted = stubborn()
    outcome = attempt(slices, wanted, limits=SearchLimits(expired=expired))
    assert outcome == SearchAborted(steps=after * DEADLINE_CHECK_INTERVAL + 1, expired=True)
    assert str(outcome) == f"gave up after {after * DEADLINE_CHECK_INTERVAL + 1} steps: the deadline passed"


def test_a_deadline_far_away_changes_nothing() -> None:
    slices, wanted = stubborn()
    never = SearchLimits(expired=lambda: False)
    assert attempt(slices, wanted, limits=never) == attempt(slices, wanted)


def test_requests_without_a_search_need_no_steps() -> None:
    """One device is there and two are asked for."""
    slices = [resource_slice([device("d0")])]
    gone = SearchLimits(steps=0, expired=lambda: True)
    assert isinstance(attempt(slices, claim("c", exactly(count=2)), limits=gone), Refusal)


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32), st.integers(0, 30), st.sampled_from([0, 3, 1000]))
def test_a_step_limit_never_changes_the_result(seed: int, steps: int, patience: int) -> None:
    case = generate_case(seed)
    full = answer(case)
    before = allocator.PROOF_AFTER_STEPS
    allocator.PROOF_AFTER_STEPS = patience
    try:
        outcome = allocate_claims(
            Inventory(case.slices, case.features, case.taint_rules, PROGRAMS),
            case.state,
            case.claims,
            case.node,
            classes=case.classes,
            new_id=lambda: "share",
            limits=SearchLimits(steps=steps),
        )
    finally:
        allocator.PROOF_AFTER_STEPS = before
    if isinstance(outcome, SearchAborted):
        assert outcome.steps > steps
    elif isinstance(outcome, AllocationFault):
        assert isinstance(full, AllocationFault)
        assert outcome.kind == full.kind
    else:
        assert type(outcome) is type(full)
        if isinstance(outcome, Allocation):
            assert picked(outcome) == picked(full)


# -- hard questions: each with the steps it may take


def ask(slices: Sequence[ResourceSlice], *claims: ResourceClaim, steps: int) -> AllocationOutcome:
    return attempt(slices, *claims, limits=SearchLimits(steps=steps))


def numbered(count: int, **attributes: Any) -> list[dict[str, Any]]:
    """Return devices with a unique attribute that no rule reads, and attributes computed from it."""
    return [
        device(f"d{n:02}", serial=f"{n:04}", **{key: make(n) for key, make in attributes.items()})
        for n in range(count)
    ]


MATCH_64 = {
    "all different": (numbered(64, a=lambda n: n), claim("c", exactly(count=2), constraints=[match()])),
    "pairs, three wanted": (
        numbered(64, a=lambda n: n // 2),
        claim("c", exactly(count=3), constraints=[match()]),
    ),
    "pairs, three requests": (
        numbered(64, a=lambda n: n // 2),
        claim("c", exactly("x"), exactly("y"), exactly("z"), constraints=[match()]),
    ),
    "a grid, one row and one column": (
        numbered(64, a=lambda n: n // 8, b=lambda n: n % 8),
        claim("c", exactly(count=2), constraints=[match("a"), match("b")]),
    ),
    "eight alike, but of three kinds": (
        numbered(64, a=lambda n: n // 8, b=lambda n: n % 3),
        claim("c", exactly(count=4), constraints=[match("a"), distinct("b")]),
    ),
    "lists": (
        numbered(64, a=lambda n: [n % 16, 16 + n % 15]),
        claim("c", exactly(count=6), constraints=[match()]),
    ),
    "the last of eight requests": (
        [*numbered(64, a=lambda n: n // 8, k=lambda n: 0), device("odd", a=99, k=1)],
        claim(
            "c",
            *[exactly(f"r{n}") for n in range(7)],
            exactly("odd", select=has("k", 1)),
            constraints=[match()],
        ),
    ),
}


@pytest.mark.parametrize("name", MATCH_64)
def test_64_devices_of_which_too_few_match(name: str) -> None:
    devices, wanted = MATCH_64[name]
    assert isinstance(ask([resource_slice(devices)], wanted, steps=200), Refusal)


def test_64_devices_with_one_solution() -> None:
    devices = [*numbered(64, a=lambda n: n // 2), device("odd", a=20)]
    assert picked(
        ask([resource_slice(devices)], claim("c", exactly(count=3), constraints=[match()]), steps=200)
    ) == [["d40", "d41", "odd"]]


def test_32_of_40_interchangeable_devices() -> None:
    devices = numbered(40, a=lambda n: 0)
    assert len(picked(ask([resource_slice(devices)], claim("c", exactly(count=32)), steps=40))[0]) == 32
    # Eight more are left, and nine are asked for.
    more = claim("more", exactly(count=9))
    assert isinstance(ask([resource_slice(devices)], claim("c", exactly(count=32)), more, steps=200), Refusal)


def test_32_of_40_devices_with_an_impossible_last_request() -> None:
    """31 of one kind, then one that must match them and cannot."""
    devices = [*numbered(40, a=lambda n: 0, k=lambda n: 0), device("odd", a=1, k=1)]
    wanted = claim("c", exactly("many", count=31), exactly("odd", select=has("k", 1)), constraints=[match()])
    assert isinstance(ask([resource_slice(devices)], wanted, steps=200), Refusal)


def test_32_devices_that_are_not_interchangeable() -> None:
    assert isinstance(
        ask(
            [resource_slice(numbered(64, a=lambda n: n % 31))],
            claim("c", exactly(count=32), constraints=[distinct()]),
            steps=200,
        ),
        Refusal,
    )
    found = ask(
        [resource_slice(numbered(64, a=lambda n: n % 32))],
        claim("c", exactly(count=32), constraints=[distinct()]),
        steps=200,
    )
    assert picked(found) == [[f"d{n:02}" for n in range(32)]]
    # Half of them alike on either side, and one too few on both.
    halves = [resource_slice(numbered(62, a=lambda n: n % 2))]
    assert isinstance(ask(halves, claim("c", exactly(count=32), constraints=[match()]), steps=200), Refusal)


def test_shares_that_do_not_add_up() -> None:
    """Capacity for 13 shares of 7 on devices of 10 to 17, and 24 requests."""
    devices = [device(f"d{n}", shared=True, capacity={"mem": str(10 + n)}, serial=n) for n in range(8)]
    claims = [
        claim(f"c{number}", *[exactly(f"r{n}", capacity={"mem": "7"}) for n in range(8)])
        for number in range(3)
    ]
    assert isinstance(ask([resource_slice(devices)], *claims, steps=5_000), Refusal)


def lists(depth: int, width: int, select: Any) -> list[dict[str, Any]]:
    return [
        first_available(f"r{n}", *[exactly(f"s{k}", select=select(n, k)) for k in range(width)])
        for n in range(depth)
    ]


def test_alternatives_whose_last_choice_blocks_later_requests() -> None:
    """8 requests of 8 alternatives over 64 devices, and then one device that matches none of the last."""
    devices = [*numbered(64, a=lambda n: 0, k=lambda n: n // 8), device("odd", a=1, k=99)]
    wanted = claim(
        "c",
        *lists(8, 8, lambda n, k: has("k", k)),
        exactly("odd", select=has("k", 99)),
        constraints=[match("a", "r7", "odd")],
    )
    assert isinstance(ask([resource_slice(devices)], wanted, steps=100_000), Refusal)


def test_alternatives_with_one_device_too_few() -> None:
    devices = numbered(7, k=lambda n: n)
    wanted = claim("c", *lists(8, 8, lambda n, k: has("k", (n + k) % 8)))
    assert isinstance(ask([resource_slice(devices)], wanted, steps=2_000), Refusal)
    enough = numbered(8, k=lambda n: n)
    assert picked(ask([resource_slice(enough)], wanted, steps=100)) == [[f"d{n:02}" for n in range(8)]]


def test_alternatives_before_a_request_that_cannot_be_satisfied() -> None:
    devices = numbered(16, k=lambda n: n)
    for count, kind in ((9, Refusal), (8, Allocation)):
        wanted = claim("c", *lists(8, 8, lambda n, k: has("k", (n + k) % 16)), exactly("rest", count=count))
        assert isinstance(ask([resource_slice(devices)], wanted, steps=500), kind)


def test_alternatives_limited_by_32_results() -> None:
    """Eight times eight devices are too many for one claim: the later lists take fewer."""
    wanted = claim(
        "c", *[first_available(f"r{n}", *[exactly(f"s{k}", count=8 - k) for k in range(8)]) for n in range(8)]
    )
    outcome = ask([resource_slice(numbered(40))], wanted, steps=2_000)
    assert isinstance(outcome, Allocation)
    assert outcome.alternatives == ((0, 0, 0, 4, 7, 7, 7, 7),)
    assert len(picked(outcome)[0]) == 32


def test_requests_that_use_up_the_devices_of_the_last() -> None:
    devices = numbered(16, k=lambda n: n % 4)
    wanted = claim(
        "c", *[exactly(f"r{n}", count=2, select=has("k", n % 4)) for n in range(8)], exactly("last")
    )
    assert isinstance(ask([resource_slice(devices)], wanted, steps=200), Refusal)


def test_more_claims_than_devices_with_different_selectors() -> None:
    """Every claim excludes another device, so no two are equal, and one device is missing."""
    claims = [claim(f"c{n}", exactly(select=f'device.attributes["{DRIVER}"].k != {n}')) for n in range(16)]
    assert isinstance(ask([resource_slice(numbered(15, k=lambda n: n))], *claims, steps=2_000), Refusal)
    assert isinstance(ask([resource_slice(numbered(16, k=lambda n: n))], *claims, steps=2_000), Allocation)


# -- limits of a claim


def test_a_claim_holds_32_results() -> None:
    slices = [resource_slice(numbered(40))]
    assert len(picked(attempt(slices, claim("c", exactly("a", count=20), exactly("b", count=12))))[0]) == 32
    outcome = attempt(slices, claim("c", exactly("a", count=20), exactly("b", count=13)))
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "too-many-devices"
    assert "number of requested devices 33 exceeds the claim limit of 32" in str(outcome)
    both = attempt(slices, claim("c", exactly("a", count=20)), claim("other", exactly("b", count=20)))
    assert [len(each) for each in picked(both)] == [20, 20]


def test_all_of_more_than_32_devices_is_too_many() -> None:
    outcome = attempt([resource_slice(numbered(33))], claim("c", exactly(mode="All")))
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "too-many-devices"
    listed = claim("c", first_available("r", exactly("all", mode="All"), exactly("some", count=3)))
    assert len(picked(attempt([resource_slice(numbered(33))], listed))[0]) == 3


# -- a proof in another order


def test_a_proof_keeps_the_order_of_list_attributes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With list attributes off, a list passes distinctAttribute as the first device, and never after."""
    devices = [device(f"l{n}", numa=[0, 1], k=0) for n in range(3)] + [device("s", numa=0, k=1)]
    wanted = claim(
        "c",
        exactly("a", select=has("k", 0)),
        exactly("b", select=has("k", 1)),
        constraints=[distinct("numa")],
    )
    monkeypatch.setattr(allocator, "PROOF_AFTER_STEPS", 0)
    found = attempt([resource_slice(devices)], wanted, features=Features(list_attributes=False))
    assert picked(found) == [["l0", "s"]]
