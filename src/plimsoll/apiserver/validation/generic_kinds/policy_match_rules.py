"""Validation of what policies and bindings match: matchConstraints, matchResources, paramKind, paramRef."""

from __future__ import annotations

import re
from collections.abc import Sequence

from plimsoll.api.codec import convert_fast
from plimsoll.api.meta import LabelSelector
from plimsoll.api.names import dns_subdomain
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.label_selectors import validate_selector
from plimsoll.apiserver.validation.name_formats import path_segment, validate_format
from plimsoll.apiserver.validation.object_trees import Tree

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_MUTATING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_MATCH_POLICIES = ("Equivalent", "Exact")
_EXCLUSIVE = "name and selector are mutually exclusive"
_DNS_1035 = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_DNS_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
    "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def validate_match(tree: Tree | None, path: FieldPath) -> FieldErrors:
    """Validate a MatchResources."""
    if tree is None:
        return
    policy = tree.get("matchPolicy")
    if policy is None:
        yield required(path.child("matchPolicy"))
    elif policy not in _MATCH_POLICIES:
        yield not_supported(path.child("matchPolicy"), policy, _MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        if tree.get(name) is None:
            yield required(path.child(name))
        else:
            yield from validate_selector(convert_fast(tree[name], LabelSelector), path.child(name))
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(tree.get(name) or ()):
            yield from _validate_rule(rule, path.child(name).index(index))


def validate_mutating_operations(tree: Tree | None, path: FieldPath) -> FieldErrors:
    """Reject rules for operations without an object to mutate."""
    for rule in (tree or {}).get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            if operation not in _MUTATING_OPERATIONS:
                at = path.child("resourceRules", "operations")
                yield not_supported(at, operation, _MUTATING_OPERATIONS)


def _validate_rule(rule: Tree, path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        at = path.child("resourceNames").index(index)
        yield from validate_format(name, at, path_segment)
        if name in seen:
            yield duplicate(at, name)
        seen.add(name)
    operations = rule.get("operations") or []
    yield from _validate_list(operations, path.child("operations"), "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(path.child("operations").index(index), operation, _OPERATIONS)
    yield from _validate_list(rule.get("apiGroups") or [], path.child("apiGroups"), "API groups")
    versions = rule.get("apiVersions") or []
    yield from _validate_list(versions, path.child("apiVersions"), "API versions")
    for index, version in enumerate(versions):
        if not version:
            yield required(path.child("apiVersions").index(index))
    yield from _validate_resources(rule.get("resources") or [], path.child("resources"))
    scope = rule.get("scope")
    if scope is not None and scope not in _SCOPES:
        yield not_supported(path.child("scope"), scope, _SCOPES)


def _validate_list(items: Sequence[str], path: FieldPath, what: str) -> FieldErrors:
    if not items:
        yield required(path)
    if len(items) > 1 and "*" in items:
        yield invalid(path, items, f"if '*' is present, must not specify other {what}")


def _validate_resources(resources: Sequence[str], path: FieldPath) -> FieldErrors:
    if not resources:
        yield required(path)
    all_subresources: set[str] = set()
    all_resources: set[str] = set()
    has_plain = False
    for index, text in enumerate(resources):
        at = path.index(index)
        if not text:
            yield required(at)
            continue
        name, slash, sub = text.partition("/")
        if not slash:
            has_plain = text != "*"
            continue
        if name in all_subresources:
            yield invalid(at, text, f"if '{name}/*' is present, must not specify {text}")
        if sub in all_resources:
            yield invalid(at, text, f"if '*/{sub}' is present, must not specify {text}")
        if sub == "*":
            all_subresources.add(name)
        if name == "*":
            all_resources.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and has_plain:
        why = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, resources, why)


def validate_param_kind(tree: Tree | None, path: FieldPath) -> FieldErrors:
    """Validate a ParamKind."""
    if tree is None:
        return
    at, text = path.child("apiVersion"), tree.get("apiVersion") or ""
    group, slash, version = text.partition("/")
    if not slash:
        group, version = "", text
    if not text:
        yield required(at)
    elif text.count("/") > 1:
        yield invalid(at, text, f"unexpected GroupVersion string: {text}")
    else:
        if group and (errors := dns_subdomain(group)):
            yield invalid(at, group, ",".join(errors))
        if not version:
            yield invalid(at, text, "version must be specified")
        elif not _is_dns_1035(version):
            yield invalid(at, version, _DNS_1035_RULE)
    kind = tree.get("kind") or ""
    if not kind:
        yield required(path.child("kind"))
    elif not _is_dns_1035(kind.lower()):
        why = f"may have mixed case, but should otherwise match: {_DNS_1035_RULE}"
        yield invalid(path.child("kind"), kind, why)


def _is_dns_1035(text: str) -> bool:
    return len(text) <= 63 and _DNS_1035.fullmatch(text) is not None


def validate_param_ref(tree: Tree | None, path: FieldPath) -> FieldErrors:
    """Validate a ParamRef."""
    if tree is None:
        return
    name, selector = tree.get("name") or "", tree.get("selector")
    if name:
        yield from validate_format(name, path.child("name"), path_segment)
        if selector is not None:
            yield forbidden(path.child("name"), _EXCLUSIVE)
    if selector is not None:
        yield from validate_selector(convert_fast(selector, LabelSelector), path.child("selector"))
        if name:
            yield forbidden(path.child("selector"), _EXCLUSIVE)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    at, action = path.child("parameterNotFoundAction"), tree.get("parameterNotFoundAction")
    if not action:
        yield required(at)
    elif action not in ("Allow", "Deny"):
        yield not_supported(at, action, ("Deny", "Allow"))
