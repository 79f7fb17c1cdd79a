"""Validation of admission policies: every expression must compile.

As upstream, an expression is reported with its field and the errors of the compiler. Match conditions cannot
read the variables of a policy when it is validated. The status of a validating policy has the warnings of
its type check (`policy_type_checks.py`). The rules of bindings are in `admission_policy_kinds.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from plimsoll.api.names import label_key
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldErrors,
    FieldErrorType,
    FieldPath,
    duplicate,
    invalid,
    not_supported,
    required,
    too_many,
)
from plimsoll.apiserver.validation.generic_kinds.policy_match_rules import (
    validate_match,
    validate_mutating_operations,
    validate_param_kind,
)
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext
from plimsoll.cel import policy as cel_policy
from plimsoll.cel.policy import CompileProblem, PolicyCompiler, compile_in
from plimsoll.cel.static.admission_environment import AdmissionEnvironment
from plimsoll.cel.syntax.parser import RESERVED

_SPEC = FieldPath("spec")
_FAILURE_POLICIES = ("Fail", "Ignore")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_REINVOCATIONS = ("IfNeeded", "Never")
_MAX_CONDITIONS = 64
_MAX_ANNOTATIONS = 20
_MAX_ANNOTATION_EXPRESSION = 5 * 1024
_IDENTIFIER = re.compile("[_a-zA-Z][_a-zA-Z0-9]*")
_NO_RULES = "validations or auditAnnotations must contain at least one item"


def _validate_common(spec: Tree, old: Tree, path: FieldPath) -> FieldErrors:
    """Validate what both types of policies have, but their variables."""
    failure = spec.get("failurePolicy")
    if failure is None:
        yield required(path.child("failurePolicy"))
    elif failure not in _FAILURE_POLICIES:
        yield not_supported(path.child("failurePolicy"), failure, _FAILURE_POLICIES)
    yield from validate_param_kind(spec.get("paramKind"), path.child("paramKind"))
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required(path.child("matchConstraints"))
    else:
        yield from validate_match(constraints, path.child("matchConstraints"))
        if not constraints.get("resourceRules"):
            yield required(path.child("matchConstraints", "resourceRules"))
    conditions = spec.get("matchConditions") or []
    if not old or spec != old:  # unchanged ones are not validated again
        yield from _validate_conditions(
            conditions, path.child("matchConditions"), has_params=spec.get("paramKind") is not None
        )


def _validate_conditions(conditions: Sequence[Tree], path: FieldPath, *, has_params: bool) -> FieldErrors:
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many(path, len(conditions), _MAX_CONDITIONS)
    seen: set[str] = set()
    environment = AdmissionEnvironment(has_params=has_params)
    for index, condition in enumerate(conditions):
        at, name = path.index(index), condition.get("name") or ""
        source = (condition.get("expression") or "").strip()
        if not source:
            yield required(at.child("expression"))
        else:
            yield from _report(compile_in(source, environment, cel_policy.BOOL), at.child("expression"))
        if not name:
            yield required(at.child("name"))
            continue
        for error in label_key(name):
            yield invalid(at.child("name"), name, error)
        if name in seen:
            yield duplicate(at.child("name"), name)
        seen.add(name)


def _validate_variables(compiler: PolicyCompiler, variables: Sequence[Tree], path: FieldPath) -> FieldErrors:
    for index, variable in enumerate(variables):
        at, name = path.index(index), variable.get("name") or ""
        if not name.strip():
            yield required(at.child("name"), "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in RESERVED:
            yield invalid(at.child("name"), name, "must be a valid CEL identifier")
        source = variable.get("expression") or ""
        if not source.strip():
            yield required(at.child("expression"), "expression is not specified")
        else:
            yield from _report(compiler.add_variable(name, source), at.child("expression"))


def _report(compiled: Any, path: FieldPath, source: str = "") -> FieldErrors:
    if isinstance(compiled, CompileProblem):  # with the whole expression, however long
        yield FieldError(str(path), FieldErrorType.INVALID, compiled.detail, source or compiled.source)


# -- ValidatingAdmissionPolicy


def validate_validating_policy(write: WriteContext[Any]) -> FieldErrors:
    spec, old = subtree(write.tree, "spec"), subtree(write.old_tree, "spec")
    yield from _validate_common(spec, old, _SPEC)
    compiler = _compiler(spec, has_variables=bool(spec.get("variables")))
    yield from _validate_variables(compiler, spec.get("variables") or [], _SPEC.child("variables"))
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        yield required(_SPEC.child("validations"), _NO_RULES)
        yield required(_SPEC.child("auditAnnotations"), _NO_RULES)
    for index, validation in enumerate(validations):
        yield from _validate_validation(compiler, validation, _SPEC.child("validations").index(index))
    at, name = _SPEC.child("auditAnnotations"), write.metadata.name
    if len(annotations) > _MAX_ANNOTATIONS:
        yield invalid(at, annotations, f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations")
    seen: set[str] = set()
    for index, annotation in enumerate(annotations):
        yield from _validate_annotation(compiler, annotation, name, at.index(index))
        key = annotation.get("key") or ""
        if key in seen:
            yield duplicate(at.index(index).child("key"), key)
        seen.add(key)


def _compiler(spec: Tree, *, has_variables: bool = True) -> PolicyCompiler:
    environment = AdmissionEnvironment(has_params=spec.get("paramKind") is not None)
    return PolicyCompiler(environment, has_variables=has_variables)


def _validate_validation(compiler: PolicyCompiler, tree: Tree, path: FieldPath) -> FieldErrors:
    source, message = tree.get("expression") or "", tree.get("message") or ""
    if not source.strip():
        yield required(path.child("expression"), "expression is not specified")
    else:
        yield from _report(compiler.compile(source, cel_policy.BOOL), path.child("expression"))
    given = tree.get("messageExpression") or ""
    if given and not given.strip():
        yield invalid(path.child("messageExpression"), given, "must be non-empty if specified")
    elif given:
        compiled = compiler.compile(given, cel_policy.STRING, has_authorizer=False)
        yield from _report(compiled, path.child("messageExpression"))
    if message and not message.strip():
        yield invalid(path.child("message"), message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(path.child("message"), message, "must not contain line breaks")
    reason = tree.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(path.child("reason"), reason, _REASONS)


def _validate_annotation(compiler: PolicyCompiler, tree: Tree, name: str, path: FieldPath) -> FieldErrors:
    key, source = tree.get("key") or "", (tree.get("valueExpression") or "").strip()
    if name:
        for error in label_key(f"{name}/{key}"):
            yield invalid(path.child("key"), f"{name}/{key}", error)
    else:
        yield invalid(path.child("key"), key, "requires metadata.name be non-empty")
    at = path.child("valueExpression")
    if not source:
        yield required(at, "valueExpression is not specified")
    elif len(source.encode()) > _MAX_ANNOTATION_EXPRESSION:
        yield required(at, f"must not exceed {_MAX_ANNOTATION_EXPRESSION} bytes in length")
    else:
        compiled = compiler.compile(source, cel_policy.STRING_OR_NULL)
        yield from _report(compiled, at, tree.get("valueExpression", ""))


# -- MutatingAdmissionPolicy


def validate_mutating_policy(write: WriteContext[Any]) -> FieldErrors:
    spec, old = subtree(write.tree, "spec"), subtree(write.old_tree, "spec")
    yield from _validate_common(spec, old, _SPEC)
    yield from validate_mutating_operations(spec.get("matchConstraints"), _SPEC.child("matchConstraints"))
    compiler = _compiler(spec)
    yield from _validate_variables(compiler, spec.get("variables") or [], _SPEC.child("variables"))
    mutations = spec.get("mutations") or []
    if not mutations:
        yield required(_SPEC.child("mutations"), "mutations must contain at least one item")
    for index, mutation in enumerate(mutations):
        yield from _validate_mutation(compiler, mutation, _SPEC.child("mutations").index(index))
    at, reinvocation = _SPEC.child("reinvocationPolicy"), spec.get("reinvocationPolicy")
    if not reinvocation:
        yield required(at)
    elif reinvocation not in _REINVOCATIONS:
        yield not_supported(at, reinvocation, _REINVOCATIONS)


_PATCHES = {
    "ApplyConfiguration": ("applyConfiguration", cel_policy.APPLY_CONFIGURATION),
    "JSONPatch": ("jsonPatch", cel_policy.JSON_PATCHES),
}


def _validate_mutation(compiler: PolicyCompiler, tree: Tree, path: FieldPath) -> FieldErrors:
    patch_type = tree.get("patchType") or ""
    if not patch_type:
        yield required(path.child("patchType"))
        return
    if patch_type not in _PATCHES:
        yield not_supported(path.child("patchType"), patch_type, tuple(_PATCHES))
        return
    field, wanted = _PATCHES[patch_type]
    at, patch = path.child(field), tree.get(field)
    if patch is None:
        yield required(at, f"must be specified when patchType is {patch_type}")
    elif not (source := (patch.get("expression") or "").strip()):
        yield required(at.child("expression"))
    else:
        yield from _report(compiler.compile(source, wanted, has_patch_types=True), at.child("expression"))
    for other, _ in _PATCHES.values():
        if other != field and tree.get(other) is not None:
            why = f"must not be specified when patchType is {patch_type}"
            yield invalid(path.child(other), f"{{{other}}}", why)
