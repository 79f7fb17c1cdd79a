"""resource.k8s.io/v1beta1: the same objects in another shape."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.handlers.version_shapes import find_shape
from plimsoll.apiserver.protobuf import decode_body, encode_body
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

OLD, NEW = "/apis/resource.k8s.io/v1beta1", "/apis/resource.k8s.io/v1"
CLAIMS, TEMPLATES = "namespaces/default/resourceclaims", "namespaces/default/resourceclaimtemplates"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
KINDS = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")


def claim(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests)}}}


def slice_(**device: Any) -> dict[str, Any]:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "a.example.com", "nodeName": "n", "pool": pool, "devices": [device]}
    return {"metadata": {"name": "s"}, "spec": spec}


@run_by(run)
async def test_a_request_has_its_fields_itself(harness: ApiHarness) -> None:
    body = claim({"name": "r", "deviceClassName": "x"})
    code, made = await harness.request("POST", f"{OLD}/{CLAIMS}", body)
    assert (code, made["apiVersion"]) == (201, "resource.k8s.io/v1beta1")
    plain = {"deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}
    assert made["spec"]["devices"]["requests"] == [{"name": "r", **plain}]
    _, seen = await harness.request("GET", f"{NEW}/{CLAIMS}/c")
    assert seen["spec"]["devices"]["requests"] == [{"name": "r", "exactly": plain}]
    _, listed = await harness.request("GET", f"{OLD}/{CLAIMS}")
    assert listed["items"][0]["spec"] == made["spec"]
    (event,) = await harness.watch(f"{OLD}/{CLAIMS}", 1)
    assert event["object"] == made


@run_by(run)
async def test_alternatives_and_templates(harness: ApiHarness) -> None:
    request = {"name": "r", "firstAvailable": [{"name": "x", "deviceClassName": "y"}]}
    template = {"metadata": {"name": "t"}, "spec": {"spec": claim(request)["spec"]}}
    code, made = await harness.request("POST", f"{OLD}/{TEMPLATES}", template)
    (found,) = made["spec"]["spec"]["devices"]["requests"]
    assert (code, found["deviceClassName"], len(found["firstAvailable"])) == (201, "", 1)
    _, seen = await harness.request("GET", f"{NEW}/{TEMPLATES}/t")
    assert set(seen["spec"]["spec"]["devices"]["requests"][0]) == {"name", "firstAvailable"}


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"name": "r"}, "spec.devices.requests[0]"),
        ({"name": "r", "exactly": {"deviceClassName": "x"}}, "spec.devices.requests[0]"),
        ({"name": "r", "adminAccess": False}, "spec.devices.requests[0].exactly.deviceClassName"),
    ],
)
@run_by(run)
async def test_invalid_requests(harness: ApiHarness, *, request_: dict[str, Any], field: str) -> None:
    code, status = await harness.request("POST", f"{OLD}/{CLAIMS}", claim(request_))
    assert (code, status["details"]["causes"][0]["field"]) == (422, field)


@run_by(run)
async def test_a_device_has_its_fields_in_basic(harness: ApiHarness) -> None:
    basic = {"attributes": {"x": {"int": 1}}, "capacity": {"m": {"value": "1Gi"}}}
    code, made = await harness.request("POST", f"{OLD}/resourceslices", slice_(name="d", basic=basic))
    assert (code, made["spec"]["devices"]) == (201, [{"name": "d", "basic": basic}])
    _, seen = await harness.request("GET", f"{NEW}/resourceslices/s")
    assert seen["spec"]["devices"] == [{"name": "d", **basic}]
    made["spec"]["devices"][0]["basic"]["attributes"]["x"]["int"] = 7
    _, made = await harness.request("PUT", f"{OLD}/resourceslices/s", made)
    _, seen = await harness.request("GET", f"{NEW}/resourceslices/s")
    assert seen["spec"]["devices"][0]["attributes"] == {"x": {"int": 7}}
    assert decode_body(encode_body(made)) == made


@run_by(run)
async def test_ownership_is_recorded_in_the_storage_version(harness: ApiHarness) -> None:
    body: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim"}
    body |= claim({"name": "r", "deviceClassName": "x"})
    query = [("fieldManager", "m")]
    path = f"{OLD}/{CLAIMS}/c"
    code, made = await harness.request("PATCH", path, body, query=query, content_type=APPLY)
    assert code == 201
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["apiVersion"]) == ("m", "resource.k8s.io/v1")
    body["metadata"] = {"name": "c", "labels": {"a": "b"}}
    code, again = await harness.request("PATCH", path, body, query=query, content_type=APPLY)
    assert (code, again["metadata"]["labels"], again["spec"]) == (200, {"a": "b"}, made["spec"])
    patch = {"metadata": {"labels": {"a": "c"}}}
    _, again = await harness.request("PATCH", path, patch, content_type=MERGE)
    versions = {entry["apiVersion"] for entry in again["metadata"]["managedFields"]}
    assert versions == {"resource.k8s.io/v1"}


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["spec", "devices", "requests", "exactly", "basic", "name", "count", "firstAvailable"]
)
NESTED = st.recursive(
    JUNK,
    lambda inner: st.dictionaries(NAMES, inner, max_size=2) | st.lists(inner, max_size=2),
    max_leaves=8,
)
TREES = st.dictionaries(NAMES, NESTED, max_size=3)


@given(st.sampled_from(KINDS), TREES)
def test_any_tree_is_converted(kind: str, tree: dict[str, Any]) -> None:
    shape = find_shape("resource.k8s.io", "v1beta1", kind)
    assert shape is not None
    before = repr(tree)
    shape.to_storage(tree)
    shape.from_storage(tree)
    assert repr(tree) == before


EXACT = st.fixed_dictionaries(
    {"deviceClassName": st.sampled_from(["a", "b"])},
    optional={
        "count": st.integers(1, 3),
        "adminAccess": st.booleans(),
        "selectors": st.just([]),
        "derivedAttributes": st.just([{"name": "d", "expression": "1"}]),
    },
)
REQUESTS = st.lists(
    st.builds(lambda exactly: {"name": "r", "exactly": exactly}, EXACT)
    | st.just({"name": "r", "firstAvailable": [{"name": "x"}]}),
    max_size=3,
)


@given(REQUESTS)
def test_nothing_is_lost_by_conversion(requests: list[dict[str, Any]]) -> None:
    shape = find_shape("resource.k8s.io", "v1beta1", "ResourceClaim")
    assert shape is not None
    tree = claim(*requests)
    assert shape.to_storage(shape.from_storage(tree)) == tree
