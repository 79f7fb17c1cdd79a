"""Deliberate differences from upstream, each compared with upstream."""

from __future__ import annotations

import pytest

from plimsoll.api.forms import Form
from plimsoll.ledger.messages import format_reasons
from plimsoll.ledger.placement import PlacementCheck
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.status import write_charges
from plimsoll.ledger.verdict import VerdictCode
from tests.build import DRIVER, charging_device, claim, container, pod, resource_slice, result
from tests.unit.ledger.fixture import LedgerFixture

UPSTREAM = AccountingProfile.upstream_1_36()
OURS = AccountingProfile.default()
ONE = pod("p", container("a", "c", cpu="1"))


def charged(judged: PlacementCheck) -> str:
    assert judged.charged_claims is not None
    return str(judged.charged_claims[0].charge.resources["cpu"].quantity)


@pytest.mark.parametrize(("profile", "amount"), [(UPSTREAM, "1"), (OURS, "2")])
def test_a_device_is_found_by_driver_pool_and_name(profile: AccountingProfile, amount: str) -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="1")], driver="x.example.com"),
        resource_slice([charging_device("d", cpu="2")], driver="y.example.com"),
        claims=[claim("c", results=[result("d", "y.example.com")])],
        profile=profile,
    )
    assert charged(fixture.check_placement(ONE, "c")) == amount


@pytest.mark.parametrize(("profile", "amount"), [(UPSTREAM, "1"), (OURS, "3")])
def test_the_newest_generation_on_the_node_counts(profile: AccountingProfile, amount: str) -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="1")], generation=1),
        resource_slice([charging_device("d", cpu="2")], generation=9, nodeName="another"),
        resource_slice([charging_device("d", cpu="3")], generation=2),
        claims=[claim("c", results=[result("d")])],
        profile=profile,
    )
    assert charged(fixture.check_placement(ONE, "c")) == amount


def test_an_exclusive_device_charges_its_whole_capacity() -> None:
    key = f"{DRIVER}/cpu"
    part = charging_device("l3-0", capacity={key: "8"}, cpu={"capacityKey": key})

    def judged(profile: AccountingProfile, shared: bool = False) -> PlacementCheck:
        one = {**part, "allowMultipleAllocations": shared}
        return LedgerFixture(
            resource_slice([one]), claims=[claim("c", results=[result("l3-0")])], profile=profile
        ).check_placement(ONE, "c")

    assert charged(judged(OURS)) == "8"
    text = (
        "claim default/c, device l3-0: ConsumedCapacity is nil, but Capacity key 'gpu.example.com/cpu' "
        "is set in NodeAllocatableResourceMappings for resource cpu"
    )
    for refused in (judged(UPSTREAM), judged(OURS, shared=True)):
        assert (refused.verdict.code, format_reasons(refused.verdict)) == (VerdictCode.ERROR, (text,))
        assert refused.charged_claims is None


def test_an_unreferenced_claim_is_charged_once() -> None:
    aside = pod("p", container("a", cpu="1"), claims=["c"])

    def judged(profile: AccountingProfile) -> PlacementCheck:
        fixture = LedgerFixture(
            resource_slice([charging_device("d", cpu="4")]),
            claims=[claim("c", results=[result("d")])],
            profile=profile,
        )
        return fixture.check_placement(aside, "c")

    assert judged(OURS).demand == {"cpu": 5000}
    refused = judged(UPSTREAM).verdict
    assert refused.code is VerdictCode.UNRESOLVABLE
    assert format_reasons(refused) == (
        "claim c: node-allocatable resource claim not referenced by any container within the pod",
    )


@pytest.mark.parametrize(("profile", "fits"), [(UPSTREAM, True), (OURS, False)])
def test_a_claim_allocated_before_is_charged(profile: AccountingProfile, fits: bool) -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="6")]),
        claims=[claim("c", results=[result("d")])],
        profile=profile,
        cpu="8",
    )
    judged = fixture.check_placement(pod("p", container("a", "c", cpu="3")))
    assert judged.verdict.fits is fits
    assert len(judged.charged_claims or ()) == (0 if fits else 1)


