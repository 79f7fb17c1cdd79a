"""Pods being resized: the status counts in addition to the spec."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api.core import Pod
from plimsoll.api.forms import Form
from plimsoll.ledger.in_place import is_resize_deferred, is_resize_infeasible
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions, pod_limits, pod_requests
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import charge, texts

STATUS = PodResourcesOptions(use_status=True)
STATUS_1_37 = PodResourcesOptions(use_status=True, form=Form.V1_37)
WHOLE = PodResourcesOptions(use_status=True, in_place_pod_level=True)
WHOLE_1_37 = PodResourcesOptions(use_status=True, in_place_pod_level=True, form=Form.V1_37)


def report(name: str, allocated: Any = None, requests: Any = None, limits: Any = None) -> dict[str, Any]:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return {"name": name, "allocatedResources": allocated or {}, "resources": resources}


def pending(reason: str) -> list[dict[str, str]]:
    return [
        {"type": "Ready", "reason": "Infeasible"},
        {"type": "PodResizePending", "status": "True", "reason": reason},
    ]


def growing(reason: str = "Deferred") -> Pod:
    """Return a pod in which `a` grows and `b` shrinks."""
    return pod(
        "p",
        container("a", limits={"cpu": "3"}, cpu="2"),
        container("b", limits={"cpu": "1"}, cpu="1"),
        status={
            "conditions": pending(reason),
            "containerStatuses": [
                report("a", {"cpu": "1"}, {"cpu": "1500m"}, {"cpu": "2"}),
                report("b", {"cpu": "3"}, {"cpu": "2"}, {"cpu": "4"}),
            ],
        },
    )


def test_conditions_of_pending_resizes() -> None:
    assert is_resize_infeasible(growing("Infeasible"))
    assert not is_resize_deferred(growing("Infeasible"))
    assert is_resize_deferred(growing("Deferred"))
    assert not is_resize_infeasible(pod("p", container("a")))


def test_in_1_36_the_greatest_value_counts_for_each_container() -> None:
    assert texts(pod_requests(growing())) == {"cpu": "3"}
    assert texts(pod_requests(growing(), STATUS)) == {"cpu": "5"}
    assert texts(pod_limits(growing(), STATUS)) == {"cpu": "7"}
    assert texts(pod_requests(growing("Infeasible"), STATUS)) == {"cpu": "4500m"}
    assert texts(pod_limits(growing("Infeasible"), STATUS)) == {"cpu": "6"}


def test_in_1_37_the_greatest_sum_counts() -> None:
    assert texts(pod_requests(growing(), STATUS_1_37)) == {"cpu": "4"}
    assert texts(pod_limits(growing(), STATUS_1_37)) == {"cpu": "6"}
    assert texts(pod_requests(growing("Infeasible"), STATUS_1_37)) == {"cpu": "4"}
    assert texts(pod_limits(growing("Infeasible"), STATUS_1_37)) == {"cpu": "6"}


def test_in_1_37_claims_are_added_to_allocated_resources() -> None:
    options = PodResourcesOptions(use_status=True, form=Form.V1_37, count_claims=True)
    claims = (charge("x", "a", cpu="1"),)
    # set aside 1 + 3, and the claim; applied 1500m + 2, the claim is in it
    assert texts(pod_requests(growing("Infeasible"), options, claims)) == {"cpu": "5"}
    assert texts(pod_limits(growing(), options, claims)) == {"cpu": "6"}


def test_a_container_without_status_counts_by_its_spec() -> None:
    given_pod = pod(
        "p", container("a", limits={"cpu": "2"}, cpu="2"), container("b", limits={"cpu": "1"}, cpu="1")
    )
    assert texts(pod_requests(given_pod, STATUS)) == {"cpu": "3"}
    assert texts(pod_requests(given_pod, STATUS_1_37)) == {"cpu": "3"}
    assert texts(pod_limits(given_pod, STATUS_1_37)) == {"cpu": "3"}
    stuck = pod(
        "p", container("a", limits={"cpu": "2"}, cpu="2"), status={"conditions": pending("Infeasible")}
    )
    assert texts(pod_requests(stuck, STATUS)) == {"cpu": "2"}
    assert pod_requests(stuck, STATUS_1_37) == {}
    assert pod_limits(stuck, STATUS_1_37) == {}


def test_in_1_36_only_sidecars_of_the_init_containers_count() -> None:
    given_pod = pod(
        "p",
        container("a"),
        init=(container("i", limits={"cpu": "1"}, cpu="1"), sidecar("s", limits={"cpu": "1"}, cpu="1")),
        status={
            "initContainerStatuses": [
                report("i", {"cpu": "9"}, {"cpu": "9"}, {"cpu": "9"}),
                report("s", {"cpu": "2"}, {"cpu": "3"}, {"cpu": "4"}),
            ]
        },
    )
    assert texts(pod_requests(given_pod, STATUS)) == {"cpu": "3"}
    assert texts(pod_limits(given_pod, STATUS)) == {"cpu": "4"}
    assert texts(pod_requests(given_pod, STATUS_1_37)) == {"cpu": "9"}
    assert texts(pod_limits(given_pod, STATUS_1_37)) == {"cpu": "9"}


def test_of_two_reports_with_one_name_each_form_takes_its_own() -> None:
    given_pod = pod(
        "p",
        container("a", cpu="1"),
        status={
            "containerStatuses": [report("a", {"cpu": "2"})],
            "initContainerStatuses": [report("a", {"cpu": "3"})],
        },
    )
    assert texts(pod_requests(given_pod, STATUS)) == {"cpu": "3"}
    assert texts(pod_requests(given_pod, STATUS_1_37)) == {"cpu": "2"}


def resized_pod(reason: str, **status: Any) -> Pod:
    return pod(
        "p",
        container("a"),
        resources={"requests": {"cpu": "2"}, "limits": {"cpu": "4"}},
        status={"conditions": pending(reason), **status},
    )


def test_pod_level_status_resources() -> None:
    status = {
        "resources": {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "5", "memory": "1Gi"}},
        "allocatedResources": {"cpu": "1"},
    }
    # 1.36 looks up the names of the spec only, 1.37 takes what is reported
    assert texts(pod_requests(resized_pod("", **status), WHOLE)) == {"cpu": "3"}
    assert texts(pod_limits(resized_pod("", **status), WHOLE)) == {"cpu": "5"}
    assert texts(pod_requests(resized_pod("", **status), WHOLE_1_37)) == {"cpu": "3", "memory": "1Gi"}
    assert texts(pod_limits(resized_pod("", **status), WHOLE_1_37)) == {"cpu": "5", "memory": "1Gi"}
    assert texts(pod_requests(resized_pod("", **status), STATUS)) == {"cpu": "2"}


def test_an_infeasible_pod_level_resize() -> None:
    reported = {"resources": {"requests": {"memory": "1Gi"}}}
    assert texts(pod_requests(resized_pod("Infeasible", **reported), WHOLE)) == {"cpu": "0"}
    assert texts(pod_limits(resized_pod("Infeasible", **reported), WHOLE)) == {"cpu": "4"}
    limited = {"resources": {"limits": {"cpu": "1"}}}
    assert texts(pod_limits(resized_pod("Infeasible", **limited), WHOLE)) == {"cpu": "1"}
    assert texts(pod_requests(resized_pod("Infeasible", **reported), WHOLE_1_37)) == {"memory": "1Gi"}
    assert pod_limits(resized_pod("Infeasible", **reported), WHOLE_1_37) == {}


def test_in_1_37_pod_level_sums_replace_container_sums() -> None:
    status = {
        "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "6"}},
        "allocatedResources": {"cpu": "4"},
        "containerStatuses": [report("a", {"cpu": "9"}, {"cpu": "9"}, {"cpu": "9"})],
    }
    given_pod = pod("p", container("a", limits={"cpu": "1"}, cpu="1"), status=status)
    assert texts(pod_requests(given_pod, WHOLE_1_37)) == {"cpu": "4"}
    assert texts(pod_limits(given_pod, WHOLE_1_37)) == {"cpu": "6"}
    assert texts(pod_requests(given_pod, STATUS_1_37)) == {"cpu": "9"}
    claims = (charge("x", "a", cpu="7"),)
    options = PodResourcesOptions(
        use_status=True, in_place_pod_level=True, form=Form.V1_37, count_claims=True
    )
    assert texts(pod_requests(given_pod, options, claims)) == {"cpu": "8"}


@pytest.mark.parametrize("form", [Form.V1_36, Form.V1_37])
def test_pool_draws_survive_status_updates(form: Form) -> None:
    """A container that requests 2 out of a claim's 3 costs its node 3, before and after it runs."""
    entry = {
        "resourceClaimName": "x",
        "containers": ["a"],
        "resources": {"cpu": "3"},
        "accountingPolicies": {"cpu": "ConsumeFrom"},
        "drawn": {"cpu": "2"},
    }
    charges = {"nodeAllocatableResourceClaimStatuses": [entry]}
    running = {**charges, "containerStatuses": [report("a", {"cpu": "2"}, {"cpu": "2"})]}
    for status in (charges, running):
        ledger = NodeLedger(profile=replace(AccountingProfile.default(), form=form))
        ledger.add(pod("p", container("a", cpu="2"), status=status))
        assert ledger.requested["cpu"] == 3000
