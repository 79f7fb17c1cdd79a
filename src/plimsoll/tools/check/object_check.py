"""Validation of one object with the code that the API server runs on create.

The verdict is that of a request with `fieldValidation=Strict`, as kubectl sends it; what depends on other
objects of a cluster is limited to the LimitRanges and the labels of the namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from plimsoll.api.gates import Gates
from plimsoll.apiserver.admission.limit_ranges import apply_defaults, find_violations
from plimsoll.apiserver.generated_names import generate_name
from plimsoll.apiserver.handlers.conversion import convert_tree
from plimsoll.apiserver.handlers.request_body import decode_object
from plimsoll.apiserver.registry.api_lifecycle import CURRENT, Release, deprecation_warning, is_served
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import find_resource_by_kind
from plimsoll.apiserver.registry.schema import check_fields, schema_for
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.validation import KindTraits, PreparedObject, Write, prepare
from plimsoll.apiserver.validation.generic_kinds.kind_rules import DEFAULT_RULES
from plimsoll.apiserver.validation.generic_kinds.kind_table import rules_for_kind
from plimsoll.apiserver.validation.metadata import check_name
from plimsoll.errors import ApiError, DecodeError
from plimsoll.tools.check.decode_errors import describe_strict_error, describe_type_error
from plimsoll.tools.check.gated_fields import find_gated_fields
from plimsoll.tools.check.served_kinds import find_version_problem

_ADMIN_ACCESS = {"resource.kubernetes.io/admin-access": "true"}
_LIMITED = ("Pod", "PersistentVolumeClaim")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Validation result of one object; `known` is False if the kind is not validated."""

    known: bool
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Server and cluster that objects are validated for.

    Fields that the `release` does not have are unknown, and those that it drops give a warning.
    Unknown fields are problems if `strict`, else warnings. `namespace_labels` is None if the namespace is not
    known, which allows no admin access.
    """

    now: datetime
    gates: Gates
    release: Release | None = None
    strict: bool = True
    namespace_labels: Mapping[str, str] | None = None
    limit_ranges: tuple[dict[str, Any], ...] = ()


def check_object(tree: Mapping[str, Any], now: datetime, gates: Gates | None = None) -> CheckResult:
    """Validate an object that is stored or published by a driver: unknown fields are warnings, and admin
    access is allowed.
    """
    context = CheckContext(now, gates or Gates.default(), strict=False, namespace_labels=_ADMIN_ACCESS)
    return check_in_context(tree, context)


def check_in_context(tree: Mapping[str, Any], context: CheckContext) -> CheckResult:
    """Validate an object as a create; one without a namespace is placed in `default`, as kubectl does."""
    api_version, kind = tree.get("apiVersion"), tree.get("kind")
    release = context.release or CURRENT
    problem = find_version_problem(api_version, kind, release)
    if problem:
        return CheckResult(True, (problem,))
    group, _, version = str(api_version).rpartition("/")
    resource = find_resource_by_kind(group, version, str(kind))
    if resource is None or not is_served(str(api_version), str(kind), release):
        return CheckResult(False)
    deprecated = deprecation_warning(str(api_version), str(kind), release)
    result = _check(dict(tree), resource, version, context)
    return replace(result, warnings=(deprecated, *result.warnings)) if deprecated else result


def _check(tree: dict[str, Any], resource: Resource, version: str, context: CheckContext) -> CheckResult:
    schema = schema_for(resource.group, version, resource.kind)
    assert schema is not None  # every kind in the table has one
    report = check_fields(tree, schema)
    if report.type_errors:
        return CheckResult(True, tuple(describe_type_error(*error) for error in report.type_errors))
    unknown = [describe_strict_error(text, schema) for text in report.strict_errors]
    if not resource.is_stored:  # reviews and bindings: nothing but their fields is validated
        return CheckResult(bool(unknown), tuple(unknown))
    try:
        info, given = _decode(tree, resource, version)
        prepared = _prepare(given, info, context)
    except ApiError as error:
        return CheckResult(True, (*unknown, error.message))
    except DecodeError as error:
        return CheckResult(True, (*unknown, str(error)))
    warnings = [] if prepared.errors else list(prepared.warnings)
    release = context.release or CURRENT
    if context.release is not None or context.strict:
        absent, dropped = find_gated_fields(
            lambda gates: _prepare(given, info, replace(context, gates=gates)).tree, context.gates, release[1]
        )
        unknown += absent
        warnings += dropped
    errors = prepared.errors or check_name(given["metadata"].get("name", ""))
    problems = [_describe(str(problem), info.namespace, context) for problem in errors]
    if not problems and resource.kind in _LIMITED and context.limit_ranges:
        limited = apply_defaults(prepared.tree, context.limit_ranges)
        refusal = find_violations(resource.kind, limited, context.limit_ranges)
        problems = [refusal] if refusal else []
    if context.strict:
        problems, unknown = [*unknown, *problems], []
    is_known = _has_rules(resource) or bool(problems)
    return CheckResult(is_known, tuple(problems), (*warnings, *unknown))


def _has_rules(resource: Resource) -> bool:
    """Return whether more than the fields and the metadata of a kind is validated."""
    rules = rules_for_kind(resource.kind)
    nothing = DEFAULT_RULES.prepare, DEFAULT_RULES.validate
    return resource.has_strategy or (rules.prepare, rules.validate) != nothing


def _decode(tree: dict[str, Any], resource: Resource, version: str) -> tuple[RequestInfo, dict[str, Any]]:
    """Return the object as the server decodes it from the body of a request, with its name generated."""
    metadata = tree.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else ""
    info = RequestInfo(resource, version, "create", (namespace or "default") if resource.namespaced else "")
    given, _ = decode_object(info, tree, "Ignore")
    metadata = given["metadata"]
    if not metadata.get("name") and (metadata.get("generateName") or resource.kind == "LimitRange"):
        metadata["name"] = generate_name(metadata.get("generateName", "x"), lambda alphabet: alphabet[0])
    return info, given


def _prepare(given: dict[str, Any], info: RequestInfo, context: CheckContext) -> PreparedObject:
    resource = info.resource
    tree = convert_tree(given, resource, info.version) if resource.stored_as else given
    return prepare(
        Write(
            resource.kind,
            "create",
            tree,
            context.now,
            gates=context.gates,
            namespace_labels=context.namespace_labels or {},
            traits=KindTraits(resource.namespaced, "status" in resource.subresources),
        )
    )


def _describe(problem: str, namespace: str, context: CheckContext) -> str:
    """Return a problem with the fix if it may be that the Namespace is missing from the files."""
    if context.namespace_labels is None and ".adminAccess: " in problem:
        return f"{problem}; Namespace {namespace} is not in the files: pass it too if it has the label"
    return problem
