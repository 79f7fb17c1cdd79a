"""Resource fit: all resources, the number of pods, charges of claims, delegated resources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api.gates import Gates
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.verdict import Reason, VerdictCode
from plimsoll.scheduler.filters.node_resources import NodeResourcesFilter
from plimsoll.scheduler.reasons import render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of


def filter_reasons(snapshot: Snapshot, wanting: Any, name: str = "n") -> list[tuple[str, VerdictCode]]:
    rule = NodeResourcesFilter(pod_info_of(wanting, snapshot), snapshot)
    row = snapshot.row_of(name)
    assert row is not None
    reasons = rule.filter_node(row)
    assert bool(rule.filter()[row]) is not bool(reasons)
    return [(render(reason), reason.code) for reason in reasons]


def test_shortages_are_reported_in_order() -> None:
    snapshot = snapshot_of(
        node("n", cpu="2", memory="1Gi", pods="1", hugepages_2Mi="4Mi", extended={"example.com/gpu": "1"}),
        pod("other", cpu="1", node="n", requests={"example.com/gpu": "1"}),
    )
    wants = {
        "ephemeral-storage": "1",
        "hugepages-2Mi": "6Mi",
        "example.com/gpu": "1",
        "example.com/none": "1",
    }
    assert filter_reasons(snapshot, pod("p", cpu="1500m", memory="2Gi", requests=wants)) == [
        ("Too many pods", VerdictCode.UNSCHEDULABLE),
        ("Insufficient cpu", VerdictCode.UNSCHEDULABLE),
        ("Insufficient memory", VerdictCode.UNRESOLVABLE),
        ("Insufficient ephemeral-storage", VerdictCode.UNRESOLVABLE),
        ("Insufficient example.com/gpu", VerdictCode.UNSCHEDULABLE),
        ("Insufficient example.com/none", VerdictCode.UNRESOLVABLE),
        ("Insufficient hugepages-2Mi", VerdictCode.UNRESOLVABLE),
    ]


def test_reasons_have_the_numbers() -> None:
    snapshot = snapshot_of(node("n", cpu="2"), pod("other", cpu="500m", node="n"))
    rule = NodeResourcesFilter(pod_info_of(pod("p", cpu="1600m"), snapshot), snapshot)
    (reason,) = rule.filter_node(0)
    assert isinstance(reason.cause, Reason)
    assert (reason.cause.wanted, reason.cause.had, reason.cause.capacity) == (1600, 1500, 2000)


def test_a_pod_without_requests_counts_for_the_pod_limit() -> None:
    snapshot = snapshot_of(node("n", pods="1"))
    assert filter_reasons(snapshot, pod("p")) == []
    snapshot.set(pod("other", node="n"))
    assert filter_reasons(snapshot, pod("p")) == [("Too many pods", VerdictCode.UNSCHEDULABLE)]


def test_a_tally_counts_each_shortage_and_knows_where_preemption_helps() -> None:
    snapshot = snapshot_of(
        node("small", cpu="1"),
        node("full", cpu="4"),
        node("short", cpu="4", memory="1Gi"),
        node("fits", cpu="4"),
    )
    for name in ("full", "short"):
        snapshot.set(pod(f"on-{name}", cpu="3", node=name))
    rule = NodeResourcesFilter(pod_info_of(pod("p", cpu="2", memory="2Gi"), snapshot), snapshot)
    removed = snapshot.alive & ~rule.filter()
    counts = {render(reason): count for reason, count in rule.count_reasons(removed)}
    assert counts == {"Insufficient cpu": 3, "Insufficient memory": 1}
    helped = [
        snapshot.node(row).metadata.name for row in rule.resolvable_nodes(removed).nonzero()[0].tolist()
    ]
    assert helped == ["full"]


def test_claims_of_other_pods_reduce_headroom() -> None:
    snapshot = snapshot_of(
        node("n", cpu="8"),
        resource_slice([charging_device("cpus", cpu="6")], "n"),
        device_class("cpu"),
        claim("c", exactly(device_class="cpu"), results=[result("cpus")], node="n"),
        pod("holder", node="n", claims=["c"]),
    )
    assert filter_reasons(snapshot, pod("p", cpu="2")) == []
    assert filter_reasons(snapshot, pod("p", cpu="3")) == [("Insufficient cpu", VerdictCode.UNSCHEDULABLE)]


def result(device: str) -> dict[str, str]:
    return {"request": "r", "driver": DRIVER, "pool": "n", "device": device}


def test_charges_of_an_earlier_attempt_do_not_count() -> None:
    entry = {"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "4"}}
    snapshot = snapshot_of(node("n", cpu="4"), claim("c"))
    left = pod("p", cpu="4", claims=["c"], status={"nodeAllocatableResourceClaimStatuses": [entry]})
    assert filter_reasons(snapshot, left) == []


# -- resources that need claims to check


@pytest.mark.parametrize(
    ("policy", "judged"),
    [("", True), ("AddPerClaim", True), ("AddPerReference", True), ("Max", False), ("ConsumeFrom", False)],
)
@pytest.mark.parametrize("where", ["device", "class"])
def test_resources_under_max_and_consume_from_are_checked_exactly(
    policy: str, judged: bool, where: str
) -> None:
    rule: dict[str, Any] = {"allocationMultiplier": "2"}
    policies: dict[str, Any] = {}
    if where == "device" and policy:
        rule["accountingPolicy"] = policy
    elif policy:
        policies = {"nodeAllocatableResourceAccountingPolicies": {"cpu": policy}}
    snapshot = snapshot_of(
        node("n", cpu="1", memory="1Gi"),
        resource_slice([charging_device("d", cpu=rule)], "n"),
        device_class("own", **policies),
        device_class("other"),
        claim("c", exactly(device_class="own")),
        claim("d", exactly(device_class="other")),
    )
    short = [("Insufficient cpu", VerdictCode.UNRESOLVABLE)]
    assert filter_reasons(snapshot, pod("p", cpu="2", claims=["c"])) == (short if judged else [])
    # pods without claims are judged by their spec, and so is all that no claim charges
    assert filter_reasons(snapshot, pod("p", cpu="2")) == short
    lacking = filter_reasons(snapshot, pod("p", memory="2Gi", claims=["c"]))
    assert lacking == [("Insufficient memory", VerdictCode.UNRESOLVABLE)]
    if where == "class":
        assert filter_reasons(snapshot, pod("p", cpu="2", claims=["d"])) == short


def test_policies_follow_their_objects() -> None:
    max_device = charging_device("d", cpu={"allocationMultiplier": "2", "accountingPolicy": "Max"})
    snapshot = snapshot_of(node("n", cpu="1"), device_class("own"), claim("c", exactly(device_class="own")))
    wanting = pod("p", cpu="2", claims=["c"])
    assert filter_reasons(snapshot, wanting)
    snapshot.set(resource_slice([max_device], "n"))
    assert not filter_reasons(snapshot, wanting)
    snapshot.set(resource_slice([charging_device("d", cpu="2")], "n"))
    assert filter_reasons(snapshot, wanting)
    snapshot.set(resource_slice([max_device], "n"))
    snapshot.remove(resource_slice([max_device], "n"))
    assert filter_reasons(snapshot, wanting)
    policies: dict[str, Any] = {"nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"}}
    snapshot.set(device_class("own", **policies))
    assert not filter_reasons(snapshot, wanting)
    snapshot.remove(device_class("own"))
    assert filter_reasons(snapshot, wanting)


def test_the_classes_of_alternatives_count_too() -> None:
    policies: dict[str, Any] = {"nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"}}
    listed = first_available("r", exactly("a", device_class="plain"), exactly("b", device_class="max"))
    snapshot = snapshot_of(
        node("n", cpu="1"), device_class("plain"), device_class("max", **policies), claim("c", listed)
    )
    assert not filter_reasons(snapshot, pod("p", cpu="2", claims=["c"]))


def test_without_policies_or_the_gate_the_spec_decides() -> None:
    policies: dict[str, Any] = {"nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"}}
    objects = [
        node("n", cpu="1"), device_class("own", **policies), claim("c", exactly(device_class="own"))
    ]  # fmt: skip
    wanting = pod("p", cpu="2", claims=["c"])
    assert filter_reasons(snapshot_of(*objects, profile=AccountingProfile.upstream_1_36()), wanting)
    assert filter_reasons(
        snapshot_of(*objects, gates=Gates.of({"DRANodeAllocatableResources": False})), wanting
    )


def test_pod_level_requests_with_shared_claims_are_checked_exactly() -> None:
    profile = replace(AccountingProfile.default(), share_per_claim=True)
    snapshot = snapshot_of(node("n", cpu="1", memory="1Gi"), claim("c"), profile=profile)
    level = {"requests": {"cpu": "2"}}
    assert not filter_reasons(snapshot, pod("p", claims=["c"], resources=level))
    assert filter_reasons(snapshot, pod("p", resources=level)) == [
        ("Insufficient cpu", VerdictCode.UNRESOLVABLE)
    ]
