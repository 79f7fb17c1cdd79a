"""Rules of the kinds of admission policies: the table, and the validation of bindings.

Policies themselves are validated in `admission_policy_rules.py`, which is imported with the first policy: a
server without policies does not load CEL for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.names import dns_subdomain
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules
from plimsoll.apiserver.validation.generic_kinds.policy_match_rules import (
    validate_match,
    validate_mutating_operations,
    validate_param_ref,
)
from plimsoll.apiserver.validation.object_trees import subtree
from plimsoll.apiserver.validation.write_context import WriteContext

_SPEC = FieldPath("spec")
_ACTIONS = ("Audit", "Deny", "Warn")
_PACKAGE = "admissionregistration.v1"


def _validate_validating_policy(write: WriteContext[Any]) -> FieldErrors:
    from plimsoll.apiserver.validation.generic_kinds.admission_policy_rules import (  # noqa: PLC0415 - CEL
        validate_validating_policy,
    )

    return validate_validating_policy(write)


def _set_type_checking(write: WriteContext[Any]) -> None:
    from plimsoll.apiserver.validation.generic_kinds.policy_type_checks import (  # noqa: PLC0415 - CEL
        set_type_checking,
    )

    set_type_checking(write)


def _validate_mutating_policy(write: WriteContext[Any]) -> FieldErrors:
    from plimsoll.apiserver.validation.generic_kinds.admission_policy_rules import (  # noqa: PLC0415 - CEL
        validate_mutating_policy,
    )

    return validate_mutating_policy(write)


def _validate_binding(write: WriteContext[Any]) -> FieldErrors:
    spec = subtree(write.tree, "spec")
    name = spec.get("policyName") or ""
    if not name:
        yield required(_SPEC.child("policyName"))
    for error in dns_subdomain(name) if name else ():
        yield invalid(_SPEC.child("policyName"), name, error)
    yield from validate_param_ref(spec.get("paramRef"), _SPEC.child("paramRef"))
    yield from validate_match(spec.get("matchResources"), _SPEC.child("matchResources"))


def _validate_validating_binding(write: WriteContext[Any]) -> FieldErrors:
    yield from _validate_binding(write)
    path, actions = (
        _SPEC.child("validationActions"),
        subtree(write.tree, "spec").get("validationActions") or [],
    )
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(path.index(index), action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate(path.index(index), action)
    if "Deny" in actions and "Warn" in actions:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the "
            "API response and headers serves no purpose)"
        )
        yield invalid(path, actions, why)
    if not actions:
        yield required(path, "at least one validation action is required")


def _validate_mutating_binding(write: WriteContext[Any]) -> FieldErrors:
    yield from _validate_binding(write)
    matched = subtree(write.tree, "spec").get("matchResources")
    yield from validate_mutating_operations(matched, _SPEC.child("matchResources"))


ADMISSION_POLICY_RULES: Mapping[str, KindRules] = {
    "ValidatingAdmissionPolicy": KindRules(
        _PACKAGE, validate=_validate_validating_policy, finish=_set_type_checking
    ),
    "ValidatingAdmissionPolicyBinding": KindRules(_PACKAGE, validate=_validate_validating_binding),
    "MutatingAdmissionPolicy": KindRules(_PACKAGE, validate=_validate_mutating_policy),
    "MutatingAdmissionPolicyBinding": KindRules(_PACKAGE, validate=_validate_mutating_binding),
    # Nothing calls webhooks; stored ones only get their defaults.
    "MutatingWebhookConfiguration": KindRules(_PACKAGE),
    "ValidatingWebhookConfiguration": KindRules(_PACKAGE),
}
