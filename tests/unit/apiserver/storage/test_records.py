"""Texts of stored objects, kept in two parts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.apiserver.storage import type_prefix
from plimsoll.apiserver.storage.records import PrefixTable

TEXTS = st.sampled_from(["v1", "apps/v1", "Pod", "", 'a"b', "a\\b", "é", '","kind":"'])
FIELDS = st.sampled_from(["apiVersion", "kind", "metadata", "spec"])
TREES = st.dictionaries(FIELDS, TEXTS, max_size=4)


def naive_prefix(tree: dict[str, Any]) -> bytes:
    """Return the text of the first two fields if they are apiVersion and kind, and others follow."""
    if list(tree)[:2] != ["apiVersion", "kind"] or len(tree) == 2:
        return b""
    version, kind = tree["apiVersion"], tree["kind"]
    if not version or not kind or any(mark in version + kind for mark in '"\\'):
        return b""
    return codec.encode({"apiVersion": version, "kind": kind})[:-1] + b","


@given(TREES)
def test_the_prefix_is_the_text_of_apiversion_and_kind(tree: dict[str, Any]) -> None:
    assert type_prefix(codec.encode(tree)) == naive_prefix(tree)


@given(st.lists(st.tuples(st.sampled_from(["pods", "things"]), TREES)))
def test_both_parts_are_the_text_whatever_was_stored_before(
    objects: list[tuple[str, dict[str, Any]]],
) -> None:
    table = PrefixTable()
    for resource, tree in objects:
        raw = codec.encode(tree)
        prefix, rest = table.split(resource, raw)
        assert prefix == naive_prefix(tree)
        assert prefix + rest == raw


def test_equal_prefixes_are_one_object() -> None:
    table = PrefixTable()
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {}}
    first, second = (table.split("pods", codec.encode({**tree, "spec": number}))[0] for number in (1, 2))
    assert first is second
