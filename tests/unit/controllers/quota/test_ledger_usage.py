"""Quota usage of a namespace, by the spec and with its claims."""

from __future__ import annotations

from plimsoll.api.core import ResourceList
from plimsoll.controllers.quota.ledger_usage import usage_by_namespace
from plimsoll.controllers.quota.usage import claim_usage
from tests.build import (
    charging_device,
    claim,
    container,
    exactly,
    first_available,
    pod,
    pool_device,
    resource_slice,
    result,
)
from tests.unit.ledger.fixture import LedgerFixture


def texts(amounts: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def test_usage_by_the_spec_or_with_claims() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="6", hugepages_1Gi="1Gi")]),
        claims=[claim("c", results=[result("d")])],
        hugepages_1Gi="2Gi",
    )
    one = container("a", "c", limits={"cpu": "4"}, cpu="3", memory="1Gi", **{"example.com/gpu": "1"})
    fixture.place(pod("p", one))
    spec = texts(usage_by_namespace([fixture.ledger], count_claims=False)["default"])
    assert spec == {
        "pods": "1",
        "count/pods": "1",
        "cpu": "3",
        "requests.cpu": "3",
        "limits.cpu": "4",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "requests.example.com/gpu": "1",
    }
    everything = texts(usage_by_namespace([fixture.ledger])["default"])
    assert everything == spec | {
        "cpu": "9",
        "requests.cpu": "9",
        "limits.cpu": "10",
        "hugepages-1Gi": "1Gi",
        "requests.hugepages-1Gi": "1Gi",
    }


def test_a_pool_counts_for_its_namespace_as_a_whole() -> None:
    fixture = LedgerFixture(
        resource_slice([pool_device(policy="ConsumeFrom")]),
        claims=[claim("c", results=[result("socket0", cpu="10")])],
    )
    for name in ("p", "q"):
        fixture.place(pod(name, container("a", "c", cpu="2")))
    fixture.place(pod("r", container("a", cpu="1"), namespace="other"))
    usage = usage_by_namespace([fixture.ledger])
    assert {namespace: str(found["requests.cpu"]) for namespace, found in usage.items()} == {
        "default": "10",
        "other": "1",
    }
    assert str(usage_by_namespace([fixture.ledger], count_claims=False)["default"]["requests.cpu"]) == "4"


def test_a_claim_inside_a_pod_level_request_is_not_counted_twice() -> None:
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu="10")]), claims=[claim("c", results=[result("d")])]
    )
    fixture.place(pod("p", container("a", "c"), resources={"requests": {"cpu": "11"}}))
    for count_claims in (False, True):
        usage = usage_by_namespace([fixture.ledger], count_claims=count_claims)["default"]
        assert str(usage["requests.cpu"]) == "11"


def test_claims_count_by_number_and_by_class() -> None:
    requests = [
        exactly("a", 2),
        exactly("b", mode="All"),
        first_available("c", exactly("x", 3), exactly("y"), exactly("z", 8, device_class="cpu")),
        {"name": "d", "exactly": {"deviceClassName": "later", "allocationMode": "Sometimes", "count": 5}},
    ]
    assert texts(claim_usage(claim("c", *requests))) == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "37",
        "cpu.deviceclass.resource.k8s.io/devices": "8",
        "later.deviceclass.resource.k8s.io/devices": "0",
    }
    usage = usage_by_namespace([], [claim("c"), claim("d"), claim("e", namespace="other")])
    assert str(usage["default"]["count/resourceclaims.resource.k8s.io"]) == "2"
