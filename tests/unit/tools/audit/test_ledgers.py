"""Ledger checks of the audit: past the line, not counted, counted twice, not recorded."""

from __future__ import annotations

import pytest

from plimsoll.tools.findings import Severity
from tests.unit.tools.audit.build import (
    claim,
    cpus,
    device,
    device_class,
    found,
    node,
    only,
    pod,
    report_on,
    result,
    share,
    slice_of,
    well,
)

CPU_CLASS = device_class("cpu", "dra.cpu")


def cpu_cluster(*more: dict[str, object], form: str = "1.36", cpu: str = "8") -> list[dict[str, object]]:
    return [node(cpu=cpu), CPU_CLASS, slice_of(cpus(int(cpu), form=form), driver="dra.cpu"), *more]


def test_a_healthy_cluster_has_no_findings() -> None:
    report = report_on(*well())
    assert report.findings == ()
    assert report.skipped == ()


# -- past the line


def test_requests_fit_and_claims_do_not() -> None:
    finding = only(
        "PLM001",
        *cpu_cluster(
            claim("c", share("6"), klass="cpu"),
            pod("p", claims="c", charges={"c": {"cpu": "6"}}),
            pod("q", "3"),
        ),
    )
    assert finding.severity is Severity.ERROR
    assert finding.subject == "Node/n1"
    assert finding.message == "cpu: 10 charged, 8 allocatable, 2 over"
    assert finding.evidence[0].startswith("requests 4, claims 6: requests alone fit")
    assert finding.evidence[1] == "Pod/work/p holds 6 by claim c"
    assert finding.fix.endswith("kubectl delete pod -n work q")  # the smallest that is enough


def test_a_node_exactly_at_its_line_is_not_reported() -> None:
    trees = cpu_cluster(
        claim("c", share("6"), klass="cpu"), pod("p", claims="c", charges={"c": {"cpu": "6"}}), pod("q", "1")
    )
    assert found("PLM001", *trees) == []


def test_requests_alone_may_be_past_the_line() -> None:
    finding = only("PLM001", node(), pod("p", "5"), pod("q", "5"))
    assert "requests alone exceed allocatable" in finding.evidence[0]


def test_too_many_pods() -> None:
    finding = only("PLM001", node(pods="1"), pod("p", "1"), pod("q", "1"))
    assert finding.message == "pods: 2 on the node, 1 allocatable, 1 over"


def test_extended_resources_past_their_line_are_a_warning() -> None:
    tree = pod("p")
    tree["spec"]["containers"][0]["resources"]["requests"]["example.com/card"] = "2"
    finding = only("PLM001", node(), tree)
    assert finding.severity is Severity.WARNING
    assert finding.key == "example.com/card"


def test_ended_pods_hold_nothing() -> None:
    assert found("PLM001", node(), pod("p", "5"), pod("q", "5", phase="Succeeded")) == []


# -- uncounted claims


def test_a_claim_without_a_record_is_reported() -> None:
    trees = cpu_cluster(claim("c", share("6"), klass="cpu"), pod("p", "1", claims="c"), form="none")
    finding = only("PLM003", *trees)
    assert finding.severity is Severity.WARNING
    assert finding.subject == "ResourceClaim/work/c"
    assert finding.message == "takes cpu 6 of node n1, is not charged, and its pods request 1"
    assert found("PLM002", *trees) == []  # 1 and 5 more of 8


def test_a_node_past_its_line_once_claims_are_counted() -> None:
    trees = cpu_cluster(
        claim("c", share("6"), klass="cpu"), pod("p", "1", claims="c"), pod("q", "3"), form="none"
    )
    finding = only("PLM002", *trees)
    assert finding.severity is Severity.ERROR
    assert finding.message == "cpu: 4 charged and 5 taken by claims that are not charged, of 8: 1 over"
    assert found("PLM001", *trees) == []


def test_claims_copied_into_requests_are_counted() -> None:
    trees = cpu_cluster(claim("c", share("6"), klass="cpu"), pod("p", "6", claims="c"), form="none")
    assert found("PLM003", *trees) == []


def test_a_claim_of_an_unknown_driver_is_only_hinted_at() -> None:
    trees = [
        node(),
        device_class("cpu", "x.example.com"),
        slice_of(cpus(8, "x.example.com", "none"), driver="x.example.com"),
        claim("c", share("6", driver="x.example.com"), klass="cpu"),
        pod("p", "1", claims="c"),
        pod("q", "3"),
    ]
    assert only("PLM003", *trees).severity is Severity.INFO
    assert only("PLM003", *trees).message.startswith("seems to take cpu 6")
    assert only("PLM002", *trees).severity is Severity.WARNING


