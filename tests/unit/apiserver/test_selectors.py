"""Label and field selectors."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import find_resource
from plimsoll.apiserver.selectors import parse_field_selector, parse_label_selector, read_selector
from plimsoll.errors import ApiError
from tests.unit.apiserver.build import refused

LABELS = {"app": "web", "tier": "1", "empty": ""}


def pods() -> Resource:
    resource = find_resource("", "v1", "pods")
    assert resource is not None
    return resource


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("gone", False),
        ("!gone", True),
        ("app=web", True),
        ("app==web,tier=1", True),
        ("app=web,tier=2", False),
        ("app!=web", False),
        ("gone!=web", True),
        ("app in (web, db)", True),
        ("app notin (web, db)", False),
        ("gone notin (web)", True),
        ("empty=", True),
        ("empty in ()", True),
        ("gone=", False),
        ("tier>0", True),
        ("tier<1", False),
        ("app>0", False),
        ("  app  =  web ", True),
        ("a.example/x notin (,y)", True),
    ],
)
def test_label_selectors(text: str, matches: bool) -> None:
    assert parse_label_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    "text", ["=", "app=web,", ",", "app in web", "app in (web", "app~web", "app=web=db", "a b", "x>y", "-=1"]
)
def test_bad_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_label_selector(text)
    assert caught.value.code == 400


def test_field_selectors() -> None:
    selector = parse_field_selector(r"spec.nodeName=n1,status.phase!=Failed,metadata.name=a\,b", pods())
    fields = {"spec.nodeName": "n1", "status.phase": "Running", "metadata.name": "a,b"}
    assert selector.matches(fields)
    assert not selector.matches({**fields, "status.phase": "Failed"})
    assert selector.exact("spec.nodeName") == "n1"
    assert selector.exact("status.phase") is None
    assert not parse_field_selector("", pods())


@pytest.mark.parametrize("text", ["spec.foo=1", "spec.nodeName", "metadata.name=a=b", "metadata.name=a\\"])
def test_bad_field_selectors_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_field_selector(text, pods())
    assert caught.value.code == 400


@given(st.text(alphabet="ab=!<>(), \\in.-/\n", max_size=30))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    for parse in (parse_label_selector, lambda text: parse_field_selector(text, pods())):
        assert refused(partial(parse, text)) in (0, 400)


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "x", "y"])), st.sampled_from("abc"))
def test_a_requirement_and_its_negation_partition_all_inputs(labels: dict[str, str], key: str) -> None:
    for one, other in (
        (f"{key}=x", f"{key}!=x"),
        (key, f"!{key}"),
        (f"{key} in (x,y)", f"{key} notin (x,y)"),
    ):
        assert parse_label_selector(one).matches(labels) is not parse_label_selector(other).matches(labels)


@pytest.mark.parametrize(
    ("tree", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Near"}]}, False),
        ({"matchExpressions": [5]}, False),
        ({"matchLabels": []}, False),
        ({"matchLabels": "app"}, False),
        (None, False),
    ],
)
def test_selectors_in_objects(tree: Any, matches: bool) -> None:
    assert read_selector(tree).matches(LABELS) is matches
