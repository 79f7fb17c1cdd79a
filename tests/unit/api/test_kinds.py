"""Table of kinds: unique keys, valid versions, scopes."""

from __future__ import annotations

import re

import pytest

from plimsoll.api.codec import KINDS as VIEWS
from plimsoll.api.kinds import KINDS, find_kind, is_namespaced


def test_keys_are_unique() -> None:
    assert len({kind.key for kind in KINDS}) == len(KINDS)
    assert len({(kind.group, kind.kind) for kind in KINDS}) == len(KINDS)


def test_rows_are_complete() -> None:
    for kind in KINDS:
        assert kind.versions
        assert all(re.fullmatch(r"v\d+((alpha|beta)\d+)?", version) for version in kind.versions), kind
        assert kind.plural == kind.plural.lower()
        assert kind.plural[:3] == kind.kind.lower()[:3]


def test_one_row() -> None:
    kind = find_kind("resourceclaims.resource.k8s.io")
    assert (kind.api_version, kind.kind) == (
        "resource.k8s.io/v1",
        "ResourceClaim",
    )
    assert kind.versions == ("v1", "v1beta2", "v1beta1")
    assert find_kind("customresourcedefinitions.apiextensions.k8s.io").short_names == ("crd", "crds")


@pytest.mark.parametrize(("kind", "expected"), [("Pod", True), ("Node", False), ("Widget", False)])
def test_scope(kind: str, expected: bool) -> None:
    assert is_namespaced(kind) == expected


def test_every_kind_with_a_typed_view_is_in_the_table() -> None:
    assert VIEWS.keys() <= {(kind.group, kind.kind) for kind in KINDS}
