"""Headroom for claims: its refusal is final, and for plain claims its acceptance is too."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.gates import Gates
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequestAllocationResult, ResourceClaim
from plimsoll.ledger.claim_headroom import ClaimHeadroom, compute_claim_headroom
from plimsoll.ledger.placement import check_requests
from tests.build import (
    charging_device,
    claim,
    container,
    device_class,
    pod,
    pool_device,
    resource_slice,
    result,
    sidecar,
)
from tests.unit.ledger.fixture import LedgerFixture


def results(one: ResourceClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    assert one.status.allocation is not None
    return one.status.allocation.devices.results


def charge(claim_headroom: ClaimHeadroom, one: ResourceClaim) -> dict[str, int]:
    """Return the joint charge of a claim's results."""
    total: dict[str, int] = {}
    for found in results(one):
        known = claim_headroom.charge_context.devices.find(found, claim_headroom.charge_context.node)
        assert known is not None
        for name, amount in claim_headroom.charge(one, found, known).items():
            total[name] = total.get(name, 0) + amount
    return total


def nano(text: str) -> int:
    return Quantity.parse(text).nano


def test_headroom_for_claims() -> None:
    fixture = LedgerFixture(
        resource_slice([pool_device()]), claims=[claim("c", results=[result("socket0", cpu="8")])], cpu="10"
    )
    fixture.ledger.add(pod("q", container("a", cpu="1500m")))
    claim_headroom = compute_claim_headroom(
        fixture.ledger, pod("p", container("a", "c", cpu="2")), fixture.charge_context
    )
    assert claim_headroom.bounds["node headroom"]["cpu"] == nano("6500m")
    assert charge(claim_headroom, fixture.claims["c"]) == {"cpu": nano("8")}
    assert not claim_headroom.fits({"cpu": nano("8")})
    assert claim_headroom.fits({"cpu": nano("6500m"), "example.com/gpu": nano("99")})


def test_a_pod_level_request_bounds_claims_instead_of_the_node() -> None:
    fixture = LedgerFixture(resource_slice([charging_device("d", cpu="1")]), cpu="100")
    one = pod("p", container("a", cpu="3"), resources={"requests": {"cpu": "11"}})
    bounds = compute_claim_headroom(fixture.ledger, one, fixture.charge_context).bounds
    assert bounds["pod-level request"] == {"cpu": nano("8")}
    assert "cpu" not in bounds["node headroom"]


def test_known_charges_reduce_the_headroom() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]), claims=[claim("c", results=[result("d")])], cpu="10"
    )
    one = pod("p", container("a", "c", cpu="1"))
    charged_claims = fixture.check_placement(one).charged_claims or ()
    bounds = compute_claim_headroom(fixture.ledger, one, fixture.charge_context, charged_claims).bounds
    assert bounds["node headroom"]["cpu"] == nano("5")


def test_overhead_per_pod_counts() -> None:
    overhead = {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "100m", "perContainer": "1"}}}}
    fixture = LedgerFixture(
        resource_slice([charging_device("d", fields=overhead)]), claims=[claim("c", results=[result("d")])]
    )
    claim_headroom = compute_claim_headroom(fixture.ledger, pod("p"), fixture.charge_context)
    assert charge(claim_headroom, fixture.claims["c"]) == {"cpu": nano("100m")}


def test_a_device_without_a_policy_is_not_allocated() -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "k"}}
    spec = {
        "managesNodeAllocatableResources": True,
        "nodeAllocatableResourceAccountingPolicies": {"memory": "Max"},
    }
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="1")]),
        claims=[claim("c", request, results=[result("d")])],
        classes=[device_class("k", **spec)],
    )
    claim_headroom = compute_claim_headroom(fixture.ledger, pod("p"), fixture.charge_context)
    assert not claim_headroom.fits(charge(claim_headroom, fixture.claims["c"]))


def test_without_the_gate_nothing_is_bounded() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d")]), gates=Gates.of({"DRANodeAllocatableResources": False})
    )
    assert compute_claim_headroom(fixture.ledger, pod("p"), fixture.charge_context).bounds == {}


SIZES = st.integers(0, 6).map(str)


@st.composite
def cases(draw: st.DrawFn) -> tuple[LedgerFixture, Any, bool]:
    policies = st.sampled_from(("", "AddPerClaim", "AddPerReference", "Max", "ConsumeFrom"))
    names = ("x", "y")
    devices, plain = [], True
    for name in names:
        policy = draw(policies)
        plain = plain and policy in ("", "AddPerClaim")
        devices.append(
            charging_device(name, cpu={"allocationMultiplier": draw(SIZES), "accountingPolicy": policy})
        )
    fixture = LedgerFixture(
        resource_slice(devices),
        claims=[claim(name, results=[result(name)]) for name in names],
        cpu=draw(st.integers(0, 16).map(str)),
    )
    if draw(st.booleans()):
        fixture.ledger.add(pod("q", container("a", cpu=draw(SIZES))))
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
    return fixture, one, plain


@given(cases())
def test_the_headroom_never_refuses_a_placement_that_fits(case: tuple[LedgerFixture, Any, bool]) -> None:
    fixture, one, plain = case
    claim_headroom = compute_claim_headroom(fixture.ledger, one, fixture.charge_context)
    total: dict[str, int] = {}
    for found in fixture.claims.values():
        for name, amount in charge(claim_headroom, found).items():
            total[name] = total.get(name, 0) + amount
    judged = fixture.check_placement(one)
    fits = judged.verdict.fits and check_requests(fixture.ledger, one, judged.charged_claims or ()).fits
    if fits:
        assert claim_headroom.fits(total)
    elif plain and check_requests(fixture.ledger, one).fits:
        broken = any(left < 0 for left in claim_headroom.bounds["pod-level request"].values())
        assert broken or not claim_headroom.fits(total)
