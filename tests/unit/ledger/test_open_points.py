"""The open points of the accounting policies, P1 to P15, each with its resolution.

The points are those of docs/spec/accounting.md, "Accounting policies".
"""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy, Form, read_class
from plimsoll.ledger.messages import format_reasons
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.status import write_charges
from plimsoll.ledger.verdict import Cause, VerdictCode
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
    sidecar,
)
from tests.unit.ledger.fixture import LedgerFixture


def under(
    policy: str, quantity: str = "4", *, names: tuple[str, ...] = ("c",), **fixture: Any
) -> LedgerFixture:
    """Return a ledger with claims that each hold one device under a policy."""
    devices = [
        charging_device(f"dev-{n}", cpu={"allocationMultiplier": quantity, "accountingPolicy": policy})
        for n in names
    ]
    return LedgerFixture(
        resource_slice(devices), claims=[claim(n, results=[result(f"dev-{n}")]) for n in names], **fixture
    )


def refusal(fixture: LedgerFixture, one: Pod) -> tuple[VerdictCode, Cause]:
    verdict = fixture.check_placement(one).verdict
    return verdict.code, verdict.reasons[0].cause


def test_p1_the_policy_of_a_mapping_or_class_is_kept_in_the_status() -> None:
    fixture = under("AddPerReference")
    (charged_claim,) = fixture.place(pod("p", container("a", "c", cpu="1")))
    assert charged_claim.policy("cpu") is AccountingPolicy.ADD_PER_REFERENCE
    for form in Form:
        written = write_charges(pod("p"), [charged_claim], form).lossless(form)
        assert "AddPerReference" in codec.encode(written).decode()


def test_p1_a_default_policy_is_not_written() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]), claims=[claim("c", results=[result("d")])]
    )
    (charged_claim,) = fixture.place(pod("p", container("a", "c")))
    assert charged_claim.policy("cpu") is AccountingPolicy.ADD_PER_CLAIM
    assert charged_claim.charge.resources["cpu"].policy == ""


def test_p2_a_class_is_read_under_either_name() -> None:
    assert read_class(device_class("k", managesNodeAllocatableResources=True).spec).manages
    assert read_class(device_class("k", managesNativeResources=True).spec).manages
    both = device_class("k", managesNodeAllocatableResources=False, managesNativeResources=True)
    assert not read_class(both.spec).manages


def with_class(**spec: object) -> LedgerFixture:
    request = {"name": "r", "exactly": {"deviceClassName": "k"}}
    return LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]),
        claims=[claim("c", request, results=[result("d")])],
        classes=[device_class("k", **spec)],
    )


def test_p3_without_a_policy_it_is_added_per_claim() -> None:
    assert with_class().cost(pod("p", container("a", "c"), container("b", "c"))) == 4000


@pytest.mark.parametrize("field", ["managesNodeAllocatableResources", "managesNativeResources"])
def test_p3_a_class_that_manages_node_resources_without_policies_adds_per_claim(field: str) -> None:
    cost = with_class(**{field: True}).cost(pod("p", container("a", "c"), container("b", "c")))
    assert cost == 4000


def test_p3_a_class_with_policies_must_have_one_for_each_resource() -> None:
    policies = {"memory": "AddPerClaim"}
    fixture = with_class(
        managesNodeAllocatableResources=True, nodeAllocatableResourceAccountingPolicies=policies
    )
    verdict = fixture.check_placement(pod("p", container("a", "c"))).verdict
    assert verdict.code is VerdictCode.UNRESOLVABLE
    assert format_reasons(verdict) == ("claim c, device d: no accounting policy for cpu",)


def test_p3_the_device_overrides_the_class() -> None:
    reference = {"nodeAllocatableResourceAccountingPolicies": {"cpu": "AddPerReference"}}
    assert with_class(**reference).cost(pod("p", container("a", "c"), container("b", "c"))) == 8000
    request = {"name": "r", "exactly": {"deviceClassName": "k"}}
    fixture = LedgerFixture(
        resource_slice(
            [charging_device("d", cpu={"allocationMultiplier": "4", "accountingPolicy": "AddPerClaim"})]
        ),
        claims=[claim("c", request, results=[result("d")])],
        classes=[device_class("k", **reference)],
    )
    assert fixture.cost(pod("p", container("a", "c"), container("b", "c"))) == 4000


