"""Validation of scheduling constraints: affinity, tolerations and topology spread constraints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.api.core import (
    Affinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)
from plimsoll.api.meta import LabelSelector
from plimsoll.api.names import dns_label, label_value
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.label_selectors import is_valid, validate_selector
from plimsoll.apiserver.validation.name_formats import decimal_integer, validate_format, validate_label_key
from plimsoll.apiserver.validation.node_selectors import validate_field_requirement, validate_operator
from plimsoll.apiserver.validation.node_taints import EFFECTS

_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_NODE_POLICIES = ("Honor", "Ignore")
_WEIGHT_RULE = "must be in the range 1-100"
_NO_SELECTOR = "must not be specified when labelSelector is not set"
_IN_BOTH = "exists in both matchLabelKeys and labelSelector"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    """Exceptions for values that a stored pod already has and a new pod must not have."""

    allow_invalid_node_label_values: bool = False  #: in required node affinity
    allow_invalid_pod_label_values: bool = False  #: in selectors of pod affinity
    allow_invalid_spread_selectors: bool = False  #: selectors of spread constraints with any error
    allow_overlapping_spread_keys: bool = (
        False  #: matchLabelKeys of spread constraints that are also in the selector
    )
    allow_comparison_operators: bool = False  #: tolerations with the operators Lt and Gt


def options_for_stored_spec(spec: View) -> PlacementOptions:
    affinity = spec.affinity or Affinity()
    required_nodes = None if affinity.node_affinity is None else affinity.node_affinity.required
    terms = [
        term
        for side in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if side is not None
        for term in (*side.required, *(weighted.pod_affinity_term for weighted in side.preferred))
    ]
    return PlacementOptions(
        allow_invalid_node_label_values=required_nodes is not None and _has_invalid_values(required_nodes),
        allow_invalid_pod_label_values=not all(
            is_valid(t.label_selector) and is_valid(t.namespace_selector) for t in terms
        ),
        allow_invalid_spread_selectors=not all(
            is_valid(c.label_selector) for c in spec.topology_spread_constraints
        ),
        allow_overlapping_spread_keys=any(
            True
            for constraint in spec.topology_spread_constraints
            for _ in _validate_match_keys(
                constraint.match_label_keys, (), constraint.label_selector, FieldPath("")
            )
        ),
        allow_comparison_operators=any(
            toleration.operator in ("Lt", "Gt") for toleration in spec.tolerations
        ),
    )


def _has_invalid_values(selector: NodeSelector) -> bool:
    return any(
        label_value(value)
        for term in selector.node_selector_terms
        for requirement in term.match_expressions
        for value in requirement.values
    )


# -- affinity


def validate_affinity(affinity: Affinity | None, path: FieldPath, options: PlacementOptions) -> FieldErrors:
    if affinity is None:
        return
    nodes, at = affinity.node_affinity, path.child("nodeAffinity")
    if nodes is not None:
        if nodes.required is not None:
            yield from _validate_node_selector(
                nodes.required, at.child(_REQUIRED), options.allow_invalid_node_label_values
            )
        for index, preferred in enumerate(nodes.preferred):
            where = at.child(_PREFERRED).index(index)
            if not 1 <= preferred.weight <= 100:
                yield invalid(where.child("weight"), preferred.weight, _WEIGHT_RULE)
            yield from _validate_node_term(
                preferred.preference, where.child("preference"), allow_invalid_label_values=True
            )
    for name, side in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if side is not None:
            yield from _validate_pod_affinity(side, path.child(name), options.allow_invalid_pod_label_values)


def _validate_node_selector(
    selector: NodeSelector, path: FieldPath, allow_invalid_label_values: bool
) -> FieldErrors:
    at = path.child("nodeSelectorTerms")
    if not selector.node_selector_terms:
        yield required(at, "must have at least one node selector term")
    for index, term in enumerate(selector.node_selector_terms):
        yield from _validate_node_term(
            term, at.index(index), allow_invalid_label_values=allow_invalid_label_values
        )


def _validate_node_term(
    term: NodeSelectorTerm, path: FieldPath, *, allow_invalid_label_values: bool
) -> FieldErrors:
    for index, requirement in enumerate(term.match_expressions):
        at = path.child("matchExpressions").index(index)
        yield from _validate_node_requirement(requirement, at, allow_invalid_label_values)
    for index, requirement in enumerate(term.match_fields):
        yield from validate_field_requirement(requirement, path.child("matchFields").index(index))


def _validate_node_requirement(
    requirement: NodeSelectorRequirement, path: FieldPath, allow_invalid_label_values: bool
) -> FieldErrors:
    yield from validate_operator(requirement, path)
    yield from validate_label_key(requirement.key, path.child("key"))
    if not allow_invalid_label_values:
        for index, value in enumerate(requirement.values):
            yield from validate_format(value, path.child("values").index(index), label_value)


def _validate_pod_affinity(
    side: PodAffinity, path: FieldPath, allow_invalid_label_values: bool
) -> FieldErrors:
    for index, term in enumerate(side.required):
        yield from _validate_pod_term(term, path.child(_REQUIRED).index(index), allow_invalid_label_values)
    for index, weighted in enumerate(side.preferred):
        at = path.child(_PREFERRED).index(index)
        if not 1 <= weighted.weight <= 100:
            yield invalid(at.child("weight"), weighted.weight, _WEIGHT_RULE)
        yield from _validate_pod_term(
            weighted.pod_affinity_term, at.child("podAffinityTerm"), allow_invalid_label_values
        )


def _validate_pod_term(
    term: PodAffinityTerm, path: FieldPath, allow_invalid_label_values: bool
) -> FieldErrors:
    yield from validate_selector(
        term.label_selector,
        path.child("labelSelector"),
        allow_invalid_label_values=allow_invalid_label_values,
    )
    at = path.child("namespaceSelector")
    yield from validate_selector(
        term.namespace_selector, at, allow_invalid_label_values=allow_invalid_label_values
    )
    for namespace in term.namespaces:
        yield from validate_format(namespace, path.child("namespace"), dns_label)
    yield from _validate_match_keys(
        term.match_label_keys, term.mismatch_label_keys, term.label_selector, path
    )
    if not term.topology_key:
        yield required(path.child("topologyKey"), "can not be empty")
    yield from validate_label_key(term.topology_key, path.child("topologyKey"))


def _validate_match_keys(
    keys: Sequence[str], others: Sequence[str], selector: LabelSelector | None, path: FieldPath
) -> FieldErrors:
    """Validate matchLabelKeys and mismatchLabelKeys, which are already merged into the selector."""
    for name, given in (("matchLabelKeys", keys), ("mismatchLabelKeys", others)):
        if not given:
            continue
        if selector is None:
            yield forbidden(path.child(name), _NO_SELECTOR)
            continue
        for index, key in enumerate(given):
            yield from validate_label_key(key, path.child(name).index(index))
    if selector is not None:
        positions = {key: index for index, key in enumerate(keys)}
        seen = set(selector.match_labels)
        for requirement in selector.match_expressions:
            if requirement.key in positions and requirement.key in seen:
                yield invalid(path.index(positions[requirement.key]), requirement.key, _IN_BOTH)
            seen.add(requirement.key)
    apart = frozenset(others)
    for index, key in enumerate(keys):
        if key in apart:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(path.child("matchLabelKeys").index(index), key, detail)


# -- tolerations


def validate_tolerations(
    tolerations: Sequence[Toleration], path: FieldPath, options: PlacementOptions
) -> FieldErrors:
    for index, toleration in enumerate(tolerations):
        at = path.index(index)
        operator, effect = at.child("operator"), at.child("effect")
        if toleration.key:
            yield from validate_label_key(toleration.key, at.child("key"))
        elif toleration.operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield invalid(operator, toleration.operator, detail)
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(effect, toleration.effect, detail)
        yield from _validate_value(toleration, at, options)
        if toleration.effect and toleration.effect not in EFFECTS:
            yield not_supported(effect, toleration.effect, EFFECTS)


def _validate_value(toleration: Toleration, path: FieldPath, options: PlacementOptions) -> FieldErrors:
    operator, value = toleration.operator, toleration.value
    at = path.child("operator")
    if operator in ("", "Equal"):
        messages = label_value(value)
        if messages:
            yield invalid(at, value, ";".join(messages))
    elif operator == "Exists":
        if value:
            yield invalid(at, value, "value must be empty when `operator` is 'Exists'")
    elif operator in ("Lt", "Gt") and options.allow_comparison_operators:
        yield from validate_format(value, path.child("value"), decimal_integer)
        if not _is_int64(value):
            yield invalid(path.child("value"), value, "must be a number of 64 bits")
    else:
        yield not_supported(at, operator, ("Equal", "Exists"))


def _is_int64(text: str) -> bool:
    digits = text.lstrip("+-") if text[:2] not in ("+-", "-+", "++", "--") else ""
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 64:
        return False
    return -(2**63) <= int(text) < 2**63


# -- topology spread constraints


def validate_topology_spread_constraints(
    constraints: Sequence[TopologySpreadConstraint], path: FieldPath, options: PlacementOptions
) -> FieldErrors:
    remaining = Counter((c.topology_key, c.when_unsatisfiable) for c in constraints)
    for index, constraint in enumerate(constraints):
        at = path.index(index)
        if constraint.max_skew <= 0:
            yield invalid(at.child("maxSkew"), constraint.max_skew, "must be greater than zero")
        if not constraint.topology_key:
            yield required(at.child("topologyKey"), "can not be empty")
        if constraint.when_unsatisfiable not in _UNSATISFIABLE:
            yield not_supported(at.child("whenUnsatisfiable"), constraint.when_unsatisfiable, _UNSATISFIABLE)
        key = (constraint.topology_key, constraint.when_unsatisfiable)
        remaining[key] -= 1
        if remaining[key]:
            yield duplicate(at.child("{topologyKey, whenUnsatisfiable}"), f"{{{', '.join(key)}}}")
        yield from _validate_domains(constraint, at.child("minDomains"))
        for name, policy in (
            ("nodeAffinityPolicy", constraint.node_affinity_policy),
            ("nodeTaintsPolicy", constraint.node_taints_policy),
        ):
            if policy is not None and policy not in _NODE_POLICIES:
                yield not_supported(at.child(name), policy, _NODE_POLICIES)
        if options.allow_overlapping_spread_keys:
            yield from _validate_keys_apart(constraint, at.child("matchLabelKeys"))
        else:
            yield from _validate_match_keys(constraint.match_label_keys, (), constraint.label_selector, at)
        if not options.allow_invalid_spread_selectors:
            yield from validate_selector(constraint.label_selector, at.child("labelSelector"))


def _validate_domains(constraint: TopologySpreadConstraint, path: FieldPath) -> FieldErrors:
    if constraint.min_domains is None:
        return
    if constraint.min_domains <= 0:
        yield invalid(path, constraint.min_domains, "must be greater than zero")
    if constraint.when_unsatisfiable != "DoNotSchedule":
        detail = (
            f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {constraint.when_unsatisfiable}"
        )
        yield invalid(path, constraint.min_domains, detail)


def _validate_keys_apart(constraint: TopologySpreadConstraint, path: FieldPath) -> FieldErrors:
    """Validate that keys do not overlap with the selector, the rule before keys were merged into it."""
    keys, selector = constraint.match_label_keys, constraint.label_selector
    if not keys:
        return
    taken: set[str] = set()
    if selector is None:
        yield forbidden(path, _NO_SELECTOR)
    else:
        taken = {*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)}
    for index, key in enumerate(keys):
        yield from validate_label_key(key, path.index(index))
        if key in taken:
            yield invalid(path.index(index), key, _IN_BOTH)
