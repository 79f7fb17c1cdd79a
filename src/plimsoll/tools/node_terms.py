"""Terms of pods about nodes, and a node's answers: taints, labels and affinity requirements."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.core import (
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    Taint,
    Toleration,
)
from plimsoll.api.label_selection import CompiledLabelRequirement, CompiledLabelSelector
from plimsoll.api.node_selection import NAME_FIELD, filter_valid_terms, term_matches
from plimsoll.api.resource import DeviceTaint
from plimsoll.api.tolerations import is_tolerated
from plimsoll.scheduler.filters.node_affinity import required_selector
from plimsoll.scheduler.filters.taint_toleration import NO_EXECUTE, NO_SCHEDULE
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.tools.facts import join_names


def untolerated_taints(pod: Pod, node: Node) -> tuple[Taint, ...]:
    """Return the taints of a node that the pod does not tolerate."""
    return tuple(
        taint
        for taint in node.spec.taints
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not is_tolerated(pod.spec.tolerations, taint)
    )


def taint_text(taint: Taint | DeviceTaint | Toleration) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}" + (f":{taint.effect}" if taint.effect else "")


def unmet_requirements(
    pod: Pod, node: Node, profile: SchedulerProfile | None = None
) -> tuple[NodeSelectorRequirement, ...]:
    """Return the unmet nodeSelector labels and the unmet requirements of the nearest affinity term, of the
    pod and of the profile.
    """
    found = [
        NodeSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in sorted(pod.spec.node_selector.items())
        if node.metadata.labels.get(key) != value
    ]
    added = None if profile is None else profile.added_affinity
    for selector in (required_selector(pod), None if added is None else added.required):
        if selector is None:
            continue
        terms = [[*unmet_of_term(term, node)] for term in _matchable(selector)]
        terms.sort(key=len)
        found += terms[0] if terms else []
    return tuple(found)


def _matchable(selector: NodeSelector) -> list[NodeSelectorTerm]:
    """Return the valid, non-empty terms of a selector."""
    terms = filter_valid_terms(selector.node_selector_terms)
    return [term for term in terms if term.match_expressions or term.match_fields]


def matches_nothing(pod: Pod) -> bool:
    """Return whether the required node affinity of a pod cannot match any node."""
    selector = required_selector(pod)
    return selector is not None and not _matchable(selector)


def unmet_of_term(term: NodeSelectorTerm, node: Node) -> Iterator[NodeSelectorRequirement]:
    for each in term.match_expressions:
        if not term_matches(NodeSelectorTerm(match_expressions=(each,)), node):
            yield each
    for each in term.match_fields:
        if not term_matches(NodeSelectorTerm(match_fields=(each,)), node):
            yield each


def requirement_text(requirement: NodeSelectorRequirement | CompiledLabelRequirement) -> str:
    """Format a requirement of a node selector or a label selector."""
    values = join_names(requirement.values, 3)
    is_single = len(requirement.values) == 1
    match requirement.operator:
        case "In":
            return f"{requirement.key}={values}" if is_single else f"{requirement.key} in ({values})"
        case "NotIn":
            return f"{requirement.key}!={values}" if is_single else f"{requirement.key} not in ({values})"
        case "Exists":
            return f"label {requirement.key}"
        case "DoesNotExist":
            return f"no label {requirement.key}"
        case "Gt":
            return f"{requirement.key}>{values}"
        case "Lt":
            return f"{requirement.key}<{values}"
    return f"{requirement.key} {requirement.operator} {values}"


def node_value_text(requirement: NodeSelectorRequirement, node: Node) -> str:
    """Describe the node's value for a requirement."""
    if requirement.key == NAME_FIELD:
        return f"{NAME_FIELD}={node.metadata.name}"
    value = node.metadata.labels.get(requirement.key)
    return f"{requirement.key}={value}" if value is not None else f"no label {requirement.key}"


def selector_text(selector: CompiledLabelSelector) -> str:
    """Format a label selector as kubectl does."""
    if selector.nothing:
        return "(no labels at all)"
    return ", ".join(map(requirement_text, selector.requirements)) or "any labels"
