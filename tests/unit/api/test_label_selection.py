"""Label selectors of typed objects."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.codec import convert
from plimsoll.api.label_selection import (
    MATCH_EVERYTHING,
    MATCH_NOTHING,
    CompiledLabelRequirement,
    CompiledLabelSelector,
    SelectorProblem,
    compile_label_selector,
)
from plimsoll.api.meta import LabelSelector


def read(tree: dict[str, Any]) -> CompiledLabelSelector:
    found = compile_label_selector(convert(tree, LabelSelector))
    assert isinstance(found, CompiledLabelSelector)
    return found


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}


@pytest.mark.parametrize(
    ("tree", "labels", "expected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"app": "a"}}, {"app": "a", "x": "y"}, True),
        ({"matchLabels": {"app": "a"}}, {"app": "b"}, False),
        ({"matchLabels": {"app": ""}}, {}, False),  # an empty value is a value
        ({"matchLabels": {"app": ""}}, {"app": ""}, True),
        (expression("app", "In", "a", "b"), {"app": "b"}, True),
        (expression("app", "In", "a", "b"), {}, False),
        (expression("app", "NotIn", "a"), {"app": "b"}, True),
        (expression("app", "NotIn", "a"), {}, True),
        (expression("app", "NotIn", "a"), {"app": "a"}, False),
        (expression("app", "Exists"), {"app": ""}, True),
        (expression("app", "Exists"), {}, False),
        (expression("app", "DoesNotExist"), {}, True),
        (expression("app", "DoesNotExist"), {"app": ""}, False),
        ({"matchLabels": {"a": "1"}, **expression("b", "Exists")}, {"a": "1"}, False),
    ],
)
def test_matching(tree: dict[str, Any], labels: dict[str, str], expected: bool) -> None:
    assert read(tree).matches(labels) is expected


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert compile_label_selector(None) is MATCH_NOTHING
    assert read({}) is MATCH_EVERYTHING
    assert MATCH_EVERYTHING.everything
    assert not MATCH_NOTHING.everything
    assert not MATCH_NOTHING.matches({})


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (expression("app", "In"), "matchExpressions[0]: operator In needs at least one value"),
        (expression("app", "Exists", "a"), "matchExpressions[0]: operator Exists takes no values"),
        (expression("app", "Gt", "1"), "matchExpressions[0]: 'Gt' is not a valid label selector operator"),
        (expression("a b", "Exists"), "matchExpressions[0]: 'a b' is not a valid label name"),
        (expression("app", "In", "a b"), "matchExpressions[0]: 'a b' is not a valid label value"),
        ({"matchLabels": {"app": "a b"}}, "matchLabels: 'a b' is not a valid label value"),
    ],
)
def test_invalid_selectors_are_reported(tree: dict[str, Any], expected: str) -> None:
    found = compile_label_selector(convert(tree, LabelSelector))
    assert isinstance(found, SelectorProblem)
    assert str(found) == expected


def test_equal_conditions_are_equal_in_any_order() -> None:
    one = read({"matchLabels": {"a": "1"}, **expression("b", "In", "y", "x")})
    expressions = [
        {"key": "b", "operator": "In", "values": ["x", "y", "x"]},
        {"key": "a", "operator": "In", "values": ["1"]},
    ]
    other = read({"matchExpressions": expressions})
    assert one == other
    assert hash(one) == hash(other)


def test_the_anchor_is_a_label_of_all_matching_objects() -> None:
    assert read({"matchLabels": {"app": "a"}, **expression("b", "Exists")}).anchor == ("app", "a")
    assert read(expression("app", "In", "a", "b")).anchor is None
    assert read(expression("app", "NotIn", "a")).anchor is None
    assert MATCH_EVERYTHING.anchor is None


def test_narrowing() -> None:
    more = [CompiledLabelRequirement("b", "In", ("1",))]
    assert read({"matchLabels": {"a": "1"}}).narrowed(more) == read({"matchLabels": {"a": "1", "b": "1"}})
    assert MATCH_EVERYTHING.narrowed(more) == read({"matchLabels": {"b": "1"}})
    assert MATCH_NOTHING.narrowed(more) is MATCH_NOTHING
