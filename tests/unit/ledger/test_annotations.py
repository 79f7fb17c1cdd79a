"""Clusters without the API fields: charges come from annotations of classes and pods."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import CLASS_KEY, POD_KEY, POLICIES, format_charges_annotation
from plimsoll.api.resource import DeviceClass
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.claim_headroom import NO_POLICY, compute_claim_headroom
from plimsoll.ledger.claims import ChargedClaim, read_charged_claims
from plimsoll.ledger.messages import format_reasons
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions, pod_requests
from plimsoll.ledger.status import build_status_entries
from plimsoll.ledger.verdict import VerdictCode
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    container,
    device_class,
    pod,
    pool_device,
    resource_slice,
    result,
)
from tests.unit.ledger.fixture import LedgerFixture

REQUEST = {"name": "r", "exactly": {"deviceClassName": "k"}}
MAPPINGS = "nodeAllocatableResourceMappings"


def annotated(words: Any, **spec: Any) -> DeviceClass:
    plain = device_class("k", **spec)
    text = words if isinstance(words, str) else json.dumps(words)
    return replace(plain, metadata=replace(plain.metadata, annotations={CLASS_KEY: text}))


def fixture(words: Any, *devices: Any, profile: AccountingProfile | None = None) -> LedgerFixture:
    """Return a node with devices of an annotated class, and a claim that holds them all."""
    results = [result(each["name"]) for each in devices]
    held = claim("c", REQUEST, results=results)
    return LedgerFixture(resource_slice(devices), claims=[held], classes=[annotated(words)], profile=profile)


ONE = pod("p", container("a", "c", cpu="1"))


def test_a_class_charges_by_its_annotation() -> None:
    words = {MAPPINGS: {"cpu": {"allocationMultiplier": "3"}}}
    assert fixture(words, charging_device("d"), charging_device("e")).cost(ONE) == 7000
    upstream = fixture(words, charging_device("d"), profile=AccountingProfile.upstream_1_36())
    assert upstream.check_placement(ONE, "c").charged_claims == ()


def test_device_mappings_override_annotations() -> None:
    words = {MAPPINGS: {"cpu": {"allocationMultiplier": "3"}, "memory": {"allocationMultiplier": "1Gi"}}}
    (charged_claim,) = fixture(words, charging_device("d", cpu="5")).place(ONE)
    assert {name: str(charge.quantity) for name, charge in charged_claim.charge.resources.items()} == {
        "cpu": "5"
    }


def test_consumed_capacity_is_charged() -> None:
    words = {MAPPINGS: {"cpu": {"capacityKey": f"{DRIVER}/cpu", "allocationMultiplier": "500m"}}}
    shared = charging_device("d", shared=True, capacity={f"{DRIVER}/cpu": "64"})
    held = claim("c", REQUEST, results=[result("d", cpu="8")])
    one = LedgerFixture(resource_slice([shared]), claims=[held], classes=[annotated(words)])
    assert one.cost(ONE) == 5000
    whole = charging_device("d", capacity={f"{DRIVER}/cpu": "8"})
    assert fixture(words, whole).cost(ONE) == 5000


def test_a_missing_capacity_is_an_error() -> None:
    words = {MAPPINGS: {"cpu": {"capacityKey": f"{DRIVER}/cpu"}}}
    (text,) = format_reasons(fixture(words, charging_device("d")).check_placement(ONE).verdict)
    assert text == (
        f"claim default/c, device d: ConsumedCapacity is nil, but Capacity key '{DRIVER}/cpu' is set in "
        f"annotation {CLASS_KEY} of its class for resource cpu"
    )


def test_policies_of_the_annotation_hold() -> None:
    words = {
        MAPPINGS: {"cpu": {"allocationMultiplier": "4"}},
        "nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"},
    }
    both = pod("p", container("a", "c", cpu="1"), container("b", "c", cpu="2"))
    assert fixture(words, charging_device("d")).cost(both) == 4000
    managed = {
        MAPPINGS: {"cpu": {"allocationMultiplier": "4"}},
        "managesNodeAllocatableResources": True,
        "nodeAllocatableResourceAccountingPolicies": {"memory": "Max"},
    }
    (text,) = format_reasons(fixture(managed, charging_device("d")).check_placement(ONE).verdict)
    assert text == "claim c, device d: no accounting policy for cpu"


def test_policies_of_the_annotation_hold_for_devices_with_mappings() -> None:
    words = {"nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"}}
    assert fixture(words, charging_device("d", cpu="4")).cost(ONE) == 4000


def test_a_bad_annotation_refuses_the_pod_by_the_name_of_the_class() -> None:
    words = {MAPPINGS: {"cpu": {"allocationMultiplier": "-3"}}}
    one = fixture(words, charging_device("d"))
    judged = one.check_placement(ONE)
    assert format_reasons(judged.verdict) == (
        f"claim c, device d: device class k, annotation {CLASS_KEY}: {MAPPINGS}[cpu]: "
        "the multiplier must be larger than zero, it is -3",
    )
    assert judged.verdict.code is not VerdictCode.UNSCHEDULABLE
    claim_headroom = compute_claim_headroom(one.ledger, ONE, one.charge_context)
    found = one.claims["c"].status.allocation
    assert found is not None
    device_d = one.charge_context.devices.find(found.devices.results[0], one.node)
    assert device_d is not None
    charged = claim_headroom.charge(one.claims["c"], found.devices.results[0], device_d)
    assert charged == {NO_POLICY: 1}
    assert not claim_headroom.fits(charged)


def test_a_device_that_is_not_published_cannot_be_charged() -> None:
    words = {MAPPINGS: {"cpu": {"allocationMultiplier": "3"}}}
    gone = LedgerFixture(claims=[claim("c", REQUEST, results=[result("d")])], classes=[annotated(words)])
    assert not gone.check_placement(ONE).verdict.fits
    bare = LedgerFixture(claims=[claim("c", REQUEST, results=[result("d")])], classes=[device_class("k")])
    assert bare.check_placement(ONE).verdict.fits


mappings = st.dictionaries(
    st.sampled_from(("cpu", "memory")),
    st.fixed_dictionaries(
        {"allocationMultiplier": st.integers(1, 9000).map(lambda n: f"{n}m")},
        optional={
            "capacityKey": st.just(f"{DRIVER}/cpu"),
            "accountingPolicy": st.sampled_from(POLICIES),
        },
    ),
    min_size=1,
)


@given(
    mappings,
    st.sampled_from(("", *POLICIES)),
    st.booleans(),
    st.integers(1, 3),
    st.booleans(),
)
def test_a_class_annotation_agrees_with_device_mappings(
    expected: dict[str, Any], policy: str, manages: bool, number: int, shared: bool
) -> None:
    """The same mapping on every device and on their class gives the same verdict and headroom."""
    of_class: dict[str, Any] = {"managesNodeAllocatableResources": manages}
    if policy:
        of_class["nodeAllocatableResourceAccountingPolicies"] = {"cpu": policy, "memory": policy}
    capacity = {f"{DRIVER}/cpu": "4"}
    names = [f"d{each}" for each in range(number)]
    consumed = {"cpu": "2"} if shared else {}
    held = claim("c", REQUEST, results=(result(name, **consumed) for name in names))
    speaking = [
        charging_device(name, shared=shared, capacity=capacity, fields={MAPPINGS: expected}) for name in names
    ]
    silent = [charging_device(name, shared=shared, capacity=capacity) for name in names]
    fixtures = (
        LedgerFixture(resource_slice(speaking), claims=[held], classes=[device_class("k", **of_class)]),
        LedgerFixture(
            resource_slice(silent), claims=[held], classes=[annotated({MAPPINGS: expected, **of_class})]
        ),
    )
    one, other = (each.check_placement(ONE) for each in fixtures)
    assert (one.verdict, one.charged_claims, one.demand) == (
        other.verdict,
        other.charged_claims,
        other.demand,
    )
    assert held.status.allocation is not None
    for found in held.status.allocation.devices.results:
        charges = []
        for each in fixtures:
            published = each.charge_context.devices.find(found, each.node)
            assert published is not None
            charges.append(
                compute_claim_headroom(each.ledger, ONE, each.charge_context).charge(held, found, published)
            )
        assert charges[0] == charges[1]


# -- pods


def noted(one: Pod, charged_claims: tuple[ChargedClaim, ...] | str) -> Pod:
    """Return a pod with its charges in the annotation."""
    text = (
        charged_claims
        if isinstance(charged_claims, str)
        else format_charges_annotation(build_status_entries(charged_claims))
    )
    return replace(one, metadata=replace(one.metadata, annotations={POD_KEY: text}))


def test_charges_in_an_annotation_are_counted() -> None:
    words = {MAPPINGS: {"cpu": {"allocationMultiplier": "3"}}}
    before = fixture(words, charging_device("d"))
    charged_claims = before.place(ONE)
    after = fixture(words, charging_device("d"))
    after.ledger.add(noted(ONE, charged_claims))  # a scheduler that starts anew has the objects only
    assert after.ledger.requested == before.ledger.requested
    assert after.cpu == 4000
    assert not after.ledger.verify()
    upstream = LedgerFixture(profile=AccountingProfile.upstream_1_36())
    upstream.ledger.add(noted(ONE, charged_claims))
    assert upstream.cpu == 1000


def test_amounts_drawn_from_a_pool_are_kept_in_the_annotation() -> None:
    held = claim("c", results=[result("socket0", cpu="8")])
    pool = pool_device(policy="ConsumeFrom")
    before, after = (LedgerFixture(resource_slice([pool]), claims=[held], cpu="128") for _ in range(2))
    charged_claims = before.place(ONE)
    after.ledger.add(noted(ONE, charged_claims))
    assert after.ledger.requested == before.ledger.requested
    (read,) = read_charged_claims(noted(ONE, charged_claims))
    assert str(read.charge.resources["cpu"].drawn) == "1"


def test_an_assumed_pod_that_comes_back_with_its_annotation_stays_as_it_is() -> None:
    words = {MAPPINGS: {"cpu": {"allocationMultiplier": "3"}}}
    one = fixture(words, charging_device("d"))
    judged = one.check_placement(ONE)
    one.ledger.assume(ONE, judged.charged_claims or ())
    entry = one.ledger.add(noted(ONE, judged.charged_claims or ()))
    assert (
        entry.charged_claims == judged.charged_claims
    )  # with devices and UIDs, which the annotation does not have
    assert one.cpu == 4000


def test_an_invalid_annotation_charges_nothing() -> None:
    for text in ("{", '[{"resourceClaimName":"c","resources":{"cpu":"-5"}}]'):
        assert read_charged_claims(noted(ONE, text)) == ()
        assert read_charges(noted(ONE, text)) == ()


def test_requests_count_the_annotation() -> None:
    one = noted(ONE, '[{"resourceClaimName":"c","containers":["a"],"resources":{"cpu":"3"}}]')
    assert str(pod_requests(one, PodResourcesOptions(count_claims=True))["cpu"]) == "4"
    assert str(pod_requests(one, PodResourcesOptions())["cpu"]) == "1"


@pytest.mark.parametrize("profile", [AccountingProfile.upstream_1_36(), AccountingProfile.upstream_1_37()])
def test_upstream_reads_no_annotations(profile: AccountingProfile) -> None:
    one = noted(ONE, '[{"resourceClaimName":"c","resources":{"cpu":"3"}}]')
    assert read_charged_claims(one, profile) == ()
    assert read_charged_claims(one) != ()
