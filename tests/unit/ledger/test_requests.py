"""Effective requests and limits of pods, option by option."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form, ResourceCharge
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.amounts import is_huge_page, sum_amounts
from plimsoll.ledger.charges import sum_container_charges, sum_pod_charges
from plimsoll.ledger.requests import (
    PodResourcesOptions,
    aggregate_container_limits,
    aggregate_container_requests,
    has_pod_level_limits,
    has_pod_level_requests,
    has_pod_level_resources,
    list_limit_uses,
    pod_limits,
    pod_requests,
)
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import amounts, charge, charged_pods, pods, texts

V1_37 = PodResourcesOptions(form=Form.V1_37)
CLAIMS = PodResourcesOptions(count_claims=True)

WIRE_FORMS: list[dict[str, Any]] = [
    {
        "nodeAllocatableResourceClaimStatuses": [
            {"resourceClaimName": "x", "containers": ["c"], "resources": {"cpu": "3", "memory": "1Gi"}}
        ]
    },
    {
        "nodeAllocatableResourceClaimStatuses": [
            {
                "resourceClaimName": "x",
                "containers": ["c"],
                "mapping": [{"name": "cpu", "quantity": "2"}, {"name": "memory", "quantity": "1Gi"}],
                "overhead": [{"name": "cpu", "perPod": "750m", "perContainer": "250m"}],
            }
        ]
    },
    {
        "nativeResourceClaimStatus": [
            {
                "claimInfo": {"name": "x"},
                "containers": ["c"],
                "resources": [
                    {"resourceName": "cpu", "quantity": "3"},
                    {"resourceName": "memory", "quantity": "1Gi"},
                ],
            }
        ]
    },
]


# -- requests


def test_the_options_are_off_by_default() -> None:
    busy = pod("p", container("c", cpu="1"), status=WIRE_FORMS[0], overhead={"cpu": "100m"})
    assert texts(pod_requests(busy)) == {"cpu": "1100m"}


@pytest.mark.parametrize("status", WIRE_FORMS)
@pytest.mark.parametrize("form", Form)
def test_claims_count_in_every_wire_form(status: dict[str, Any], form: Form) -> None:
    charged = pod("p", container("c", cpu="1"), status=status)
    options = PodResourcesOptions(form=form, count_claims=True)
    assert texts(pod_requests(charged, options)) == {"cpu": "4", "memory": "1Gi"}


def test_claims_come_on_top_of_the_init_maximum() -> None:
    charged = pod("p", container("c", cpu="1"), init=(container("i", cpu="5"),))
    charges = (charge("x", "i", cpu="2"), charge("y", cpu="3"))
    assert texts(pod_requests(charged, CLAIMS, charges)) == {"cpu": "10"}
    assert texts(pod_requests(charged, PodResourcesOptions(), charges)) == {"cpu": "5"}


def test_overhead_of_claims_counts_per_pod_and_per_container() -> None:
    one, small, large = (Quantity.parse(text) for text in ("1", "10m", "100m"))
    resource = ResourceCharge(one, small, large)
    charges = [ClaimCharge("x", ("a", "b"), {"cpu": resource}), ClaimCharge("y", (), {"cpu": resource})]
    assert texts(sum_pod_charges(charges)) == {"cpu": "2220m"}
    assert texts(sum_container_charges(charges, "a")) == {"cpu": "1110m"}
    assert sum_container_charges(charges, "other") == {}


def test_pod_level_requests_replace_the_sum_and_claims() -> None:
    whole = {"requests": {"cpu": "2", "ephemeral-storage": "9Gi"}}
    given_pod = pod(
        "p",
        container("c", cpu="1", memory="1Gi"),
        resources=whole,
        overhead={"cpu": "10m"},
        status=WIRE_FORMS[0],
    )
    assert texts(pod_requests(given_pod, CLAIMS)) == {"cpu": "2010m", "memory": "2Gi"}
    skipped = replace(CLAIMS, skip_pod_level=True)
    assert texts(pod_requests(given_pod, skipped)) == {"cpu": "4010m", "memory": "2Gi"}
    only = replace(CLAIMS, skip_containers=True, exclude_overhead=True)
    assert texts(pod_requests(given_pod, only)) == {"cpu": "2"}


def test_missing_requests_are_filled_and_zeros_are_not() -> None:
    given_pod = pod("p", container("a", cpu="0"), container("b"), init=(sidecar("s", memory="1Mi"),))
    options = PodResourcesOptions(non_missing=amounts(cpu="100m"))
    assert texts(pod_requests(given_pod, options)) == {"cpu": "200m", "memory": "1Mi"}
    assert texts(pod_requests(given_pod, replace(options, form=Form.V1_37))) == {
        "cpu": "200m",
        "memory": "1Mi",
    }
    assert pod_limits(given_pod, replace(options, form=Form.V1_37)) == {}


def test_reading_changes_nothing() -> None:
    whole = {"requests": {"memory": "1.5Gi"}, "limits": {"memory": "2.5Gi"}}
    given_pod = pod("p", container("a"), resources=whole, overhead={"memory": "1Gi"})
    for _ in range(3):
        assert texts(pod_requests(given_pod)) == {"memory": "2560Mi"}
        assert texts(pod_limits(given_pod)) == {"memory": "3584Mi"}


# -- limits


def test_claims_raise_limits_since_1_37_where_there_is_one() -> None:
    charges = (charge("x", "a", cpu="1", memory="1Gi", hugepages_2Mi="4Mi"),)
    given_pod = pod("p", container("a", limits={"cpu": "2"}), container("b"))
    options = PodResourcesOptions(form=Form.V1_37, count_claims=True)
    assert texts(pod_limits(given_pod, options, charges)) == {"cpu": "3", "hugepages-2Mi": "4Mi"}
    assert texts(pod_limits(given_pod, CLAIMS, charges)) == {"cpu": "2"}


def test_overhead_is_added_to_limits_that_are_not_zero() -> None:
    given_pod = pod(
        "p",
        container("a", limits={"cpu": "2", "memory": "0"}),
        overhead={"cpu": "1", "memory": "1Gi", "x": "1"},
    )
    assert texts(pod_limits(given_pod)) == {"cpu": "3", "memory": "0"}
    assert texts(pod_limits(given_pod, PodResourcesOptions(exclude_overhead=True))) == {
        "cpu": "2",
        "memory": "0",
    }


def test_pod_level_limits_replace_the_sum() -> None:
    whole = {"requests": {"cpu": "1"}, "limits": {"memory": "4Gi"}}
    given_pod = pod("p", container("a", limits={"cpu": "2", "memory": "1Gi"}), resources=whole)
    assert texts(pod_limits(given_pod)) == {"cpu": "2", "memory": "4Gi"}
    assert texts(pod_limits(given_pod, PodResourcesOptions(skip_pod_level=True))) == {
        "cpu": "2",
        "memory": "1Gi",
    }


# -- predicates


@pytest.mark.parametrize(
    ("resources", "requests", "limits"),
    [
        (None, False, False),
        ({}, False, False),
        ({"requests": {"ephemeral-storage": "1"}}, False, False),
        ({"requests": {"hugepages-2Mi": "0"}}, True, False),
        ({"limits": {"memory": "1"}}, False, True),
        ({"requests": {"cpu": "1"}, "limits": {"example.com/x": "1"}}, True, False),
    ],
)
def test_pod_level_predicates(resources: Any, requests: bool, limits: bool) -> None:
    given_pod = pod("p", container("a"), **{} if resources is None else {"resources": resources})
    assert has_pod_level_requests(given_pod) is requests
    assert has_pod_level_limits(given_pod) is limits
    assert has_pod_level_resources(given_pod) is (requests or limits)


# -- properties


@given(charged_pods(policies=("",)))
def test_claims_are_added_to_requests_and_nothing_else(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = case
    for form in (Form.V1_36, Form.V1_37):
        options = PodResourcesOptions(form=form, count_claims=True, skip_pod_level=True)
        plain = pod_requests(given_pod, replace(options, count_claims=False))
        assert pod_requests(given_pod, options, charges) == sum_amounts([plain, sum_pod_charges(charges)])


@given(charged_pods(policies=("",)))
def test_claims_change_limits_only_of_what_is_limited(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = case
    options = PodResourcesOptions(form=Form.V1_37, count_claims=True)
    plain, extra = aggregate_container_limits(given_pod, V1_37), sum_pod_charges(charges)
    found = aggregate_container_limits(given_pod, options, charges)
    for name in plain.keys() | extra.keys():
        counted = extra.get(name, ZERO) if name in plain or is_huge_page(name) else ZERO
        assert found.get(name, ZERO) == plain.get(name, ZERO) + counted
    assert aggregate_container_limits(given_pod, CLAIMS, charges) == plain


@given(pods())
def test_both_forms_agree_without_claims_and_status(given_pod: Pod) -> None:
    for total in (pod_requests, pod_limits, aggregate_container_requests, aggregate_container_limits):
        assert total(given_pod) == total(given_pod, V1_37)


@given(pods())
def test_uses_name_every_container(given_pod: Pod) -> None:
    names = [c.name for c in (*given_pod.spec.containers, *given_pod.spec.init_containers)]
    assert [use.container.name for use in list_limit_uses(given_pod)] == names
