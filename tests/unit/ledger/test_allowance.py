"""The joint budget of a device search: its no is final, and for plain claims its yes holds too."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import Quantity
from plimsoll.ledger.allowance import allowance_for
from plimsoll.ledger.amounts import add_to
from plimsoll.ledger.judge import judge_requests
from plimsoll.ledger.verdict import Cause, Reason
from tests.unit.ledger.books import (
    World,
    claim,
    container,
    device,
    device_class,
    piece,
    pod,
    pool_device,
    result,
    sidecar,
)


def test_what_is_left_for_claims() -> None:
    world = World(piece(pool_device()), claims=[claim("c", result("socket0", cpu="8"))], cpu="10")
    world.ledger.add(pod("q", container("a", cpu="1500m")))
    allowance = allowance_for(world.ledger, pod("p", container("a", "c", cpu="2")), world.pricing)
    assert str(allowance.left["cpu"]) == "6500m"
    one = world.claims["c"]
    assert one.status.allocation is not None
    charge = allowance.charge_of(one, one.status.allocation.devices.results[0])
    assert charge == {"cpu": Quantity.parse("8")}
    assert not allowance.admits(charge)
    assert allowance.admits({"cpu": Quantity.parse("6500m")})
    assert allowance.admits({"example.com/gpu": Quantity.parse("99")})
    assert not allowance.after({"cpu": Quantity.parse("6")}).admits({"cpu": Quantity.parse("1")})


def test_a_pod_level_request_bounds_claims_instead_of_the_node() -> None:
    world = World(piece(device("d", cpu="1")), cpu="100")
    one = pod("p", container("a", cpu="3"), resources={"requests": {"cpu": "11"}})
    assert str(allowance_for(world.ledger, one, world.pricing).left["cpu"]) == "8"


def test_bills_that_are_known_are_taken_off() -> None:
    world = World(piece(device("d", cpu="4")), claims=[claim("c", result("d"))], cpu="10")
    one = pod("p", container("a", "c", cpu="1"))
    bills = world.judge(one).bills or ()
    assert str(allowance_for(world.ledger, one, world.pricing, bills).left["cpu"]) == "5"


def test_a_device_without_a_policy_must_not_be_handed_out() -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "k"}}
    world = World(
        piece(device("d", cpu="1")),
        claims=[claim("c", result("d"), requests=[request])],
        classes=[device_class("k", managesNodeAllocatableResources=True)],
    )
    one = world.claims["c"]
    assert one.status.allocation is not None
    found = allowance_for(world.ledger, pod("p"), world.pricing).charge_of(
        one, one.status.allocation.devices.results[0]
    )
    assert isinstance(found, Reason)
    assert found.cause is Cause.NO_POLICY


SIZES = st.integers(0, 6).map(str)


@st.composite
def cases(draw: st.DrawFn) -> tuple[World, Any, bool]:
    policies = st.sampled_from(("", "AddPerClaim", "AddPerReference", "Max", "ConsumeFrom"))
    names = ("x", "y")
    devices, plain = [], True
    for name in names:
        policy = draw(policies)
        plain = plain and policy in ("", "AddPerClaim")
        devices.append(device(name, cpu={"allocationMultiplier": draw(SIZES), "accountingPolicy": policy}))
    world = World(
        piece(*devices),
        claims=[claim(name, result(name)) for name in names],
        cpu=draw(st.integers(0, 16).map(str)),
    )
    if draw(st.booleans()):
        world.ledger.add(pod("q", container("a", cpu=draw(SIZES))))
    refer = st.lists(st.sampled_from(names), unique=True)
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["resources"] = {"requests": {"cpu": draw(st.integers(0, 16).map(str))}}
    one = pod(
        "p",
        container("a", *draw(refer), cpu=draw(SIZES)),
        init=[draw(st.sampled_from((container, sidecar)))("i", *draw(refer), cpu=draw(SIZES))],
        claims=names,
        overhead={"cpu": draw(SIZES)},
        **spec,
    )
    return world, one, plain


@given(cases())
def test_its_no_is_final_and_its_yes_holds_for_plain_claims(case: tuple[World, Any, bool]) -> None:
    world, one, plain = case
    allowance = allowance_for(world.ledger, one, world.pricing)
    total: dict[str, Quantity] = {}
    for found in world.claims.values():
        assert found.status.allocation is not None
        for part in found.status.allocation.devices.results:
            charge = allowance.charge_of(found, part)
            assert isinstance(charge, dict)
            add_to(total, charge)
    judged = world.judge(one)
    fits = judged.verdict.fits and judge_requests(world.ledger, one, judged.bills or ()).fits
    if fits:
        assert allowance.admits(total)
    elif plain and judge_requests(world.ledger, one).fits:
        level = one.spec.resources.requests if one.spec.resources else {}
        within = allowance.left["cpu"].sign() >= 0 or "cpu" not in level
        assert not (allowance.admits(total) and within)
