"""Request options: list, write and delete."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.handlers.options import parse_delete_options, parse_list_options, parse_write_options
from plimsoll.errors import ApiError
from tests.unit.apiserver.build import refused


def test_list_options() -> None:
    options = parse_list_options({"limit": "5", "resourceVersion": "7", "resourceVersionMatch": "Exact"})
    assert (options.limit, options.resource_version, options.resource_version_match) == (5, 7, "Exact")
    assert parse_list_options({}).resource_version is None
    assert parse_list_options({"resourceVersion": "0"}).resource_version == 0


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "x"},
        {"resourceVersion": "abc"},
        {"resourceVersion": "9" * 30},
        {"resourceVersionMatch": "Exact"},
        {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
        {"resourceVersion": "1", "resourceVersionMatch": "Maybe"},
        {"sendInitialEvents": "true"},
        {"watch": "1", "sendInitialEvents": "true"},
        {"watch": "1", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
        {"watch": "1", "resourceVersionMatch": "NotOlderThan"},
        {"watch": "1", "continue": "x"},
        {"continue": "x", "resourceVersion": "5"},
        {"timeoutSeconds": "soon"},
    ],
)
def test_bad_list_options_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(ApiError) as caught:
        parse_list_options(query)
    assert caught.value.code in (400, 422)


def test_the_field_manager_defaults_to_the_user_agent() -> None:
    assert parse_write_options({}, user_agent="kubectl/v1.36 (linux)").field_manager == "kubectl"
    assert parse_write_options({"fieldManager": "me"}, user_agent="kubectl/v1.36").field_manager == "me"
    assert parse_write_options({}, user_agent="").field_manager == "unknown"


@pytest.mark.parametrize(
    ("query", "applies"),
    [
        ({"dryRun": "Some"}, False),
        ({"fieldValidation": "Hard"}, False),
        ({"fieldManager": "x" * 129}, False),
        ({"fieldManager": "a\nb"}, False),
        ({"force": "true"}, False),
        ({}, True),
    ],
)
def test_bad_write_options_are_refused(query: dict[str, str], applies: bool) -> None:
    with pytest.raises(ApiError):
        parse_write_options(query, user_agent="x", applies=applies)


def test_delete_options_come_from_the_body_or_the_query() -> None:
    body = {
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "3"},
        "propagationPolicy": "Foreground",
        "dryRun": ["All"],
    }
    options = parse_delete_options({}, body)
    assert (
        options.grace_period_seconds,
        options.uid,
        options.resource_version,
        options.propagation_policy,
    ) == (0, "u", "3", "Foreground")
    assert options.dry_run
    assert (
        parse_delete_options({"gracePeriodSeconds": "4", "orphanDependents": "true"}, None).propagation_policy
        == "Orphan"
    )
    assert parse_delete_options({"dryRun": "All"}, None).dry_run


@pytest.mark.parametrize(
    "body",
    [
        [],
        "x",
        {"kind": "Pod"},
        {"gracePeriodSeconds": "1"},
        {"gracePeriodSeconds": True},
        {"propagationPolicy": "Perhaps"},
        {"propagationPolicy": "Orphan", "orphanDependents": True},
        {"preconditions": {"uid": 4}},
        {"dryRun": "All"},
        {"dryRun": ["Some"]},
    ],
)
def test_bad_delete_options_are_refused(body: Any) -> None:
    with pytest.raises(ApiError):
        parse_delete_options({}, body)


@given(
    st.dictionaries(
        st.sampled_from(["limit", "watch", "resourceVersion", "resourceVersionMatch", "continue", "force"]),
        st.one_of(st.text(max_size=5), st.sampled_from(["0", "1", "true", "Exact", "NotOlderThan"])),
    )
)
def test_any_query_is_understood_or_refused(query: dict[str, str]) -> None:
    for read in (
        parse_list_options,
        lambda q: parse_write_options(q, user_agent="x"),
        lambda q: parse_delete_options(q, None),
    ):
        assert refused(partial(read, query)) in (0, 400, 422)
