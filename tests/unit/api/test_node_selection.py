"""Node matching by name, by flag and by node selector."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.core import Node, NodeSelector
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.api.node_selection import (
    filter_valid_terms,
    find_selector_problem,
    node_matches,
    selector_matches,
    term_matches,
)


def node(name: str = "node-a", **labels: str) -> Node:
    return convert({"metadata": {"name": name, "labels": labels}}, Node)


def selector(*terms: dict[str, Any]) -> NodeSelector:
    return convert({"nodeSelectorTerms": list(terms)}, NodeSelector)


def requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def labels(*requirements: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(requirements)}


def fields(*requirements: dict[str, Any]) -> dict[str, Any]:
    return {"matchFields": list(requirements)}


NODE = node(zone="x", size="10", empty="")


# -- requirements


@pytest.mark.parametrize(
    ("asked", "matches"),
    [
        (requirement("zone", "In", "x"), True),
        (requirement("zone", "In", "y", "x"), True),
        (requirement("zone", "In", "y"), False),
        (requirement("missing", "In", "x"), False),
        (requirement("empty", "In", ""), True),
        (requirement("zone", "NotIn", "y"), True),
        (requirement("zone", "NotIn", "x", "y"), False),
        (requirement("missing", "NotIn", "x"), True),
        (requirement("zone", "Exists"), True),
        (requirement("empty", "Exists"), True),
        (requirement("missing", "Exists"), False),
        (requirement("zone", "DoesNotExist"), False),
        (requirement("missing", "DoesNotExist"), True),
        (requirement("size", "Gt", "9"), True),
        (requirement("size", "Gt", "10"), False),
        (requirement("size", "Lt", "11"), True),
        (requirement("size", "Lt", "10"), False),
        (requirement("zone", "Gt", "1"), False),
        (requirement("missing", "Lt", "1"), False),
    ],
)
def test_labels(asked: dict[str, Any], matches: bool) -> None:
    assert selector_matches(selector(labels(asked)), NODE) is matches


@pytest.mark.parametrize(
    ("asked", "matches"),
    [
        (requirement("metadata.name", "In", "node-a"), True),
        (requirement("metadata.name", "In", "node-b"), False),
        (requirement("metadata.name", "NotIn", "node-a"), False),
        (requirement("metadata.name", "NotIn", "node-b"), True),
        (requirement("metadata.other", "In", "node-a"), False),
        (requirement("metadata.other", "NotIn", "node-a"), True),
    ],
)
def test_fields(asked: dict[str, Any], matches: bool) -> None:
    assert selector_matches(selector(fields(asked)), NODE) is matches


def test_numbers_are_those_of_64_bits() -> None:
    large = str(2**63 - 1)
    assert selector_matches(selector(labels(requirement("n", "Lt", large))), node(n=str(2**63 - 2))) is True
    assert selector_matches(selector(labels(requirement("n", "Lt", large))), node(n=str(2**63))) is False


# -- terms


def test_the_requirements_of_a_term_must_all_hold() -> None:
    here, there = requirement("zone", "In", "x"), requirement("size", "Gt", "10")
    assert selector_matches(selector(labels(here, there)), NODE) is False
    assert selector_matches(selector(labels(here), labels(there)), NODE) is True
    name = requirement("metadata.name", "In", "node-b")
    assert selector_matches(selector({**labels(here), **fields(name)}), NODE) is False


def test_an_empty_term_matches_nothing() -> None:
    assert selector_matches(selector({}), NODE) is False
    assert selector_matches(selector({}, labels(requirement("zone", "Exists"))), NODE) is True


def test_a_selector_without_terms_matches_nothing() -> None:
    assert selector_matches(selector(), NODE) is False


# -- name, flag, selector


def test_the_name_precedes_the_flag() -> None:
    nowhere = selector({})
    assert node_matches(NODE, "node-a", None, nowhere) is True
    assert node_matches(NODE, "node-b", True, None) is False
    assert node_matches(NODE, None, True, nowhere) is True
    assert node_matches(NODE, "", False, selector(labels(requirement("zone", "Exists")))) is True
    assert node_matches(NODE, None, None, None) is False


# -- selectors that cannot be read


@pytest.mark.parametrize(
    ("term", "field", "message"),
    [
        (labels(requirement("zone", "In")), "matchExpressions[0]", "operator In needs at least one value"),
        (
            labels(requirement("zone", "Exists", "x")),
            "matchExpressions[0]",
            "operator Exists takes no values",
        ),
        (
            labels(requirement("size", "Gt", "a")),
            "matchExpressions[0]",
            "operator Gt needs exactly one value",
        ),
        (
            labels(requirement("size", "Lt", "1", "2")),
            "matchExpressions[0]",
            "operator Lt needs exactly one value",
        ),
        (labels(requirement("zone", "Near", "x")), "matchExpressions[0]", "'Near' is not a valid operator"),
        (labels(requirement("not a key", "Exists")), "matchExpressions[0]", "is not a valid label name"),
        (labels(requirement("zone", "In", "no value")), "matchExpressions[0]", "is not a valid label value"),
        (labels(requirement("size", "Gt", "-1")), "matchExpressions[0]", "is not a valid label value"),
        (fields(requirement("metadata.name", "Exists")), "matchFields[0]", "use In or NotIn"),
        (
            fields(requirement("metadata.name", "In", "a", "b")),
            "matchFields[0]",
            "must have exactly one value",
        ),
    ],
)
def test_invalid_selectors_have_a_problem(term: dict[str, Any], field: str, message: str) -> None:
    """Even if another term matches, and also from `node_matches`."""
    made = selector(labels(requirement("zone", "Exists")), term)
    problem = selector_matches(made, NODE)
    assert isinstance(problem, SelectorProblem)
    assert problem.field == f"nodeSelectorTerms[1].{field}"
    assert message in problem.message
    assert str(problem) == f"{problem.field}: {problem.message}"
    assert node_matches(NODE, None, None, made) == find_selector_problem(made) == problem


def test_valid_selectors_have_no_problem() -> None:
    assert find_selector_problem(selector(labels(requirement("zone", "In", "x")), {})) is None


# -- agreement with the definition

keys, values = st.sampled_from(["a", "b"]), st.sampled_from(["", "1", "2", "x"])
requirements = st.one_of(
    st.builds(
        lambda key, operator, some: requirement(key, operator, *some),
        keys,
        st.sampled_from(["In", "NotIn"]),
        st.lists(values, min_size=1, max_size=2),
    ),
    st.builds(requirement, keys, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(requirement, keys, st.sampled_from(["Gt", "Lt"]), st.sampled_from(["1", "2"])),
)


def holds(asked: dict[str, Any], known: dict[str, str]) -> bool:
    have, wanted = known.get(asked["key"]), asked.get("values", [])
    is_number = have is not None and have.isdigit()
    return {
        "In": have in wanted,
        "NotIn": have not in wanted,
        "Exists": have is not None,
        "DoesNotExist": have is None,
        "Gt": is_number and int(have or 0) > int(wanted[0] or 0) if asked["operator"] == "Gt" else False,
        "Lt": is_number and int(have or 0) < int(wanted[0] or 0) if asked["operator"] == "Lt" else False,
    }[asked["operator"]]


@given(st.lists(st.lists(requirements, max_size=3), max_size=3), st.dictionaries(keys, values, max_size=2))
def test_terms_are_alternatives_of_requirements(
    terms: list[list[dict[str, Any]]], known: dict[str, str]
) -> None:
    made = selector(*[labels(*term) for term in terms])
    wanted = any(term and all(holds(each, known) for each in term) for term in terms)
    assert selector_matches(made, node(**known)) is wanted


def test_invalid_terms_are_left_out() -> None:
    good, bad = labels(requirement("zone", "Exists")), labels(requirement("zone", "Near", "a"))
    wrong_field = fields(requirement("metadata.name", "Exists"))
    made = selector(bad, good, wrong_field)
    (only,) = filter_valid_terms(made.node_selector_terms)
    assert term_matches(only, node(zone="a"))
    assert not term_matches(only, node(place="a"))
