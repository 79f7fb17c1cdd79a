"""Where a pod may go: affinity, tolerations and spread constraints."""

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
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.label_selectors import check_selector, is_fine
from plimsoll.apiserver.validation.name_formats import check_format, check_label_key, decimal_integer
from plimsoll.apiserver.validation.node_selectors import check_field_requirement, check_operator
from plimsoll.apiserver.validation.node_taints import EFFECTS
from plimsoll.apiserver.validation.pod.pod_view import WholePodSpec

_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_NODE_POLICIES = ("Honor", "Ignore")
_WEIGHT_RULE = "must be in the range 1-100"
_NO_SELECTOR = "must not be specified when labelSelector is not set"
_TWICE = "exists in both matchLabelKeys and labelSelector"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Stored:
    """What a stored pod already has that would not be let in today."""

    node_values: bool = False  #: values of required node affinity that no label can have
    pod_values: bool = False  #: the same in selectors of pod affinity
    spread_selectors: bool = False  #: selectors of spread constraints that are wrong in any way
    spread_keys: bool = False  #: matchLabelKeys of spread constraints that are also in the selector
    comparisons: bool = False  #: tolerations with the operators Lt and Gt


def find_stored(spec: WholePodSpec) -> Stored:
    affinity = spec.affinity or Affinity()
    required_nodes = None if affinity.node_affinity is None else affinity.node_affinity.required
    terms = [
        term
        for side in (affinity.pod_affinity, affinity.pod_anti_affinity)
        if side is not None
        for term in (*side.required, *(weighted.pod_affinity_term for weighted in side.preferred))
    ]
    return Stored(
        node_values=required_nodes is not None and _has_odd_values(required_nodes),
        pod_values=not all(is_fine(t.label_selector) and is_fine(t.namespace_selector) for t in terms),
        spread_selectors=not all(is_fine(c.label_selector) for c in spec.topology_spread_constraints),
        spread_keys=any(
            True
            for constraint in spec.topology_spread_constraints
            for _ in _check_match_keys(constraint.match_label_keys, (), constraint.label_selector, Path(""))
        ),
        comparisons=any(toleration.operator in ("Lt", "Gt") for toleration in spec.tolerations),
    )


def _has_odd_values(selector: NodeSelector) -> bool:
    return any(
        label_value(value)
        for term in selector.node_selector_terms
        for requirement in term.match_expressions
        for value in requirement.values
    )


# -- affinity


