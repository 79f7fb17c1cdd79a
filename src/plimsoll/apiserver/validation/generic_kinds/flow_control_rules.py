"""Defaults and validation of FlowSchema and PriorityLevelConfiguration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api.names import dns_label, dns_subdomain
from plimsoll.apiserver.registry.flow_control_objects import (
    EXEMPT,
    MANDATORY_FLOW_SCHEMAS,
    MANDATORY_LEVELS,
)
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.equality import trees_equal
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import (
    KindRules,
    default_if_empty,
    default_if_missing,
)
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext
from plimsoll.common.shuffle_sharding import MAX_HASH_BITS, fits_entropy

_SPEC = FieldPath("spec")
_MAX_PRECEDENCE = 10_000
_MAX_QUEUES = 10_000_000
_DISTINGUISHERS = ("ByNamespace", "ByUser")
_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_SUBJECT_FIELDS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_FIXED_SPECS = {tree["metadata"]["name"]: tree["spec"] for tree in MANDATORY_FLOW_SCHEMAS}
_FIXED_LEVELS = {tree["metadata"]["name"]: tree["spec"] for tree in MANDATORY_LEVELS}


# -- FlowSchema


def _set_flow_schema_defaults(tree: Tree) -> None:
    default_if_empty(tree.setdefault("spec", {}), matchingPrecedence=1000)


def _validate_flow_schema(write: WriteContext[View]) -> FieldErrors:
    name, spec = write.new.metadata.name, write.new.spec
    path, precedence = _SPEC.child("matchingPrecedence"), spec.matching_precedence
    if precedence <= 0:
        yield invalid(path, precedence, "must be a positive value")
    if precedence > _MAX_PRECEDENCE:
        yield invalid(path, precedence, f"must not be greater than {_MAX_PRECEDENCE}")
    if precedence == 1 and name != EXEMPT:
        yield invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")
    method = spec.distinguisher_method
    if method is not None and method.type not in _DISTINGUISHERS:
        yield not_supported(_SPEC.child("distinguisherMethod", "type"), method.type, _DISTINGUISHERS)
    level, path = spec.priority_level_configuration.name, _SPEC.child("priorityLevelConfiguration", "name")
    if not level:
        yield required(path, "must reference a priority level")
    for problem in dns_subdomain(level) if level else ():
        yield invalid(path, level, problem)
    for index, rule in enumerate(spec.rules):
        yield from _validate_rule(rule, _SPEC.child("rules").index(index))
    fixed = _FIXED_SPECS.get(name)
    if fixed is not None and not trees_equal(fixed, subtree(write.tree, "spec")):
        yield invalid(_SPEC, None, f"spec of '{name}' must equal the fixed value")


def _validate_rule(rule: View, path: FieldPath) -> FieldErrors:
    if not rule.subjects:
        yield required(path.child("subjects"), "subjects must contain at least one value")
    for index, subject in enumerate(rule.subjects):
        yield from _validate_subject(subject, path.child("subjects").index(index))
    if not rule.resource_rules and not rule.non_resource_rules:
        yield required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
    for index, resources in enumerate(rule.resource_rules):
        yield from _validate_resource_rule(resources, path.child("resourceRules").index(index))
    for index, urls in enumerate(rule.non_resource_rules):
        yield from _validate_url_rule(urls, path.child("nonResourceRules").index(index))


def _validate_subject(subject: View, path: FieldPath) -> FieldErrors:
    if subject.kind not in _SUBJECT_FIELDS:
        yield not_supported(path.child("kind"), subject.kind, sorted(_SUBJECT_FIELDS))
        return
    values = {"group": subject.group, "serviceAccount": subject.service_account, "user": subject.user}
    for kind, field in _SUBJECT_FIELDS.items():
        at, value = path.child(field), values[field]
        if kind != subject.kind:
            if value is not None:
                yield forbidden(at, f"{field} is forbidden when subject kind is not '{kind}'")
        elif value is None:
            yield required(at, f"{field} is required when subject kind is '{kind}'")
        elif not value.name:
            yield required(at.child("name"))
        elif kind == "ServiceAccount" and value.name != "*":
            for problem in dns_subdomain(value.name):
                yield invalid(at.child("name"), value.name, problem)
    account = subject.service_account
    if subject.kind == "ServiceAccount" and account is not None:
        at = path.child("serviceAccount", "namespace")
        if not account.namespace:
            yield required(at, "must specify namespace for service account")
        for problem in dns_label(account.namespace) if account.namespace else ():
            yield invalid(at, account.namespace, problem)


def _validate_verbs(verbs: Sequence[str], path: FieldPath) -> FieldErrors:
    if not verbs:
        yield required(path, "verbs must contain at least one value")
    elif "*" in verbs:
        yield from _validate_wildcard(verbs, path, "verbs")
    elif not set(verbs) <= set(_VERBS):
        yield not_supported(path, ", ".join(verbs), _VERBS)


def _validate_wildcard(values: Sequence[str], path: FieldPath, what: str) -> FieldErrors:
    if "*" in values and len(values) > 1:
        yield invalid(path, ", ".join(values), f"if '*' is present, must not specify other {what}")


def _validate_resource_rule(rule: View, path: FieldPath) -> FieldErrors:
    yield from _validate_verbs(rule.verbs, path.child("verbs"))
    for field, what, one in (
        ("apiGroups", "api groups", "api group"),
        ("resources", "resources", "resource"),
    ):
        values = rule.api_groups if field == "apiGroups" else rule.resources
        if not values:
            yield required(path.child(field), f"resource rules must supply at least one {one}")
        yield from _validate_wildcard(values, path.child(field), what)
    at = path.child("namespaces")
    if not rule.namespaces and not rule.cluster_scope:
        why = "resource rules that are not cluster scoped must supply at least one namespace"
        yield required(at, why)
    elif "*" in rule.namespaces:
        yield from _validate_wildcard(rule.namespaces, at, "namespaces")
    else:
        for index, namespace in enumerate(rule.namespaces):
            for problem in dns_label(namespace):
                why = f"each member of this list must be '*' or a DNS-1123 label; {problem}"
                yield invalid(at.index(index), namespace, why)


def _validate_url_rule(rule: View, path: FieldPath) -> FieldErrors:
    yield from _validate_verbs(rule.verbs, path.child("verbs"))
    at, urls = path.child("nonResourceURLs"), rule.non_resource_urls
    if not urls:
        yield required(at, "nonResourceURLs must contain at least one value")
    elif "*" in urls:
        yield from _validate_wildcard(urls, at, "non-resource URLs")
    else:
        for index, url in enumerate(urls):
            problem = _url_problem(url)
            if problem:
                yield invalid(at.index(index), url, problem)


def _url_problem(url: str) -> str:
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    wildcards = url.count("*")
    if wildcards > 1 or (wildcards and not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


# -- PriorityLevelConfiguration


def _set_level_defaults(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    if spec.get("exempt") is not None:
        default_if_missing(spec["exempt"], nominalConcurrencyShares=0, lendablePercent=0)
    limited = spec.get("limited")
    if limited is not None:
        default_if_missing(limited, nominalConcurrencyShares=30, lendablePercent=0)
        queuing = subtree(limited, "limitResponse").get("queuing")
        if queuing is not None:
            default_if_empty(queuing, queues=64, handSize=8, queueLengthLimit=50)


def _validate_level(write: WriteContext[View]) -> FieldErrors:
    name, spec = write.new.metadata.name, write.new.spec
    kind = _SPEC.child("type")
    if (name == EXEMPT) != (spec.type == "Exempt"):
        yield invalid(kind, spec.type, "must be 'Exempt' if and only if `name` is 'exempt'")
    if spec.type == "Exempt":
        if spec.limited is not None:
            yield forbidden(_SPEC.child("limited"), "must be nil if the type is not Limited")
        if spec.exempt is not None:
            yield from _validate_shares(spec.exempt, _SPEC.child("exempt"))
    elif spec.type == "Limited":
        if spec.exempt is not None:
            yield forbidden(_SPEC.child("exempt"), "must be nil if the type is Limited")
        if spec.limited is None:
            yield required(_SPEC.child("limited"), "must not be empty when type is Limited")
        else:
            yield from _validate_limited(spec.limited, _SPEC.child("limited"))
    elif not spec.type:
        yield required(kind)
    else:
        yield not_supported(kind, spec.type, ("Exempt", "Limited"))
    yield from _validate_fixed_level(name, subtree(write.tree, "spec"))


def _validate_fixed_level(name: str, spec: Mapping[str, Any]) -> FieldErrors:
    fixed = _FIXED_LEVELS.get(name)
    if fixed is None:
        return
    if name == EXEMPT:
        if not trees_equal({**spec, "exempt": None}, {**fixed, "exempt": None}):
            why = f"spec of '{name}' except the 'spec.exempt' field must equal the fixed value"
            yield invalid(_SPEC, None, why)
    elif not trees_equal(spec, fixed):
        yield invalid(_SPEC, None, f"spec of '{name}' must equal the fixed value")


def _validate_shares(settings: View, path: FieldPath) -> FieldErrors:
    shares, lendable = settings.nominal_concurrency_shares, settings.lendable_percent
    if shares is not None and shares < 0:
        yield invalid(path.child("nominalConcurrencyShares"), shares, "must be a non-negative integer")
    if lendable is not None and not 0 <= lendable <= 100:
        yield invalid(path.child("lendablePercent"), lendable, "must be between 0 and 100, inclusive")


def _validate_limited(limited: View, path: FieldPath) -> FieldErrors:
    yield from _validate_shares(limited, path)
    borrowing = limited.borrowing_limit_percent
    if borrowing is not None and borrowing < 0:
        why = "if specified, must be a non-negative integer"
        yield invalid(path.child("borrowingLimitPercent"), borrowing, why)
    response, at = limited.limit_response, path.child("limitResponse")
    kind = response.type if response is not None else ""
    queuing = response.queuing if response is not None else None
    if kind == "Reject":
        if queuing is not None:
            why = "must be nil if limited.limitResponse.type is not Limited"
            yield forbidden(at.child("queuing"), why)
    elif kind == "Queue":
        if queuing is None:
            why = "must not be empty if limited.limitResponse.type is Limited"
            yield required(at.child("queuing"), why)
        else:
            yield from _validate_queuing(queuing, at.child("queuing"))
    elif not kind:
        yield required(at.child("type"))
    else:
        yield not_supported(at.child("type"), kind, ("Queue", "Reject"))


def _validate_queuing(queuing: View, path: FieldPath) -> FieldErrors:
    queues, hand = queuing.queues, queuing.hand_size
    if queuing.queue_length_limit <= 0:
        yield invalid(path.child("queueLengthLimit"), queuing.queue_length_limit, "must be positive")
    if queues <= 0:
        yield invalid(path.child("queues"), queues, "must be positive")
    elif queues > _MAX_QUEUES:
        yield invalid(path.child("queues"), queues, f"must not be greater than {_MAX_QUEUES}")
    at = path.child("handSize")
    if hand <= 0:
        yield invalid(at, hand, "must be positive")
    elif hand > queues:
        yield invalid(at, hand, f"should not be greater than queues ({queues})")
    elif not fits_entropy(queues, hand):
        why = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than"
        yield invalid(at, hand, f"{why} {MAX_HASH_BITS}")


FLOW_CONTROL_RULES: Mapping[str, KindRules] = {
    "FlowSchema": KindRules("flowcontrol.v1", _set_flow_schema_defaults, validate=_validate_flow_schema),
    "PriorityLevelConfiguration": KindRules("flowcontrol.v1", _set_level_defaults, validate=_validate_level),
}
