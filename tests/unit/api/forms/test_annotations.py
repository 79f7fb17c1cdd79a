"""Annotations of classes and pods: every form is read and written without loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import (
    CLASS_KEY,
    POD_KEY,
    POLICIES,
    AnnotationProblem,
    ClaimCharge,
    ClassPolicy,
    DeviceRule,
    Form,
    ResourceCharge,
    find_pod_problem,
    format_charges_annotation,
    read_charges_annotation,
    read_class_annotation,
    read_device_class,
    read_pod,
    write_device,
)
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device, DeviceClass

q = Quantity.parse
MAPPINGS = "nodeAllocatableResourceMappings"


def device_class(annotation: Any = None, **spec: Any) -> DeviceClass:
    text = annotation if isinstance(annotation, str) else json.dumps(annotation)
    annotations = {} if annotation is None else {CLASS_KEY: text}
    return codec.convert({"metadata": {"name": "k", "annotations": annotations}, "spec": spec}, DeviceClass)


def pod(annotation: str | None, status: Any = None, claims: bool = True) -> Pod:
    annotations = {} if annotation is None else {POD_KEY: annotation}
    spec = {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]} if claims else {}
    return codec.convert(
        {"metadata": {"name": "p", "annotations": annotations}, "spec": spec, "status": status or {}}, Pod
    )


# -- classes


@pytest.mark.parametrize(
    "words",
    [
        {MAPPINGS: {"cpu": {"capacityKey": "cpus", "allocationMultiplier": "2"}}},
        {
            "nodeAllocatableResources": {
                "cpu": {"mapping": {"capacityKey": "cpus", "capacityMultiplier": "2"}}
            }
        },
    ],
)
def test_a_class_annotation_in_the_1_36_form(words: dict[str, Any]) -> None:
    found = read_device_class(device_class(words))
    assert found == ClassPolicy(rules={"cpu": DeviceRule("cpus", q("2"))})
    assert found.charges


def test_a_class_annotation_in_the_draft_form() -> None:
    words = {
        "nativeResourceMappings": {"memory": {"quantityFrom": {"perInstanceQuantity": "1Gi"}}},
        "managesNativeResources": True,
        "nativeResourceAccountingPolicies": {"memory": "Max"},
    }
    rules = {"memory": DeviceRule(None, q("1Gi"))}
    assert read_device_class(device_class(words)) == ClassPolicy(True, {"memory": "Max"}, rules)


def test_overhead_needs_no_mapping() -> None:
    words = {"nodeAllocatableResources": {"memory": {"overhead": {"perPod": "1Gi", "perContainer": "1Mi"}}}}
    rule = DeviceRule(mapped=False, per_pod=q("1Gi"), per_container=q("1Mi"))
    assert read_device_class(device_class(words)).rules == {"memory": rule}


def test_fields_come_before_the_annotation() -> None:
    words = {
        MAPPINGS: {"cpu": {"allocationMultiplier": "1"}},
        "managesNodeAllocatableResources": True,
        "nodeAllocatableResourceAccountingPolicies": {"cpu": "Max"},
    }
    field = {"nodeAllocatableResourceAccountingPolicies": {"cpu": "ConsumeFrom"}}
    found = read_device_class(device_class(words, **field))
    assert (found.manages, found.policies) == (True, {"cpu": "ConsumeFrom"})
    assert set(found.rules) == {"cpu"}
    assert read_device_class(device_class(None, **field)) == ClassPolicy(False, {"cpu": "ConsumeFrom"})


def test_a_class_without_annotation_charges_nothing() -> None:
    assert read_device_class(device_class()) == ClassPolicy()
    assert not read_device_class(device_class()).charges
    assert not read_device_class(device_class({})).charges


@pytest.mark.parametrize(
    ("words", "field", "message"),
    [
        ("{", "", "not JSON"),
        ([], "", "must be an object"),
        ({"mapping": {}}, "mapping", "unknown field"),
        ({MAPPINGS: {"cpu": {"multiplier": "2"}}}, f"{MAPPINGS}[cpu].multiplier", "unknown field"),
        ({MAPPINGS: {"cpu": {}}}, f"{MAPPINGS}[cpu]", "needs a capacity, a multiplier, or both"),
        ({MAPPINGS: {"cpu": {"capacityKey": ""}}}, f"{MAPPINGS}[cpu]", "must not be empty"),
        ({MAPPINGS: {"cpu": {"allocationMultiplier": "0"}}}, f"{MAPPINGS}[cpu]", "larger than zero"),
        (
            {MAPPINGS: {"cpu": {"allocationMultiplier": "two"}}},
            f"{MAPPINGS}[cpu].allocationMultiplier",
            "quantity",
        ),
        (
            {MAPPINGS: {"cpu": {"allocationMultiplier": "1", "accountingPolicy": "Min"}}},
            f"{MAPPINGS}[cpu].accountingPolicy",
            "must be one of AddPerClaim",
        ),
        (
            {MAPPINGS: {"example.com/gpu": {"allocationMultiplier": "1"}}},
            f"{MAPPINGS}[example.com/gpu]",
            "a resource of the node",
        ),
        (
            {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1", "capacityKey": "c"}}}},
            "nodeAllocatableResources[cpu].mapping",
            "must not have",
        ),
        (
            {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "-1"}}}},
            "nodeAllocatableResources[cpu]",
            "negative",
        ),
        ({"nodeAllocatableResources": {"cpu": {}}}, "nodeAllocatableResources[cpu]", "mapping or overhead"),
        (
            {"nodeAllocatableResources": {"cpu": {"overhead": {"perNode": "1"}}}},
            "nodeAllocatableResources[cpu].overhead.perNode",
            "unknown field",
        ),
        (
            {
                "nativeResourceMappings": {
                    "cpu": {"quantityFrom": {"capacity": "c", "perInstanceQuantity": "1"}}
                }
            },
            "nativeResourceMappings[cpu].quantityFrom",
            "only one",
        ),
        (
            {
                MAPPINGS: {"cpu": {"allocationMultiplier": "1"}},
                "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}},
            },
            "",
            "only one of",
        ),
        (
            {"nodeAllocatableResourceAccountingPolicies": {"cpu": "Min"}},
            "nodeAllocatableResourceAccountingPolicies[cpu]",
            "must be one of",
        ),
        ({"managesNodeAllocatableResources": "yes"}, "managesNodeAllocatableResources", "true or false"),
    ],
)
def test_an_invalid_class_annotation_names_the_field(words: Any, field: str, message: str) -> None:
    text = words if isinstance(words, str) else json.dumps(words)
    problem = read_class_annotation(text)
    assert isinstance(problem, AnnotationProblem)
    assert problem.field == field
    assert message in problem.message
    found = read_device_class(device_class(text))
    assert found.problem == f"device class k, annotation {CLASS_KEY}: {problem}"
    assert found.charges


quantities = st.integers(1, 10**6).map(lambda n: Quantity.of(n, scale=-3))
names = st.sampled_from(("cpu", "memory", "ephemeral-storage", "hugepages-2Mi"))
rules = st.builds(
    DeviceRule,
    st.none() | st.sampled_from(("dra.example.com/cpus", "mem")),
    quantities,
    policy=st.sampled_from(("", *POLICIES)),
)


@given(st.dictionaries(names, rules, min_size=1), st.sampled_from((Form.V1_36, Form.V1_37)))
def test_every_device_mapping_is_valid_in_a_class_annotation(
    expected: dict[str, DeviceRule], form: Form
) -> None:
    device = write_device(Device(), expected, form).lossless(form)
    assert read_class_annotation(codec.encode(device).decode()) == ClassPolicy(rules=expected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(("", "1", "-1", "Max", "1e99", "text")),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            (
                MAPPINGS, "nodeAllocatableResources", "nativeResourceMappings", "cpu", "mapping", "overhead",
                "quantityFrom", "perPod", "capacityKey", "allocationMultiplier", "resourceClaimName",
                "resources", "containers", "drawn", "accountingPolicies", "name", "quantity",
            )
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON.map(json.dumps) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert isinstance(read_class_annotation(text), ClassPolicy | AnnotationProblem)
    assert isinstance(read_charges_annotation(text), tuple | AnnotationProblem)
    assert isinstance(read_pod(pod(text)), tuple)


# -- pods


ENTRY = '[{"resourceClaimName":"c","containers":["a"],"resources":{"cpu":"2"},"drawn":{"cpu":"1"}}]'
CHARGE = ClaimCharge("c", ("a",), {"cpu": ResourceCharge(q("2"), drawn=q("1"))})


def test_charges_are_read_from_the_annotation_where_the_status_has_none() -> None:
    assert read_pod(pod(ENTRY)) == (CHARGE,)
    assert read_pod(pod(None)) == ()


def test_the_annotation_completes_the_status() -> None:
    other = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "d", "resources": {"cpu": "9"}}]}
    assert [charge.claim for charge in read_pod(pod(ENTRY, other))] == ["c", "d"]
    entry = {"resourceClaimName": "c", "containers": ["b"], "resources": {"cpu": "9", "memory": "1Gi"}}
    (charge,) = read_pod(pod(ENTRY, {"nodeAllocatableResourceClaimStatuses": [entry]}))
    assert charge == ClaimCharge(
        "c", ("b",), {"cpu": ResourceCharge(q("9"), drawn=q("1")), "memory": ResourceCharge(q("1Gi"))}
    )


def test_a_pod_without_claims_has_no_charges() -> None:
    assert read_pod(pod(ENTRY, claims=False)) == ()
    extended = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}}
    assert read_pod(pod(ENTRY, extended, claims=False)) == (CHARGE,)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "not JSON"),
        ("{}", "must be a list"),
        ('[{"resources":{"cpu":"1"}}]', "[0].resourceClaimName: is missing"),
        ('[{"resourceClaimName":"c"},{"resourceClaimName":"c"}]', "[1].resourceClaimName: c is listed twice"),
        ('[{"resourceClaimName":"c","resources":{"cpu":"-1"}}]', "[0], claim c: cpu must not be negative"),
        (
            '[{"resourceClaimName":"c","overhead":[{"name":"cpu","perPod":"-1"}]}]',
            "[0], claim c: cpu must not be negative",
        ),
        (
            '[{"resourceClaimName":"c","resources":{"cpu":"much"}}]',
            "[0].resources[cpu]: 'much' is not a quantity",
        ),
    ],
)
def test_invalid_charges_are_ignored(text: str, problem: str) -> None:
    one = pod(text)
    assert read_pod(one) == ()
    assert str(find_pod_problem(one)).startswith(problem)


def test_a_good_annotation_has_no_problem() -> None:
    assert find_pod_problem(pod(ENTRY)) is None
    assert find_pod_problem(pod(None)) is None


some = st.none() | quantities
charges = st.builds(
    ResourceCharge, some, some, some, st.sampled_from(("", *POLICIES, "FromTheFuture")), some
).filter(lambda charge: charge != ResourceCharge())
claims = st.lists(
    st.builds(
        ClaimCharge,
        st.text("abc", min_size=1, max_size=3),
        st.lists(st.sampled_from(("a", "b")), unique=True).map(tuple),
        st.dictionaries(names, charges, max_size=3),
    ),
    unique_by=lambda charge: charge.claim,
    max_size=3,
)


@given(claims)
def test_charges_round_trip(entries: list[ClaimCharge]) -> None:
    text = format_charges_annotation(entries)
    assert read_charges_annotation(text) == tuple(entries)


def test_an_entry_equals_the_1_36_form_where_possible() -> None:
    assert format_charges_annotation([CHARGE]) == ENTRY