def check_affinity(affinity: Affinity | None, path: Path, stored: Stored) -> Problems:
    if affinity is None:
        return
    nodes, at = affinity.node_affinity, path.child("nodeAffinity")
    if nodes is not None:
        if nodes.required is not None:
            yield from _check_node_selector(nodes.required, at.child(_REQUIRED), stored.node_values)
        for place, preferred in enumerate(nodes.preferred):
            where = at.child(_PREFERRED).index(place)
            if not 1 <= preferred.weight <= 100:
                yield invalid(where.child("weight"), preferred.weight, _WEIGHT_RULE)
            yield from _check_node_term(preferred.preference, where.child("preference"), any_values=True)
    for name, side in (
        ("podAffinity", affinity.pod_affinity),
        ("podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if side is not None:
            yield from _check_pod_affinity(side, path.child(name), stored.pod_values)


def _check_node_selector(selector: NodeSelector, path: Path, any_values: bool) -> Problems:
    at = path.child("nodeSelectorTerms")
    if not selector.node_selector_terms:
        yield required(at, "must have at least one node selector term")
    for place, term in enumerate(selector.node_selector_terms):
        yield from _check_node_term(term, at.index(place), any_values=any_values)


def _check_node_term(term: NodeSelectorTerm, path: Path, *, any_values: bool) -> Problems:
    for place, requirement in enumerate(term.match_expressions):
        at = path.child("matchExpressions").index(place)
        yield from _check_node_requirement(requirement, at, any_values)
    for place, requirement in enumerate(term.match_fields):
        yield from check_field_requirement(requirement, path.child("matchFields").index(place))


def _check_node_requirement(requirement: NodeSelectorRequirement, path: Path, any_values: bool) -> Problems:
    yield from check_operator(requirement, path)
    yield from check_label_key(requirement.key, path.child("key"))
    if not any_values:
        for place, value in enumerate(requirement.values):
            yield from check_format(value, path.child("values").index(place), label_value)


def _check_pod_affinity(side: PodAffinity, path: Path, any_values: bool) -> Problems:
    for place, term in enumerate(side.required):
        yield from _check_pod_term(term, path.child(_REQUIRED).index(place), any_values)
    for place, weighted in enumerate(side.preferred):
        at = path.child(_PREFERRED).index(place)
        if not 1 <= weighted.weight <= 100:
            yield invalid(at.child("weight"), weighted.weight, _WEIGHT_RULE)
        yield from _check_pod_term(weighted.pod_affinity_term, at.child("podAffinityTerm"), any_values)


def _check_pod_term(term: PodAffinityTerm, path: Path, any_values: bool) -> Problems:
    yield from check_selector(term.label_selector, path.child("labelSelector"), any_values=any_values)
    at = path.child("namespaceSelector")
    yield from check_selector(term.namespace_selector, at, any_values=any_values)
    for namespace in term.namespaces:
        yield from check_format(namespace, path.child("namespace"), dns_label)
    yield from _check_match_keys(term.match_label_keys, term.mismatch_label_keys, term.label_selector, path)
    if not term.topology_key:
        yield required(path.child("topologyKey"), "can not be empty")
    yield from check_label_key(term.topology_key, path.child("topologyKey"))


def _check_match_keys(
    keys: Sequence[str], others: Sequence[str], selector: LabelSelector | None, path: Path
) -> Problems:
    """Keys whose values are taken from the pod; by now they are in the selector, once."""
    for name, given in (("matchLabelKeys", keys), ("mismatchLabelKeys", others)):
        if not given:
            continue
        if selector is None:
            yield forbidden(path.child(name), _NO_SELECTOR)
            continue
        for place, key in enumerate(given):
            yield from check_label_key(key, path.child(name).index(place))
    if selector is not None:
        places = {key: place for place, key in enumerate(keys)}
        seen = set(selector.match_labels)
        for requirement in selector.match_expressions:
            if requirement.key in places and requirement.key in seen:
                yield invalid(path.index(places[requirement.key]), requirement.key, _TWICE)
            seen.add(requirement.key)
    apart = frozenset(others)
    for place, key in enumerate(keys):
        if key in apart:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(path.child("matchLabelKeys").index(place), key, detail)


# -- tolerations


def check_tolerations(tolerations: Sequence[Toleration], path: Path, stored: Stored) -> Problems:
    for place, toleration in enumerate(tolerations):
        at = path.index(place)
        operator, effect = at.child("operator"), at.child("effect")
        if toleration.key:
            yield from check_label_key(toleration.key, at.child("key"))
        elif toleration.operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield invalid(operator, toleration.operator, detail)
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(effect, toleration.effect, detail)
        yield from _check_value(toleration, at, stored)
        if toleration.effect and toleration.effect not in EFFECTS:
            yield not_supported(effect, toleration.effect, EFFECTS)


def _check_value(toleration: Toleration, path: Path, stored: Stored) -> Problems:
    operator, value = toleration.operator, toleration.value
    at = path.child("operator")
    if operator in ("", "Equal"):
        complaints = label_value(value)
        if complaints:
            yield invalid(at, value, ";".join(complaints))
    elif operator == "Exists":
        if value:
            yield invalid(at, value, "value must be empty when `operator` is 'Exists'")
    elif operator in ("Lt", "Gt") and stored.comparisons:
        yield from check_format(value, path.child("value"), decimal_integer)
        if not _is_int64(value):
            yield invalid(path.child("value"), value, "must be a number of 64 bits")
    else:
        yield not_supported(at, operator, ("Equal", "Exists"))


def _is_int64(text: str) -> bool:
    digits = text.lstrip("+-") if text[:2] not in ("+-", "-+", "++", "--") else ""
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 64:
        return False
    return -(2**63) <= int(text) < 2**63


# -- spreading


def check_spreading(constraints: Sequence[TopologySpreadConstraint], path: Path, stored: Stored) -> Problems:
    later = Counter((c.topology_key, c.when_unsatisfiable) for c in constraints)
    for place, constraint in enumerate(constraints):
        at = path.index(place)
        if constraint.max_skew <= 0:
            yield invalid(at.child("maxSkew"), constraint.max_skew, "must be greater than zero")
        if not constraint.topology_key:
            yield required(at.child("topologyKey"), "can not be empty")
        if constraint.when_unsatisfiable not in _UNSATISFIABLE:
            yield not_supported(at.child("whenUnsatisfiable"), constraint.when_unsatisfiable, _UNSATISFIABLE)
        key = (constraint.topology_key, constraint.when_unsatisfiable)
        later[key] -= 1
        if later[key]:
            yield duplicate(at.child("{topologyKey, whenUnsatisfiable}"), f"{{{', '.join(key)}}}")
        yield from _check_domains(constraint, at.child("minDomains"))
        for name, policy in (
            ("nodeAffinityPolicy", constraint.node_affinity_policy),
            ("nodeTaintsPolicy", constraint.node_taints_policy),
        ):
            if policy is not None and policy not in _NODE_POLICIES:
                yield not_supported(at.child(name), policy, _NODE_POLICIES)
        if stored.spread_keys:
            yield from _check_keys_apart(constraint, at.child("matchLabelKeys"))
        else:
            yield from _check_match_keys(constraint.match_label_keys, (), constraint.label_selector, at)
        if not stored.spread_selectors:
            yield from check_selector(constraint.label_selector, at.child("labelSelector"))


def _check_domains(constraint: TopologySpreadConstraint, path: Path) -> Problems:
    if constraint.min_domains is None:
        return
    if constraint.min_domains <= 0:
        yield invalid(path, constraint.min_domains, "must be greater than zero")
    if constraint.when_unsatisfiable != "DoNotSchedule":
        detail = (
            f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {constraint.when_unsatisfiable}"
        )
        yield invalid(path, constraint.min_domains, detail)


def _check_keys_apart(constraint: TopologySpreadConstraint, path: Path) -> Problems:
    """The older rule, under which keys were not merged into the selector."""
    keys, selector = constraint.match_label_keys, constraint.label_selector
    if not keys:
        return
    taken: set[str] = set()
    if selector is None:
        yield forbidden(path, _NO_SELECTOR)
    else:
        taken = {*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)}
    for place, key in enumerate(keys):
        yield from check_label_key(key, path.index(place))
        if key in taken:
            yield invalid(path.index(place), key, _TWICE)
