"""Validation of node names and node selectors in slices, devices and allocations (docs/spec/api.md,
"ResourceSlice").
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import NodeSelector, NodeSelectorRequirement
from plimsoll.api.names import label_value
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    required,
)
from plimsoll.apiserver.validation.name_formats import validate_format, validate_label_key, validate_subdomain

_NODE_NAME_FIELD = "metadata.name"


def validate_node_name(name: str, path: FieldPath) -> Iterable[FieldError]:
    return validate_subdomain(name, path)


def validate_node_selector(selector: NodeSelector, path: FieldPath) -> FieldErrors:
    terms = path.child("nodeSelectorTerms")
    if not selector.node_selector_terms:
        yield required(terms, "must have at least one term")
    for index, term in enumerate(selector.node_selector_terms):
        at = terms.index(index)
        for i, requirement in enumerate(term.match_expressions):
            yield from _validate_expression(requirement, at.child("matchExpressions").index(i))
        for i, requirement in enumerate(term.match_fields):
            yield from validate_field_requirement(requirement, at.child("matchFields").index(i))


def validate_operator(requirement: NodeSelectorRequirement, path: FieldPath) -> FieldErrors:
    """Validate that a requirement has as many values as its operator takes."""
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


def _validate_expression(requirement: NodeSelectorRequirement, path: FieldPath) -> FieldErrors:
    """Validate a requirement on node labels."""
    yield from validate_operator(requirement, path)
    yield from validate_label_key(requirement.key, path.child("key"))
    for index, value in enumerate(requirement.values):
        yield from validate_format(value, path.child("values").index(index), label_value)


def validate_field_requirement(requirement: NodeSelectorRequirement, path: FieldPath) -> FieldErrors:
    """Validate a requirement on a node field; only metadata.name is supported."""
    if requirement.operator not in ("In", "NotIn"):
        yield invalid(path.child("operator"), requirement.operator, "must be In or NotIn for a field")
    elif len(requirement.values) != 1:
        yield required(path.child("values"), "must have exactly one value for a field")
    if requirement.key != _NODE_NAME_FIELD:
        yield invalid(path.child("key"), requirement.key, f"must be {_NODE_NAME_FIELD}")
        return
    for index, value in enumerate(requirement.values):
        yield from validate_node_name(value, path.child("values").index(index))
