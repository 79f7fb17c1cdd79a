"""Node selector matching for ResourceSlices, allocations and pods.

Terms are ORed, the requirements of a term are ANDed, an empty term matches nothing, and `matchFields`
supports metadata.name only (docs/spec/allocator.md, "Gathering pools"). An invalid selector is a
`SelectorProblem`, a value, because a cluster may have stored it before validation became stricter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.api.core import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from plimsoll.api.label_selection import SelectorProblem, label_matches, parse_int64
from plimsoll.api.names import label_key, label_value

NAME_FIELD = "metadata.name"


def node_matches(
    node: Node, node_name: str | None, all_nodes: bool | None, selector: NodeSelector | None
) -> bool | SelectorProblem:
    """Return whether a slice's or device's node selection matches a node; nothing set matches no node."""
    if node_name:
        return node.metadata.name == node_name
    if all_nodes:
        return True
    if selector is not None:
        return selector_matches(selector, node)
    return False


def selector_matches(selector: NodeSelector, node: Node) -> bool | SelectorProblem:
    """Return whether a node selector matches a node."""
    terms = selector.node_selector_terms
    if len(terms) == 1 and not terms[0].match_expressions and len(terms[0].match_fields) == 1:
        field = terms[0].match_fields[0]
        if field.key == NAME_FIELD and field.operator == "In" and len(field.values) == 1:
            return field.values[0] == node.metadata.name  # as schedulers write it in allocations
    problem = find_selector_problem(selector)
    if problem is not None:
        return problem
    return any(term_matches(term, node) for term in selector.node_selector_terms)


def find_selector_problem(selector: NodeSelector) -> SelectorProblem | None:
    """Return the first error that prevents evaluation, or None."""
    for number, term in enumerate(selector.node_selector_terms):
        problem = find_term_problem(term, f"nodeSelectorTerms[{number}]")
        if problem is not None:
            return problem
    return None


def filter_valid_terms(terms: Iterable[NodeSelectorTerm]) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms that can be evaluated; the others are ignored, as in Kubernetes."""
    return tuple(term for term in terms if find_term_problem(term, "") is None)


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether a valid term matches a node; an empty one matches nothing."""
    return _term_matches(term, node.metadata.labels, node.metadata.name)


def find_term_problem(term: NodeSelectorTerm, path: str) -> SelectorProblem | None:
    """Return the first error of a term, or None; `path` is the field that has the term."""
    for index, requirement in enumerate(term.match_expressions):
        message = _expression_problem(requirement)
        if message:
            return SelectorProblem(f"{path}.matchExpressions[{index}]", message)
    for index, requirement in enumerate(term.match_fields):
        message = _field_problem(requirement)
        if message:
            return SelectorProblem(f"{path}.matchFields[{index}]", message)
    return None


def _expression_problem(requirement: NodeSelectorRequirement) -> str:
    count = len(requirement.values)
    match requirement.operator:
        case "In" | "NotIn":
            if not count:
                return f"operator {requirement.operator} needs at least one value"
        case "Exists" | "DoesNotExist":
            if count:
                return f"operator {requirement.operator} takes no values"
        case "Gt" | "Lt":
            if count != 1 or parse_int64(requirement.values[0]) is None:
                return f"operator {requirement.operator} needs exactly one value, a whole number"
        case operator:
            return f"{operator!r} is not a valid operator"
    if label_key(requirement.key):
        return f"{requirement.key!r} is not a valid label name"
    for value in requirement.values:
        if label_value(value):
            return f"{value!r} is not a valid label value"
    return ""


def _field_problem(requirement: NodeSelectorRequirement) -> str:
    if requirement.operator not in ("In", "NotIn"):
        return f"{requirement.operator!r} is not a valid operator for fields: use In or NotIn"
    if len(requirement.values) != 1:
        return "must have exactly one value"
    return ""


def _term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(label_matches(requirement, labels) for requirement in term.match_expressions) and all(
        _field_matches(requirement, name) for requirement in term.match_fields
    )


def _field_matches(requirement: NodeSelectorRequirement, name: str) -> bool:
    value = name if requirement.key == NAME_FIELD else ""
    return (value == requirement.values[0]) == (requirement.operator == "In")