@pytest.mark.parametrize(("profile", "listed"), [(UPSTREAM, ("a", "a", "b")), (OURS, ("a", "b"))])
def test_a_container_is_listed_once(profile: AccountingProfile, listed: tuple[str, ...]) -> None:
    twice = container("a")
    twice["resources"]["claims"] = [{"name": "c", "request": "x"}, {"name": "c", "request": "y"}]
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="1")]),
        claims=[claim("c", results=[result("d")])],
        profile=profile,
    )
    judged = fixture.check_placement(pod("p", twice, container("b", "c")), "c")
    assert judged.charged_claims is not None
    assert judged.charged_claims[0].charge.containers == listed


@pytest.mark.parametrize(
    ("profile", "cost"), [(UPSTREAM, 5000), (AccountingProfile.upstream_1_37(), 5000), (OURS, 9000)]
)
def test_policies_need_the_default_profile(profile: AccountingProfile, cost: int) -> None:
    rule = {"allocationMultiplier": "4", "accountingPolicy": "AddPerReference"}
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu=rule)]),
        claims=[claim("c", results=[result("d")])],
        profile=profile,
    )
    judged = fixture.check_placement(pod("p", container("a", "c", cpu="1"), container("b", "c")), "c")
    assert judged.demand == {"cpu": cost}


@pytest.mark.parametrize(("profile", "left"), [(UPSTREAM, 1000), (OURS, 5000)])
def test_charges_survive_a_server_that_drops_them(profile: AccountingProfile, left: int) -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]),
        claims=[claim("c", results=[result("d")])],
        profile=profile,
    )
    judged = fixture.check_placement(ONE, "c")
    fixture.ledger.assume(ONE, judged.charged_claims or ())
    fixture.ledger.add(ONE)  # the bound pod comes back without a word about claims
    assert fixture.cpu == left
    stored = write_charges(ONE, judged.charged_claims or (), Form.V1_36).lossless(Form.V1_36)
    fixture.ledger.update(stored)
    assert fixture.cpu == 5000
    assert fixture.ledger.verify() == []


def test_profiles_by_name() -> None:
    assert AccountingProfile.named("default") == OURS
    assert AccountingProfile.named("upstream-1.36") == UPSTREAM
    assert AccountingProfile.named("upstream-1.35") is None


# -- 1.37


def test_1_37_refuses_a_mapped_device_that_is_reserved_for_another_pod() -> None:
    fixture = LedgerFixture(
        resource_slice(
            [
                charging_device("d", cpu="4"),
                charging_device(
                    "o", fields={"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1"}}}}
                ),
            ]
        ),
        claims=[
            claim("c", results=[result("d")], reserved=["q"]),
            claim("o", results=[result("o")], reserved=["q"]),
        ],
        profile=AccountingProfile.upstream_1_37(),
    )
    refused = fixture.check_placement(ONE).verdict
    assert refused.code is VerdictCode.UNRESOLVABLE
    assert format_reasons(refused) == (
        "node allocatable resource claim c has a mapped device and cannot be shared across pods",
    )
    overhead_only = fixture.check_placement(pod("p", container("a", "o", cpu="1")))
    assert overhead_only.verdict.fits
    assert overhead_only.demand == {"cpu": 2000}
    fixture.claims["c"] = claim("c", results=[result("d")], reserved=["p", "q"])
    assert fixture.check_placement(ONE).verdict.fits


def test_1_37_holds_limits_against_the_pod_level_too() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4", hugepages_1Gi="2Gi")]),
        claims=[claim("c", results=[result("d")])],
        profile=AccountingProfile.upstream_1_37(),
        hugepages_1Gi="8Gi",
    )

    def texts(own: str, **limits: str) -> tuple[str, ...]:
        one = container("a", "c")
        one["resources"]["limits"] = {"cpu": own}
        level = {key.replace("_", "-"): text for key, text in limits.items()}
        return format_reasons(fixture.check_placement(pod("p", one, resources={"limits": level})).verdict)

    assert texts("2", cpu="5") == (
        "pod level limit for cpu is insufficient to cover the limit and DRA overhead for container a",
    )
    assert texts("2", cpu="6") == ()
    assert texts("2", hugepages_1Gi="1Gi") == (
        "pod level limit for hugepages-1Gi is insufficient to cover "
        "the aggregated container and node-allocatable DRA limits",
    )
