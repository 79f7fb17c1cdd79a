"""Defaults and validation of roles, role bindings and ServiceAccount."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.names import dns_subdomain
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules, default_if_empty
from plimsoll.apiserver.validation.label_selectors import validate_selector
from plimsoll.apiserver.validation.name_formats import path_segment, validate_format
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.write_context import WriteContext

_GROUP = "rbac.authorization.k8s.io"
_ROLE = FieldPath("roleRef")
_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")


# -- RoleBinding and ClusterRoleBinding


def _set_binding_defaults(tree: Tree) -> None:
    for subject in tree.get("subjects", ()):
        if subject.get("kind") in ("User", "Group"):
            default_if_empty(subject, apiGroup=_GROUP)


def _validate_binding(write: WriteContext[View]) -> FieldErrors:
    yield from _validate_role(write, ("Role", "ClusterRole"), cluster_wide=False)


def _validate_cluster_binding(write: WriteContext[View]) -> FieldErrors:
    yield from _validate_role(write, ("ClusterRole",), cluster_wide=True)


def _validate_role(write: WriteContext[View], kinds: tuple[str, ...], *, cluster_wide: bool) -> FieldErrors:
    binding = write.new
    role = binding.role_ref
    if role.api_group != _GROUP:
        yield not_supported(_ROLE.child("apiGroup"), role.api_group, (_GROUP,))
    if role.kind not in kinds:
        yield not_supported(_ROLE.child("kind"), role.kind, kinds)
    if not role.name:
        yield required(_ROLE.child("name"))
    yield from validate_format(role.name, _ROLE.child("name"), path_segment)
    for index, subject in enumerate(binding.subjects):
        yield from _validate_subject(subject, FieldPath("subjects").index(index), cluster_wide=cluster_wide)
    if not write.is_create and not semantic_equal(write.old.role_ref, role):
        yield invalid(_ROLE, None, "cannot change roleRef")


def _validate_subject(subject: View, path: FieldPath, *, cluster_wide: bool) -> FieldErrors:
    group = "" if subject.kind == "ServiceAccount" else _GROUP
    if not subject.name:
        yield required(path.child("name"))
    if subject.kind not in _SUBJECT_KINDS:
        yield not_supported(path.child("kind"), subject.kind, _SUBJECT_KINDS)
        return
    if subject.kind == "ServiceAccount":
        if subject.name:
            yield from validate_format(subject.name, path.child("name"), dns_subdomain)
        if cluster_wide and not subject.namespace:
            yield required(path.child("namespace"))
    if subject.api_group != group:
        yield not_supported(path.child("apiGroup"), subject.api_group, (group,))


# -- Role and ClusterRole


def _validate_role_rules(write: WriteContext[View]) -> FieldErrors:
    yield from _validate_rules(write.new, namespaced=True)


def _validate_cluster_role(write: WriteContext[View]) -> FieldErrors:
    role = write.new
    yield from _validate_rules(role, namespaced=False)
    if role.aggregation_rule is None:
        return
    path = FieldPath("aggregationRule").child("clusterRoleSelectors")
    selectors = role.aggregation_rule.cluster_role_selectors
    if not selectors:
        yield required(path, "at least one clusterRoleSelector is required")
    for index, selector in enumerate(selectors):
        yield from validate_selector(selector, path.index(index))


def _validate_rules(role: View, *, namespaced: bool) -> FieldErrors:
    for index, rule in enumerate(role.rules):
        path = FieldPath("rules").index(index)
        if not rule.verbs:
            yield required(path.child("verbs"), "verbs must contain at least one value")
        if rule.non_resource_urls:
            at = path.child("nonResourceURLs")
            if namespaced:
                yield invalid(at, None, "namespaced rules cannot apply to non-resource URLs")
            if rule.api_groups or rule.resources or rule.resource_names:
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(at, None, detail)
            continue
        if not rule.api_groups:
            yield required(path.child("apiGroups"), "resource rules must supply at least one api group")
        if not rule.resources:
            yield required(path.child("resources"), "resource rules must supply at least one resource")


# -- ServiceAccount


def _normalize_account(write: WriteContext[View]) -> None:
    """Reduce the secret references of an account to their names."""
    secrets = write.tree.get("secrets")
    if secrets:
        write.tree["secrets"] = [{"name": secret["name"]} if "name" in secret else {} for secret in secrets]


ACCESS_RULES: Mapping[str, KindRules] = {
    "Role": KindRules("rbac.v1", validate=_validate_role_rules),
    "ClusterRole": KindRules("rbac.v1", validate=_validate_cluster_role),
    "RoleBinding": KindRules("rbac.v1", _set_binding_defaults, validate=_validate_binding),
    "ClusterRoleBinding": KindRules("rbac.v1", _set_binding_defaults, validate=_validate_cluster_binding),
    "ServiceAccount": KindRules("core.v1", prepare=_normalize_account),
}
