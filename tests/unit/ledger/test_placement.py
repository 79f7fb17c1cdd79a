"""Placement check: order of its rules, and the reasons of each."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.gates import Gates
from plimsoll.ledger.messages import format_reasons
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import check_admission, check_charged_claims, check_requests
from plimsoll.ledger.verdict import VerdictCode
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    container,
    node,
    pod,
    pool_device,
    resource_slice,
    result,
)
from tests.unit.ledger.fixture import LedgerFixture


def one_claim(**allocatable: Any) -> LedgerFixture:
    return LedgerFixture(
        resource_slice([charging_device("d", cpu="6", memory="1Gi")]),
        claims=[claim("c", results=[result("d")])],
        **allocatable,
    )


def test_requests_and_claims_are_one_demand() -> None:
    fixture = one_claim(cpu="8")
    judged = fixture.check_placement(pod("p", container("a", "c", cpu="3")))
    assert judged.verdict.code is VerdictCode.UNRESOLVABLE
    assert format_reasons(judged.verdict) == ("Insufficient cpu",)
    (reason,) = judged.verdict.reasons
    assert (reason.wanted, reason.had, reason.capacity) == (9000, 8000, 8000)
    assert judged.demand == {"cpu": 9000, "memory": 1 << 30}


def test_code_shows_whether_preemption_can_help() -> None:
    fixture = one_claim(cpu="8")
    fixture.ledger.add(pod("q", container("a", cpu="2")))
    verdict = fixture.check_placement(pod("p", container("a", "c", cpu="1"))).verdict
    assert verdict.code is VerdictCode.UNSCHEDULABLE
    assert verdict.preemption_may_help
    too_large = fixture.check_placement(pod("p", container("a", "c", cpu="9"))).verdict
    assert not too_large.preemption_may_help


def test_all_shortages_are_reported_in_order() -> None:
    fixture = one_claim(
        cpu="1", memory="1Mi", ephemeral_storage="1", hugepages_2Mi="2Mi", hugepages_1Gi="1Gi"
    )
    one = pod(
        "p",
        container("a", "c", cpu="1", ephemeral_storage="2", hugepages_2Mi="4Mi", hugepages_1Gi="2Gi"),
    )
    assert format_reasons(fixture.check_placement(one).verdict) == (
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
        "Insufficient hugepages-1Gi",
        "Insufficient hugepages-2Mi",
    )


def test_sharing_is_checked_first() -> None:
    fixture = one_claim(cpu="1")
    other = pod("q", container("a", "c"))
    fixture.ledger.add(other, one_claim().place(other))
    verdict = fixture.check_placement(pod("p", container("a", "c"))).verdict
    assert format_reasons(verdict) == ("node allocatable resource claim c is already used by another pod",)
    third = pod("r", container("a", "c"))
    fixture.ledger.add(third, one_claim().place(third))
    verdict = fixture.check_placement(pod("p", container("a", "c"))).verdict
    assert format_reasons(verdict) == ("node allocatable resource claim c shared by multiple pods",)
    assert verdict.code is VerdictCode.UNRESOLVABLE


@pytest.mark.parametrize(
    ("reserved", "device_cpu", "fits"),
    [
        (["q"], "2", False),
        (["p"], "2", True),
        (["q", "p"], "2", True),
        (["q"], None, True),
    ],
)
def test_a_claim_reserved_for_another_pod_is_refused(
    reserved: list[str], device_cpu: str | None, fits: bool
) -> None:
    """Also if no pod on this node has it; a claim that charges nothing may be shared."""
    charging: dict[str, Any] = {"cpu": device_cpu} if device_cpu is not None else {}
    fixture = LedgerFixture(
        resource_slice([charging_device("d", **charging)]),
        claims=[claim("c", results=[result("d")], reserved=reserved)],
    )
    verdict = fixture.check_placement(pod("p", container("a", "c", cpu="1"))).verdict
    assert verdict.fits is fits
    if not fits:
        assert format_reasons(verdict) == (
            "node allocatable resource claim c is already used by another pod",
        )


def test_a_placed_pod_can_be_checked_again() -> None:
    fixture = one_claim()
    one = pod("p", container("a", "c", cpu="9"))
    fixture.place(one)
    assert fixture.check_placement(one).verdict.fits  # it is not counted beside itself


@pytest.mark.parametrize(
    ("policy", "shared"),
    [("", False), ("AddPerClaim", False), ("Max", False), ("AddPerReference", True), ("ConsumeFrom", True)],
)
def test_policies_that_allow_sharing(policy: str, shared: bool) -> None:
    rule = {"allocationMultiplier": "2", "accountingPolicy": policy}
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu=rule)]), claims=[claim("c", results=[result("d")])]
    )
    fixture.place(pod("p", container("a", "c", cpu="1")))
    assert fixture.check_placement(pod("q", container("a", "c", cpu="1"))).verdict.fits is shared


def test_a_claim_is_shared_only_if_every_resource_allows_it() -> None:
    both = pool_device(policy="ConsumeFrom", cpu="8")
    both["nodeAllocatableResourceMappings"]["memory"] = {"allocationMultiplier": "1Gi"}
    fixture = LedgerFixture(resource_slice([both]), claims=[claim("c", results=[result("socket0", cpu="4")])])
    fixture.place(pod("p", container("a", "c", cpu="1")))
    assert not fixture.check_placement(pod("q", container("a", "c", cpu="1"))).verdict.fits


def test_the_pod_level_budget_covers_all_claims() -> None:
    fixture = one_claim(cpu="100")
    one = pod("p", container("a", "c", cpu="1"), resources={"requests": {"cpu": "6", "memory": "1Gi"}})
    verdict = fixture.check_placement(one).verdict
    assert verdict.code is VerdictCode.UNRESOLVABLE
    assert format_reasons(verdict) == (
        "pod level request for cpu is insufficient to cover "
        "the aggregated container and node-allocatable DRA requests",
    )
    assert (verdict.reasons[0].wanted, verdict.reasons[0].capacity) == (7000, 6000)
    off = Gates.of({"PodLevelResources": False})
    ledger = NodeLedger(node(cpu="100"), off)
    assert check_charged_claims(ledger, one, fixture.check_placement(one).charged_claims or ()).verdict.fits


def test_without_the_gate_claims_are_ignored() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="99")]),
        claims=[claim("c", results=[result("d")])],
        gates=Gates.of({"DRANodeAllocatableResources": False}),
    )
    judged = fixture.check_placement(pod("p", container("a", "c", cpu="99")))
    assert judged.verdict.fits
    assert judged.charged_claims == ()


def test_a_pod_with_a_mapped_device_is_checked_even_without_charge() -> None:
    """As in Kubernetes: the capacity the mapping names has nothing to do with this allocation."""
    key = f"{DRIVER}/memory"
    one = pool_device(cpu="8")
    one["nodeAllocatableResourceMappings"] = {"memory": {"capacityKey": key}}
    fixture = LedgerFixture(
        resource_slice([one]), claims=[claim("c", results=[result("socket0", cpu="1")])], cpu="1"
    )
    judged = fixture.check_placement(pod("p", container("a", "c", cpu="2")))
    assert judged.charged_claims == ()
    assert format_reasons(judged.verdict) == ("Insufficient cpu",)


def test_check_requests_without_claims() -> None:
    ledger = NodeLedger(node(cpu="4", pods="1", extended={"example.com/gpu": "1"}))
    crowded = pod("p", container("a", cpu="5", **{"example.com/gpu": "2"}))
    ledger.add(pod("q", container("a", cpu="1")))
    verdict = check_requests(ledger, crowded)
    assert format_reasons(verdict) == ("Too many pods", "Insufficient cpu", "Insufficient example.com/gpu")
    assert verdict.code is VerdictCode.UNRESOLVABLE
    alone = check_requests(ledger, pod("p", container("a", cpu="1")))
    assert (alone.code, format_reasons(alone)) == (VerdictCode.UNSCHEDULABLE, ("Too many pods",))


def test_requests_alone_can_fit_where_the_charges_do_not() -> None:
    fixture = one_claim(cpu="8")
    one, small = (pod("p", container("a", "c", cpu=cpu)) for cpu in ("3", "2"))
    charged_claims = fixture.check_placement(one).charged_claims or ()
    for each in (one, small):
        assert check_requests(fixture.ledger, each, charged_claims).fits
    too_large = check_charged_claims(fixture.ledger, one, charged_claims).verdict
    assert format_reasons(too_large) == ("Insufficient cpu",)
    assert check_charged_claims(fixture.ledger, small, charged_claims).verdict.fits
    alone = check_requests(fixture.ledger, pod("p", container("a", cpu="9")))
    assert format_reasons(alone) == ("Insufficient cpu",)


def test_the_kubelet_names_the_first_shortage_only() -> None:
    fixture = one_claim(cpu="5", memory="1Mi")
    one = pod("p", container("a", "c", **{"example.com/gpu": "1"}))
    answer = check_admission(fixture.ledger, one, fixture.check_placement(one).charged_claims or ())
    assert not answer.admit
    assert answer.reason == "OutOfcpu"
    assert answer.message == "Node didn't have enough resource: cpu, requested: 6000, used: 0, capacity: 5000"
    assert len(answer.shortages) == 2  # what others provide is no matter of the kubelet
    full = NodeLedger(node(pods="0"))
    assert check_admission(full, one, ()).reason == "OutOfpods"
    assert check_admission(full, one, ()).message == (
        "Node didn't have enough resource: pods, requested: 1, used: 0, capacity: 0"
    )
