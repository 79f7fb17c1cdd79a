"""RBAC rule index, compared with reading every rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.rbac_rules import (
    GrantIndex,
    PolicyRule,
    RoleGrant,
    path_matches,
)
from plimsoll.apiserver.auth.users import User

VERBS = st.sampled_from(["get", "list", "create", "*", ""])
GROUPS = st.sampled_from(["", "apps", "*"])
RESOURCES = st.sampled_from(["pods", "pods/status", "*", "*/status", "jobs", "*/*", ""])
NAMES = st.sampled_from(["a", "b", ""])
PATHS = st.sampled_from(["/metrics", "/metrics/*", "*", "/", "/m*", "/metrics/a", "**"])


def some(values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(values, max_size=3).map(tuple)


RULES = st.builds(PolicyRule, some(VERBS), some(GROUPS), some(RESOURCES), some(NAMES), some(PATHS))
USER = User("u")
QUESTIONS = st.one_of(
    st.builds(
        Attributes,
        st.just(USER),
        VERBS,
        GROUPS,
        st.just("v1"),
        st.sampled_from(["pods", "jobs", "*"]),
        st.sampled_from(["", "status", "*"]),
        st.just(""),
        NAMES,
    ),
    st.builds(
        lambda verb, path: Attributes(USER, verb, path=path),
        VERBS,
        st.sampled_from(["/metrics", "/metrics/a", "/", "/x"]),
    ),
)


@given(st.lists(RULES, max_size=5), st.lists(QUESTIONS, min_size=1, max_size=8))
def test_the_index_equals_a_scan_of_all_rules(rules: list[PolicyRule], asked: list[Attributes]) -> None:
    grants = [RoleGrant(rule) for rule in rules]
    index = GrantIndex(grants)
    for question in asked * 2:  # the second time out of memory
        assert (index.find(question) is not None) == any(rule.allows(question) for rule in rules)


def test_the_decision_cache_is_bounded() -> None:
    index = GrantIndex([RoleGrant(PolicyRule(("get",), ("",), ("*",)))])
    for number in range(5000):
        assert index.find(Attributes(USER, "get", resource=f"r{number}"))
    assert len(index.cache) <= 2048


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/a", "/a", True),
        ("/a", "/a/", False),
        ("/a/*", "/a/b/c", True),
        ("/a/*", "/a", False),
        ("*", "/", True),
        ("/a*", "/ab", True),
    ],
)
def test_paths(pattern: str, path: str, matches: bool) -> None:
    assert path_matches(pattern, path) is matches


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": [1]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": "a"},
        {"verbs": "get", "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["get"], "apiGroups": [None], "resources": ["pods"]},
    ],
)
def test_a_malformed_rule_grants_nothing(tree: Any) -> None:
    rule = PolicyRule.from_tree(tree)
    assert rule == PolicyRule()
    assert not rule.allows(Attributes(USER, "get", resource="pods", name="a"))


def test_rules_survive_a_round_trip() -> None:
    tree = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
    assert PolicyRule.from_tree(tree).to_tree() == tree
    assert str(PolicyRule.from_tree(tree)) == (
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}'
    )
