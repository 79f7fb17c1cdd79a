"""Strategies of PriorityClass, and the two system classes."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.metadata import IMMUTABLE, validate_metadata, validate_metadata_update
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy

_VIEW = view_of("scheduling.v1.PriorityClass")

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")

#: System priority classes and their values; none of them is the global default.
SYSTEM_CLASSES: Mapping[str, int] = {
    "system-node-critical": 2 * HIGHEST_USER_PRIORITY + 1000,
    "system-cluster-critical": 2 * HIGHEST_USER_PRIORITY,
}


def validate_preemption_policy(policy: str, path: FieldPath) -> FieldErrors:
    if not policy:
        yield required(path, "must be Never or PreemptLowerPriority")
    elif policy not in PREEMPTION_POLICIES:
        yield not_supported(path, policy, PREEMPTION_POLICIES)


def _prepare(write: WriteContext[View]) -> None:
    if write.is_create:
        write.set_generation(1)


def _validate_create(write: WriteContext[View]) -> FieldErrors:
    meta, given = write.metadata, write.new
    yield from validate_metadata(meta, namespaced=False)
    if meta.name.startswith(SYSTEM_PREFIX):
        yield from _validate_system_class(meta.name, given)
    elif given.value > HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        yield forbidden(FieldPath("value"), detail)
    if given.preemption_policy is not None:
        yield from validate_preemption_policy(given.preemption_policy, FieldPath("preemptionPolicy"))


def _validate_system_class(name: str, given: View) -> FieldErrors:
    value = SYSTEM_CLASSES.get(name)
    if value is None:
        why = f"{name} is not a known system priority class"
    elif value != given.value:
        why = f"value of {name} PriorityClass must be {value}"
    elif given.global_default:
        why = f"globalDefault of {name} PriorityClass must be false"
    else:
        return
    detail = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: "
    yield forbidden(FieldPath("metadata").child("name"), detail + why)


def _validate_update(write: WriteContext[View]) -> FieldErrors:
    now, before = write.new, write.old
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    if now.value != before.value:
        yield forbidden(FieldPath("value"), "may not be changed in an update.")
    if not semantic_equal(before.preemption_policy, now.preemption_policy):
        yield invalid(FieldPath("preemptionPolicy"), now.preemption_policy, IMMUTABLE)


PRIORITY_CLASS_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "PriorityClass", ""): WriteStrategy(_VIEW, _prepare, _validate_create),
    ("update", "PriorityClass", ""): WriteStrategy(_VIEW, _prepare, _validate_update),
}
