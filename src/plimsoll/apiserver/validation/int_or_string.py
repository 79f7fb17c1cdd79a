"""Validation of int-or-string fields: ports by number or name, counts or percentages."""

from __future__ import annotations

import re
from typing import Any

from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid
from plimsoll.apiserver.validation.resource_names import NOT_NEGATIVE

_PERCENT = re.compile(r"[0-9]+%")
_NUMBER = re.compile(r"([-+]?)([0-9]+)%?")
_LONGEST = 20


def is_percentage(value: Any) -> bool:
    return isinstance(value, str) and bool(_PERCENT.fullmatch(value))


def scaled_value(value: Any) -> int:
    """Return the number, or the one that a string or percentage contains; 0 for other strings."""
    if not isinstance(value, str):
        return value or 0
    shape = _NUMBER.fullmatch(value)
    if shape is None:
        return 0
    digits = shape[2].lstrip("0")[:_LONGEST]  # longer numbers exceed every limit
    return int(shape[1] + (digits or "0"))


def validate_positive_int_or_percent(value: Any, path: FieldPath) -> FieldErrors:
    """Validate a non-negative count or a percentage."""
    if not isinstance(value, str):
        yield from validate_not_negative(value, path)
    elif not is_percentage(value):
        yield invalid(path, value, "must be a percentage such as 10%: digits and a '%'")


def validate_not_more_than_100_percent(value: Any, path: FieldPath) -> FieldErrors:
    if is_percentage(value) and scaled_value(value) > 100:
        yield invalid(path, value, "must not be greater than 100%")


def validate_not_negative(value: int | None, path: FieldPath) -> FieldErrors:
    if value is not None and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)
