"""Properties of all generic kinds."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.apiserver.validation.generic_kinds.kind_table import KIND_RULES
from plimsoll.errors import DecodeError
from tests.sizes import examples
from tests.unit.apiserver.validation.generic_objects import KINDS, created, edit, field_errors, minimal, write

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["None", "RollingUpdate", "ClientIP", "Container", "Indexed", "10.0.0.1", "25%", "-1"]),
    st.just({}),
    st.just([]),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3),
    st.dictionaries(
        st.text(max_size=3), st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=3
    ),
)


def test_every_kind_has_a_sample_object() -> None:
    assert set(KINDS) == set(KIND_RULES)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_objects_are_stable(kind: str) -> None:
    """A stored object does not change when written back: all defaults are set and consistent."""
    tree = created(kind)
    again = write(tree, tree)
    assert (again.errors, again.tree) == ((), tree)
    assert write(tree, tree, "status").tree == tree


@pytest.mark.parametrize("kind", KINDS)
def test_applying_the_same_manifest_again_changes_nothing(kind: str) -> None:
    """An update with the original manifest keeps everything that was defaulted."""
    if kind == "Job":  # the labels that were generated are part of its template
        return
    tree = created(kind)
    again = write(minimal(kind), tree)
    assert again.errors == ()
    assert {**again.tree, "metadata": 0} == {**tree, "metadata": 0}


@pytest.mark.parametrize("kind", KINDS)
def test_input_objects_are_not_modified(kind: str) -> None:
    tree, old = minimal(kind), created(kind)
    before = copy.deepcopy((tree, old))
    write(tree)
    write(tree, old)
    write(tree, old, "status")
    assert (tree, old) == before


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_fields_stay(kind: str) -> None:
    tree = created(kind, {"spec.newField": {"a": [1, None]}, "newField": 1})
    assert (tree["spec"]["newField"], tree["newField"]) == ({"a": [1, None]}, 1)


def _places(tree: Any, path: str = "") -> list[str]:
    """Yield every editable path of a tree."""
    paths = []
    items = enumerate(tree) if isinstance(tree, list) else tree.items() if isinstance(tree, dict) else ()
    for key, value in items:
        place = f"{path}.{key}" if path else str(key)
        if "." not in str(key) and "/" not in str(key):
            paths += [place, *_places(value, place)]
    return paths


@settings(max_examples=examples(300))
@given(st.sampled_from(KINDS), st.randoms(use_true_random=False), st.lists(JUNK, min_size=1, max_size=3))
def test_garbage_is_rejected(kind: str, choice: random.Random, junk: list[Any]) -> None:
    """Errors or a DecodeError, nothing else, for new objects, updates and status writes."""
    whole = created(kind)
    tree = copy.deepcopy(whole)
    for value in junk:
        places = [place for place in _places(tree) if place not in ("kind", "metadata")]
        tree = edit(tree, {choice.choice(places): value})
    for old, subresource in ((None, ""), (whole, ""), (whole, "status")):
        try:
            field_errors(tree, old, subresource)
        except DecodeError:
            continue


@settings(max_examples=examples(150))
@given(st.sampled_from(KINDS), st.randoms(use_true_random=False), JUNK)
def test_accepted_objects_are_stable(kind: str, choice: random.Random, junk: Any) -> None:
    whole = created(kind)
    places = [
        place for place in _places(whole) if place.partition(".")[0] not in ("kind", "metadata", "status")
    ]
    if not places:
        return
    tree = edit(whole, {choice.choice(places): junk})
    try:
        first = write(tree)
    except DecodeError:
        return
    if not first.errors:
        again = write(first.tree, first.tree)
        assert (again.errors, again.tree) == ((), first.tree)


@pytest.mark.parametrize(
    ("rule", "errors"),
    [
        ({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, []),
        ({"apiGroups": [""], "resources": ["pods"]}, ["rules[0].verbs Required"]),
        ({"verbs": ["get"]}, ["rules[0].apiGroups Required", "rules[0].resources Required"]),
        (
            {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]},
            ["rules[0].nonResourceURLs Invalid"],
        ),
    ],
)
def test_rules_of_roles(rule: dict[str, Any], errors: list[str]) -> None:
    for kind in ("ClusterRole", "Role"):
        prepared = write({**minimal(kind), "rules": [rule]})
        found = [f"{each.field} {each.type.value.removeprefix('FieldValue')}" for each in prepared.errors]
        namespaced = (
            ["rules[0].nonResourceURLs Invalid"] if kind == "Role" and "nonResourceURLs" in rule else []
        )
        assert sorted(found) == sorted(errors + namespaced)