def test_p3_an_unknown_policy_is_rejected() -> None:
    assert refusal(under("AddTwice"), pod("p", container("a", "c"))) == (
        VerdictCode.UNRESOLVABLE,
        Cause.UNKNOWN_POLICY,
    )


@pytest.mark.parametrize(("chosen", "cost"), [("fast", 4000), ("slow", 8000)])
def test_p4_the_class_of_the_chosen_alternative_counts(chosen: str, cost: int) -> None:
    request = {
        "name": "r",
        "firstAvailable": [
            {"name": "fast", "deviceClassName": "per-claim"},
            {"name": "slow", "deviceClassName": "per-reference"},
        ],
    }
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]),
        claims=[claim("c", request, results=[result("d", request=f"r/{chosen}")])],
        classes=[
            device_class("per-claim", nodeAllocatableResourceAccountingPolicies={"cpu": "AddPerClaim"}),
            device_class(
                "per-reference", nodeAllocatableResourceAccountingPolicies={"cpu": "AddPerReference"}
            ),
        ],
    )
    assert fixture.cost(pod("p", container("a", "c"), container("b", "c"))) == cost


def test_p5_one_claim_cannot_have_two_policies_for_a_resource() -> None:
    devices = [
        charging_device("x", cpu={"allocationMultiplier": "1", "accountingPolicy": "Max"}),
        charging_device("y", cpu={"allocationMultiplier": "1", "accountingPolicy": "AddPerClaim"}),
    ]
    fixture = LedgerFixture(resource_slice(devices), claims=[claim("c", results=[result("x"), result("y")])])
    verdict = fixture.check_placement(pod("p", container("a", "c"))).verdict
    assert verdict.code is VerdictCode.UNRESOLVABLE
    assert format_reasons(verdict) == (
        "claim c: devices with different accounting policies for cpu: AddPerClaim, Max",
    )


def test_p5_none_and_add_per_claim_are_the_same_policy() -> None:
    devices = [
        charging_device("x", cpu="1"),
        charging_device("y", cpu={"allocationMultiplier": "1", "accountingPolicy": "AddPerClaim"}),
    ]
    fixture = LedgerFixture(resource_slice(devices), claims=[claim("c", results=[result("x"), result("y")])])
    assert fixture.cost(pod("p", container("a", "c"))) == 2000


def test_p6_pods_do_not_share_what_is_added_per_claim() -> None:
    fixture = under("AddPerClaim")
    fixture.place(pod("p", container("a", "c")))
    assert refusal(fixture, pod("q", container("a", "c"))) == (
        VerdictCode.UNRESOLVABLE,
        Cause.USED_BY_ANOTHER,
    )


def test_p6_where_they_may_the_node_pays_once_while_anyone_uses_it() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]),
        claims=[claim("c", results=[result("d")])],
        profile=AccountingProfile(name="sharing", share_per_claim=True),
    )
    first, second = (pod(n, container("a", "c", cpu="1")) for n in ("p", "q"))
    fixture.place(first)
    assert fixture.cpu == 5000
    fixture.place(second)
    assert fixture.cpu == 6000
    fixture.ledger.remove(first)
    assert fixture.cpu == 5000
    fixture.ledger.remove(second)
    assert fixture.cpu == 0


def test_p7_every_pod_level_request_covers_a_shared_claim_in_full() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="4")]),
        claims=[claim("c", results=[result("d")])],
        profile=AccountingProfile(name="sharing", share_per_claim=True),
    )
    budget: dict[str, Any] = {"resources": {"requests": {"cpu": "5"}}}
    fixture.place(pod("p", container("a", "c", cpu="1"), **budget))
    assert fixture.cpu == 5000
    fixture.place(pod("q", container("a", "c", cpu="1"), **budget))
    assert fixture.cpu == 6000  # the claim's 4 are charged once
    small = pod("s", container("a", "c", cpu="1"), resources={"requests": {"cpu": "4"}})
    assert refusal(fixture, small) == (VerdictCode.UNRESOLVABLE, Cause.POD_LEVEL_REQUEST)
    assert fixture.ledger.verify() == []


def test_p8_a_reference_is_a_container_not_an_element_of_its_list() -> None:
    fixture = under("AddPerReference")
    twice = container("a")
    twice["resources"]["claims"] = [{"name": "c", "request": "x"}, {"name": "c", "request": "y"}]
    assert fixture.cost(pod("p", twice)) == 4000
    assert fixture.cost(pod("p", twice, container("b", "c"))) == 8000