def test_memory_of_a_gpu_is_not_node_memory() -> None:
    card = device("d0", capacity={"memory": {"value": "80Gi"}})
    trees = [node(), device_class(), slice_of(card), claim("c", result("d0")), pod("p", claims="c")]
    assert report_on(*trees).findings == ()


def test_a_class_annotation_counts_as_a_mapping() -> None:
    words = '{"nodeAllocatableResourceMappings":{"cpu":{"capacityKey":"dra.cpu/cpu"}}}'
    klass = device_class("cpu", "dra.cpu")
    klass["metadata"]["annotations"] = {"plimsoll.dev/node-allocatable": words}
    trees = [
        node(),
        klass,
        slice_of(cpus(form="none"), driver="dra.cpu"),
        claim("c", share("6"), klass="cpu"),
        pod("p", "1", claims="c"),
    ]
    assert found("PLM003", *trees) == []
    assert found("PLM010", *trees) == []


# -- counted twice


def test_a_claim_copied_into_requests_and_charged() -> None:
    trees = cpu_cluster(
        claim("c", share("4"), klass="cpu"), pod("p", "4", claims="c", charges={"c": {"cpu": "4"}})
    )
    finding = only("PLM004", *trees)
    assert finding.subject == "Pod/work/p"
    assert "8 is charged instead of 4" in finding.message
    assert "container main requests cpu 4" in finding.evidence


@pytest.mark.parametrize("cpu", ["1", "3", "5"])
def test_different_requests_are_not_a_copy(cpu: str) -> None:
    tree = pod("p", cpu, claims="c", charges={"c": {"cpu": "4"}})
    assert found("PLM004", *cpu_cluster(claim("c", share("4"), klass="cpu"), tree, cpu="16")) == []


def test_max_counts_nothing_twice() -> None:
    tree = pod("p", "4", claims="c", charges={"c": {"cpu": "4"}})
    tree["status"]["nodeAllocatableResourceClaimStatuses"][0]["accountingPolicies"] = {"cpu": "Max"}
    assert found("PLM004", *cpu_cluster(claim("c", share("4"), klass="cpu"), tree)) == []


def test_a_pod_level_request_covers_both() -> None:
    tree = pod("p", "4", claims="c", charges={"c": {"cpu": "4"}}, resources={"requests": {"cpu": "8"}})
    assert found("PLM004", *cpu_cluster(claim("c", share("4"), klass="cpu"), tree)) == []


def test_an_overhead_that_equals_a_request_is_not_reported() -> None:
    card = device("d0", nodeAllocatableResourceMappings={"cpu": {"allocationMultiplier": "2"}})
    trees = [
        node(),
        device_class(),
        slice_of(card),
        claim("c", result("d0")),
        pod("p", "2", claims="c", charges={"c": {"cpu": "2"}}),
    ]
    assert report_on(*trees).findings == ()


# -- recorded charges


def test_an_unrecorded_charge() -> None:
    trees = cpu_cluster(claim("c", share("4"), klass="cpu"), pod("p", claims="c"))
    finding = only("PLM005", *trees)
    assert finding.message == "claim c should charge cpu 4, but nothing is recorded with the pod"


def test_a_charge_recorded_for_another_claim_only() -> None:
    trees = cpu_cluster(
        claim("c", share("4"), klass="cpu"),
        claim("d", share("2", "t"), klass="cpu"),
        pod("p", "1", claims="cd", charges={"c": {"cpu": "4"}}),
    )
    finding = only("PLM005", *trees)
    assert finding.key == "d"
    assert "the pod's other claims are recorded and it is not" in finding.message
    hole = only("PLM003", *trees)
    assert hole.evidence[0] == "the charge of its mapping is not recorded with the pod (PLM005)"


def test_a_charge_from_before_the_slice_changed() -> None:
    trees = cpu_cluster(
        claim("c", share("4"), klass="cpu"), pod("p", claims="c", charges={"c": {"cpu": "3"}})
    )
    finding = only("PLM006", *trees)
    assert finding.severity is Severity.INFO
    assert finding.message == "claim c is charged cpu 3; a new pod would be charged cpu 4"
    assert found("PLM005", *trees) == []


def test_a_charge_that_cannot_be_known() -> None:
    tree = claim("c", result("cpus", "dra.cpu", shareID="s"), klass="cpu")
    finding = only("PLM007", *cpu_cluster(tree, pod("p", claims="c")))
    assert "ConsumedCapacity is nil" in finding.message
    assert found("PLM007", *well()) == []
