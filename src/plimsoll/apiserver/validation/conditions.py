"""Validation of status conditions (docs/spec/api.md, "Names and formats" and "ResourceClaim status")."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.meta import Condition
from plimsoll.api.names import byte_length
from plimsoll.api.timestamps import ZERO_TIME
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from plimsoll.apiserver.validation.name_formats import condition_reason, validate_format, validate_label_key

REASON_MAX = 1024
MESSAGE_MAX = 32 * 1024
_STATUSES = ("True", "False", "Unknown")


def validate_conditions(conditions: Sequence[Condition], limit: int, path: FieldPath) -> FieldErrors:
    """Validate conditions: at most `limit`, one of each type. Items are validated even if there are too
    many.
    """
    if len(conditions) > limit:
        yield too_many(path, len(conditions), limit)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at = path.index(index)
        if condition.type in seen:
            yield duplicate(at.child("type"), condition.type)
        seen.add(condition.type)
        yield from _validate_condition(condition, at)


def _validate_condition(condition: Condition, path: FieldPath) -> FieldErrors:
    yield from validate_label_key(condition.type, path.child("type"))
    if condition.status not in _STATUSES:
        yield not_supported(path.child("status"), condition.status, _STATUSES)
    if condition.observed_generation < 0:
        yield invalid(path.child("observedGeneration"), condition.observed_generation, "must not be negative")
    if condition.last_transition_time in (None, ZERO_TIME):
        yield required(path.child("lastTransitionTime"), "must be the time the status last changed")
    if not condition.reason:
        yield required(path.child("reason"), "must be a reason in CamelCase, such as NetworkReady")
    else:
        yield from validate_format(condition.reason, path.child("reason"), condition_reason)
        if byte_length(condition.reason) > REASON_MAX:
            yield too_long(path.child("reason"), REASON_MAX)
    if byte_length(condition.message) > MESSAGE_MAX:
        yield too_long(path.child("message"), MESSAGE_MAX)