def test_p9_references_of_init_containers_count_where_they_run() -> None:
    fixture = under("AddPerReference")
    # The init container's phase needs 2 + 4, the regular one 5: not 5 + 4.
    assert fixture.cost(pod("p", container("a", cpu="5"), init=[container("i", "c", cpu="2")])) == 6000
    # A sidecar runs in both.
    assert fixture.cost(pod("p", container("a", cpu="5"), init=[sidecar("s", "c", cpu="2")])) == 11000


def test_p10_a_reference_policy_without_references_charges_once() -> None:
    assert under("AddPerReference").cost(pod("p", container("a", cpu="1"), claims=["c"])) == 5000


def test_p11_max_over_containers_that_share_a_claim_is_taken_once() -> None:
    fixture = under("Max")
    assert fixture.cost(pod("p", container("a", "c", cpu="1"), container("b", "c", cpu="2"))) == 4000
    assert fixture.cost(pod("p", container("a", "c", cpu="3"), container("b", "c", cpu="2"))) == 5000
    assert fixture.cost(pod("p", container("a", "c", cpu="1"), container("b", cpu="2"))) == 6000


def test_p11_overlapping_claims_form_one_group() -> None:
    fixture = under("Max", names=("c", "d"))
    joined = pod(
        "p", container("a", "c", cpu="1"), container("b", "c", "d", cpu="2"), container("e", "d", cpu="6")
    )
    assert fixture.cost(joined) == 9000  # max(1 + 2 + 6, 4 + 4)
    apart = pod("p", container("a", "c", cpu="1"), container("e", "d", cpu="6"))
    assert fixture.cost(apart) == 10000  # max(1, 4) + max(6, 4)


def test_p12_max_in_an_init_container_counts_in_its_own_phase() -> None:
    fixture = under("Max")
    assert fixture.cost(pod("p", container("a", cpu="3"), init=[container("i", "c", cpu="1")])) == 4000
    assert fixture.cost(pod("p", container("a", cpu="5"), init=[container("i", "c", cpu="1")])) == 5000


def test_p12_a_sidecar_is_grouped_with_the_regular_containers() -> None:
    fixture = under("Max")
    shared = pod("p", container("a", "c", cpu="2"), init=[sidecar("s", "c", cpu="1")])
    assert fixture.cost(shared) == 4000


@pytest.mark.parametrize("policy", ["Max", "ConsumeFrom"])
def test_p13_claims_of_one_container_must_come_from_one_driver(policy: str) -> None:
    rule = {"allocationMultiplier": "4", "accountingPolicy": policy}
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu=rule)], driver="x.example.com"),
        resource_slice([charging_device("d", cpu=rule)], driver="y.example.com"),
        claims=[
            claim("c", results=[result("d", "x.example.com")]),
            claim("d", results=[result("d", "y.example.com")]),
        ],
    )
    verdict = fixture.check_placement(pod("p", container("a", "c", "d", cpu="1"))).verdict
    assert verdict.code is VerdictCode.UNRESOLVABLE
    assert format_reasons(verdict) == (
        f"container a: claims with accounting policy {policy} for cpu from different drivers: "
        "x.example.com, y.example.com",
    )
    assert fixture.check_placement(
        pod("p", container("a", "c", cpu="1"), container("b", "d", cpu="1"))
    ).verdict.fits


@pytest.mark.parametrize("driver", [DRIVER, "other.example.com"])
def test_p14_max_and_consume_from_never_meet_in_a_container(driver: str) -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("m", cpu={"allocationMultiplier": "4", "accountingPolicy": "Max"})]),
        resource_slice([pool_device("s", "ConsumeFrom")], driver=driver),
        claims=[claim("c", results=[result("m")]), claim("d", results=[result("s", driver, cpu="8")])],
    )
    assert refusal(fixture, pod("p", container("a", "c", "d", cpu="1"))) == (
        VerdictCode.UNRESOLVABLE,
        Cause.MAX_WITH_POOL,
    )


def test_p15_unreferenced_claims_under_max_and_consume_from() -> None:
    assert under("Max").cost(pod("p", container("a", cpu="5"), claims=["c"])) == 9000
    fixture = under("ConsumeFrom")
    assert fixture.cost(pod("p", container("a", cpu="5"), claims=["c"])) == 9000
    fixture.place(pod("p", container("a", cpu="5"), claims=["c"]))
    state = fixture.ledger.claim_state("default", "c")
    assert state is not None
    assert not state.consumed["cpu"]
