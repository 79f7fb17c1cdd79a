"""How slices, devices and allocations say which nodes they are for (section 5 of the API semantics)."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import NodeSelector, NodeSelectorRequirement
from plimsoll.api.names import label_value
from plimsoll.apiserver.validation.field_errors import Path, Problem, Problems, forbidden, invalid, required
from plimsoll.apiserver.validation.name_formats import check_format, check_label_key, check_subdomain

_NODE_NAME_FIELD = "metadata.name"


def check_node_name(name: str, path: Path) -> Iterable[Problem]:
    return check_subdomain(name, path)


def check_node_selector(selector: NodeSelector, path: Path) -> Problems:
    terms = path.child("nodeSelectorTerms")
    if not selector.node_selector_terms:
        yield required(terms, "must have at least one term")
    for place, term in enumerate(selector.node_selector_terms):
        at = terms.index(place)
        for i, requirement in enumerate(term.match_expressions):
            yield from _check_expression(requirement, at.child("matchExpressions").index(i))
        for i, requirement in enumerate(term.match_fields):
            yield from check_field_requirement(requirement, at.child("matchFields").index(i))


def check_operator(requirement: NodeSelectorRequirement, path: Path) -> Problems:
    """Whether a condition has as many values as its operator takes."""
    operator, values = requirement.operator, path.child("values")
    if operator in ("In", "NotIn"):
        if not requirement.values:
            yield required(values, f"must have at least one value with operator {operator}")
    elif operator in ("Exists", "DoesNotExist"):
        if requirement.values:
            yield forbidden(values, f"must be empty with operator {operator}")
    elif operator in ("Gt", "Lt"):
        if len(requirement.values) != 1:
            yield required(values, f"must have exactly one value with operator {operator}")
    else:
        yield invalid(path.child("operator"), operator, "must be In, NotIn, Exists, DoesNotExist, Gt or Lt")


def _check_expression(requirement: NodeSelectorRequirement, path: Path) -> Problems:
    """A condition on node labels."""
    yield from check_operator(requirement, path)
    yield from check_label_key(requirement.key, path.child("key"))
    for place, value in enumerate(requirement.values):
        yield from check_format(value, path.child("values").index(place), label_value)


def check_field_requirement(requirement: NodeSelectorRequirement, path: Path) -> Problems:
    """A condition on a field of the node, of which the name is the only one."""
    if requirement.operator not in ("In", "NotIn"):
        yield invalid(path.child("operator"), requirement.operator, "must be In or NotIn for a field")
    elif len(requirement.values) != 1:
        yield required(path.child("values"), "must have exactly one value for a field")
    if requirement.key != _NODE_NAME_FIELD:
        yield invalid(path.child("key"), requirement.key, f"must be {_NODE_NAME_FIELD}")
        return
    for place, value in enumerate(requirement.values):
        yield from check_node_name(value, path.child("values").index(place))
