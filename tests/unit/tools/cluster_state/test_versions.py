"""Conversion of older versions of resource.k8s.io to v1."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.resource_versions import VERSIONS, Unconvertible, from_v1, to_v1, version_of
from tests.dumps import big_cluster
from tests.unit.tools.cluster_state.beta_versions import Tree, to_beta

EXACTLY = (
    "deviceClassName",
    "selectors",
    "allocationMode",
    "count",
    "adminAccess",
    "tolerations",
    "capacity",
    "derivedAttributes",
)


@pytest.mark.parametrize("version", VERSIONS)
def test_conversions_round_trip(version: str) -> None:
    for tree in big_cluster(1):
        old = to_beta(tree, version)
        before = copy.deepcopy(old)
        new = to_v1(old)
        assert not isinstance(new, Unconvertible)
        assert {**new, "apiVersion": tree["apiVersion"]} == tree
        assert old == before  # the given tree is left as it is


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_writing_is_the_inverse_of_reading(version: str) -> None:
    for tree in big_cluster(1):
        if version_of(tree):
            before = copy.deepcopy(tree)
            written = from_v1(tree, tree["kind"], version)
            assert written == to_beta(tree, version)
            read = to_v1(written)
            assert not isinstance(read, Unconvertible)
            assert {**read, "apiVersion": tree["apiVersion"]} == tree == before


def test_patches_are_written_in_the_shape_of_their_kind() -> None:
    status = {"status": {"allocation": None}}
    assert from_v1(status, "ResourceClaim", "v1beta1") == status
    patch = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"count": 1}}]}}}
    inline = {"spec": {"devices": {"requests": [{"name": "r", "count": 1}]}}}
    assert from_v1(patch, "ResourceClaim", "v1beta1") == inline
    options = {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert from_v1(options, "ResourceClaim", "v1beta1") == options


def test_a_request_of_v1beta1() -> None:
    request = {
        "name": "gpu",
        "deviceClassName": "gpu",
        "count": 2,
        "adminAccess": True,
        "selectors": [{"cel": {"expression": "true"}}],
    }
    alternatives = {"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "gpu", "count": 1}]}
    claim = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [request, alternatives]}},
    }
    changed = to_v1(claim)
    assert not isinstance(changed, Unconvertible)
    assert changed["apiVersion"] == "resource.k8s.io/v1"
    first, second = changed["spec"]["devices"]["requests"]
    assert first == {"name": "gpu", "exactly": {key: request[key] for key in request if key != "name"}}
    assert second == alternatives
    template = to_v1({**claim, "kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}})
    assert not isinstance(template, Unconvertible)
    assert template["spec"]["spec"] == changed["spec"]


def test_unsupported_versions_are_reported() -> None:
    for version in ("v1alpha2", "v2"):
        loss = to_v1({"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaim"})
        assert isinstance(loss, Unconvertible)
        assert version in loss.why


def test_a_rule_that_selects_by_class_is_left_out() -> None:
    rule = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule", "metadata": {"name": "r"}}
    spec: Tree = {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    kept = to_v1({**rule, "spec": spec})
    assert kept == {**rule, "spec": spec, "apiVersion": "resource.k8s.io/v1beta2"}
    spec["deviceSelector"]["deviceClassName"] = "gpu"
    assert isinstance(to_v1({**rule, "spec": spec}), Unconvertible)


SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("spec", "devices", "requests", "basic", "capacity", "name", "count")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(
    st.sampled_from(VERSIONS),
    st.sampled_from(["ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceTaintRule"]),
    SHAPES,
)
def test_any_shape_is_converted_or_reported(version: str, kind: str, spec: Any) -> None:
    """Errors are reported by the decoder; the converter passes values through."""
    tree = {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "spec": spec}
    before = copy.deepcopy(tree)
    to_v1(tree)
    assert tree == before
