"""Strategies of ResourceQuota: resources that can be limited, and scopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from plimsoll.api.core import ResourceList
from plimsoll.api.quota import ResourceQuota, ResourceQuotaSpec
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid, required
from plimsoll.apiserver.validation.metadata import IMMUTABLE, validate_metadata, validate_metadata_update
from plimsoll.apiserver.validation.resource_names import (
    is_quota_resource,
    validate_quota_resource,
    validate_resource_quantity,
)
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy

_SPEC, _STATUS = FieldPath("spec"), FieldPath("status")

_OF_PODS = ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity")
_POD_RESOURCES = frozenset(
    ("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
)

#: Scope -> the unqualified resources it supports.
SCOPES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(_OF_PODS, _POD_RESOURCES),
    "BestEffort": frozenset(("pods",)),
    "VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage")),
}
_SCOPES_THAT_EXIST = (
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    "CrossNamespacePodAffinity",
)
_OPPOSITES = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_MOST = 64  # limit of validated scopes and of reported resources for each, against hostile quotas
_LIMITED = ("cpu", "memory", "storage", "ephemeral-storage")


def _prepare(write: WriteContext[ResourceQuota]) -> None:
    write.restore_fields("status")


def _validate(write: WriteContext[ResourceQuota]) -> FieldErrors:
    spec = write.new.spec
    if write.is_create:
        yield from validate_metadata(write.metadata, namespaced=True)
    else:
        yield from validate_metadata_update(write.metadata, write.old_metadata)
    yield from _validate_amounts(spec.hard, _SPEC.child("hard"))
    yield from _validate_scopes(spec)
    yield from _validate_selector(spec)
    if not write.is_create and set(spec.scopes) != set(write.old.spec.scopes):
        yield invalid(_SPEC.child("scopes"), ", ".join(spec.scopes), IMMUTABLE)


def _prepare_status(write: WriteContext[ResourceQuota]) -> None:
    write.restore_fields("spec")


def _validate_status(write: WriteContext[ResourceQuota]) -> FieldErrors:
    meta, status = write.metadata, write.new.status
    yield from validate_metadata_update(meta, write.old_metadata)
    if not meta.resource_version:
        yield required(FieldPath("resourceVersion"))
    yield from _validate_amounts(status.hard or {}, _STATUS.child("hard"))
    yield from _validate_amounts(status.used or {}, _STATUS.child("used"))


def _validate_amounts(amounts: ResourceList, path: FieldPath) -> FieldErrors:
    for name, amount in amounts.items():
        yield from validate_quota_resource(name, path.key(name))
        yield from validate_resource_quantity(name, amount, path.key(name))


def _validate_scopes(spec: ResourceQuotaSpec) -> FieldErrors:
    path, shown = _SPEC.child("scopes"), ", ".join(spec.scopes[:_MOST])
    for scope in spec.scopes[:_MOST]:
        if scope not in SCOPES:
            yield invalid(path, shown, "unsupported scope")
        for _ in _unsupported_resources(scope, spec.hard):
            yield invalid(path, shown, "unsupported scope applied to resource")
    yield from _validate_opposites(spec.scopes, path)


def _unsupported_resources(scope: str, hard: ResourceList) -> list[str]:
    """Return the resources that a scope does not support; qualified names are supported by every scope."""
    allowed = SCOPES.get(scope)
    if allowed is None:
        return []
    return [name for name in hard if is_quota_resource(name) and name not in allowed][:_MOST]


def _validate_opposites(scopes: Iterable[str], path: FieldPath) -> FieldErrors:
    for pair in _OPPOSITES:
        if pair <= set(scopes):
            yield invalid(path, ", ".join(sorted(pair)), "conflicting scopes")


def _validate_selector(spec: ResourceQuotaSpec) -> FieldErrors:
    """Validate the scope selector; field paths of requirements have no index, as in Kubernetes 1.36."""
    if spec.scope_selector is None:
        return
    path = _SPEC.child("scopeSelector", "matchExpressions")
    requirements = spec.scope_selector.match_expressions
    for requirement in requirements[:_MOST]:
        scope, operator = requirement.scope_name, requirement.operator
        if scope not in SCOPES:
            yield invalid(path.child("scopeName"), scope, "unsupported scope")
        for _ in _unsupported_resources(scope, spec.hard):
            yield invalid(path, scope, "unsupported scope applied to resource")
        if scope in _SCOPES_THAT_EXIST and operator != "Exists":
            detail = f"must be 'Exists' when scope is any of {', '.join(_SCOPES_THAT_EXIST)}"
            yield invalid(path.child("operator"), operator, detail)
        yield from _validate_values(operator, requirement.values, path)
    yield from _validate_opposites([requirement.scope_name for requirement in requirements], path)


def _validate_values(operator: str, values: Sequence[str], path: FieldPath) -> FieldErrors:
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            yield required(path.child("values"), detail)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(path.child("values"), ", ".join(values), detail)
    else:
        yield invalid(path.child("operator"), operator, "not a valid selector operator")


def _warn(write: WriteContext[ResourceQuota]) -> Iterable[str]:
    """Warn about requests that may exceed limits."""
    if not write.is_create:
        return
    hard = write.new.spec.hard
    for name in _LIMITED:
        request = f"requests.{name}"
        if request not in hard and name in ("cpu", "memory"):
            request = name
        limit = f"limits.{name}"
        if request in hard and limit in hard and hard[request] > hard[limit]:
            yield f"ResourceQuota {request} ({hard[request]}) should be less than {limit} ({hard[limit]})"


_QUOTA = WriteStrategy(ResourceQuota, _prepare, _validate, _warn)

QUOTA_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "ResourceQuota", ""): _QUOTA,
    ("update", "ResourceQuota", ""): _QUOTA,
    ("update", "ResourceQuota", "status"): WriteStrategy(ResourceQuota, _prepare_status, _validate_status),
}
