"""Charged claims: the claims of a pod, their containers and charges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plimsoll.api.forms import AccountingPolicy
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.ledger.claims import (
    ChargeContext,
    ChargedClaim,
    charge_claim,
    effective_policy,
    find_referring_containers,
    find_requested_class,
    read_charged_claims,
)
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.messages import format_reason
from plimsoll.ledger.profile import AccountingProfile
from tests.build import DRIVER, charging_device, claim, container, pod, pool_device, resource_slice, result
from tests.unit.ledger.fixture import LedgerFixture


def test_generated_claims_are_named_in_the_status() -> None:
    one = pod(
        "p",
        container("a", "mine", "made", "none", "later"),
        resourceClaims=[
            {"name": "mine", "resourceClaimName": "shared"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "none", "resourceClaimTemplateName": "t"},
            {"name": "later", "resourceClaimTemplateName": "t"},
        ],
        status={
            "resourceClaimStatuses": [
                {"name": "made", "resourceClaimName": "p-made-x7"},
                {"name": "none"},
            ]
        },
    )
    assert resolve_claim_names(one) == {"mine": "shared", "made": "p-made-x7"}


def test_references_of_init_containers_come_first_and_under_any_name() -> None:
    one = pod(
        "p",
        container("a", "x"),
        container("b"),
        container("c", "y"),
        init=[container("i", "y")],
        resourceClaims=[
            {"name": "x", "resourceClaimName": "one"},
            {"name": "y", "resourceClaimName": "one"},
        ],
    )
    assert find_referring_containers(one, resolve_claim_names(one), "one", AccountingProfile.default()) == (
        "i",
        "a",
        "c",
    )
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]), claims=[claim("one", results=[result("d")])]
    )
    (charged_claim,) = fixture.place(one)  # two names for one claim: one bill
    assert charged_claim.charge.containers == ("i", "a", "c")
    assert fixture.cpu == 4000


def test_the_extended_resource_claim_is_charged_to_the_requesting_containers() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("gpu0", cpu="2")]),
        claims=[claim("p-extended", results=[result("gpu0")])],
    )
    mappings = [{"containerName": "b", "resourceName": "example.com/gpu", "requestName": "r"}]
    made = {"resourceClaimName": "p-extended", "requestMappings": mappings}
    one = pod("p", container("a"), container("b"), status={"extendedResourceClaimStatus": made})
    (charged_claim,) = fixture.place(one)
    assert (charged_claim.claim, charged_claim.charge.containers) == ("p-extended", ("b",))
    assert fixture.cpu == 2000


def test_the_charge_of_a_claim_is_the_sum_of_its_devices() -> None:
    fixture = LedgerFixture(
        resource_slice(
            [
                charging_device("cpu0", cpu="2"),
                charging_device("cpu1", cpu="2", memory="1Gi"),
                charging_device("nic"),
            ]
        ),
        claims=[claim("c", results=[result("cpu0"), result("cpu1"), result("nic"), result("cpu0")])],
    )
    (charged_claim,) = fixture.place(pod("p", container("a", "c")))
    amounts = {name: str(c.quantity) for name, c in charged_claim.charge.resources.items()}
    assert amounts == {"cpu": "6", "memory": "1Gi"}
    assert [key.device for key in charged_claim.devices("cpu")] == ["cpu0", "cpu1"]
    assert charged_claim.uid == "uid-c"


def test_claims_without_charges_are_not_listed() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("nic")]),
        claims=[claim("c", results=[result("nic")]), claim("gone", results=[result("lost")])],
    )
    judged = fixture.check_placement(pod("p", container("a", "c", "gone")))
    assert judged.verdict.fits
    assert judged.charged_claims == ()


def test_a_missing_device_next_to_a_charging_one_is_an_error() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="1")]),
        claims=[claim("c", results=[result("d"), result("lost")])],
    )
    judged = fixture.check_placement(pod("p", container("a", "c")))
    assert judged.charged_claims is None
    (reason,) = judged.verdict.reasons
    assert format_reason(reason) == (
        f"claim default/c, device lost, driver {DRIVER}: device lost not found in pool p for driver {DRIVER}"
    )


def test_a_capacity_outside_the_allocation_is_ignored() -> None:
    key = f"{DRIVER}/memory"
    both = pool_device(cpu="8")
    both["nodeAllocatableResourceMappings"]["memory"] = {"capacityKey": key}
    both["capacity"][key] = {"value": "8Gi"}
    fixture = LedgerFixture(resource_slice([both]), claims=[claim("c", results=[result("socket0", cpu="3")])])
    (charged_claim,) = fixture.place(pod("p", container("a", "c")))
    assert list(charged_claim.charge.resources) == ["cpu"]


def test_the_class_of_a_request_and_of_an_alternative() -> None:
    one = claim(
        "c",
        {"name": "plain", "exactly": {"deviceClassName": "k"}},
        {
            "name": "list",
            "firstAvailable": [
                {"name": "a", "deviceClassName": "x"},
                {"name": "b", "deviceClassName": "y"},
            ],
        },
    )
    assert [find_requested_class(one, name) for name in ("plain", "list/a", "list/b", "list", "other")] == [
        "k",
        "x",
        "y",
        "",
        "",
    ]


def test_the_three_forms_of_a_device_charge_alike() -> None:
    forms: list[dict[str, Any]] = [
        {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}},
        {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}},
        {"nativeResourceMappings": {"cpu": {"quantityFrom": {"perInstanceQuantity": "2"}}}},
    ]
    for fields in forms:
        fixture = LedgerFixture(
            resource_slice([charging_device("d", fields=fields)]), claims=[claim("c", results=[result("d")])]
        )
        assert fixture.cost(pod("p", container("a", "c"))) == 2000


def test_capacity_times_multiplier() -> None:
    rule = {"capacityKey": f"{DRIVER}/cores", "allocationMultiplier": "2"}
    shared = charging_device("d", shared=True, capacity={f"{DRIVER}/cores": "64"}, cpu=rule)
    fixture = LedgerFixture(resource_slice([shared]), claims=[claim("c", results=[result("d", cores="8")])])
    assert fixture.cost(pod("p", container("a", "c"))) == 16_000


def test_charges_read_from_a_status() -> None:
    entry = {"resourceClaimName": "c", "containers": ["a"], "resources": {"cpu": "1"}}
    one = pod("p", status={"nodeAllocatableResourceClaimStatuses": [entry]})
    (charged_claim,) = read_charged_claims(one)
    assert (charged_claim.claim, charged_claim.uid, charged_claim.parts) == ("c", "", ())
    draft = {"claimInfo": {"name": "c", "uid": "u"}, "resources": [{"resourceName": "cpu", "quantity": "1"}]}
    (charged_claim,) = read_charged_claims(pod("p", status={"nativeResourceClaimStatus": [draft]}))
    assert (charged_claim.claim, charged_claim.uid) == ("c", "u")


def test_an_unknown_policy_is_charged_as_add_per_claim() -> None:
    assert effective_policy("AddPerMoon") is AccountingPolicy.ADD_PER_CLAIM
    assert effective_policy("Max") is AccountingPolicy.MAX


def test_charges_without_a_node_consider_all_slices() -> None:
    charge_context = ChargeContext(
        DeviceIndex([resource_slice([charging_device("d", cpu="1")], nodeName="elsewhere")])
    )
    one = claim("c", results=[result("d")])
    assert one.status.allocation is not None
    found = charge_claim(one, one.status.allocation, (), charge_context)
    assert isinstance(found, ChargedClaim)


def test_admin_access_charges_nothing() -> None:
    observed = {**result("d"), "adminAccess": True}
    # 1.36 charges only claims that it allocates itself
    upstream = replace(AccountingProfile.upstream_1_36(), charge_preallocated=True)
    for profile, cost in ((AccountingProfile.default(), 0), (upstream, 4000)):
        fixture = LedgerFixture(
            resource_slice([charging_device("d", cpu="4")]),
            claims=[claim("c", results=[observed])],
            profile=profile,
        )
        assert fixture.cost(pod("p", container("a", "c"))) == cost
