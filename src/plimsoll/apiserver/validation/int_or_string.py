"""Fields that hold a number or a text: ports by number or name, amounts by count or percentage."""

from __future__ import annotations

import re
from typing import Any

from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.errors import DecodeError

NOT_NEGATIVE = "must be greater than or equal to 0"

_PERCENT = re.compile(r"[0-9]+%")
_INT32 = range(-(2**31), 2**31)
_NUMBER = re.compile(r"([-+]?)([0-9]+)%?")
_LONGEST = 20


def require_int_or_string(holder: Tree, *names: str) -> None:
    """DecodeError where a field holds neither a number of 32 bits nor a text, which no view can say."""
    for name in names:
        value = holder.get(name)
        fine = value is None or type(value) is str or (type(value) is int and value in _INT32)
        if not fine:
            raise DecodeError("must be a whole number of 32 bits or a text", name)


def is_percentage(value: Any) -> bool:
    return isinstance(value, str) and bool(_PERCENT.fullmatch(value))


def scaled_value(value: Any) -> int:
    """The number, or the one that a text or percentage spells; 0 for other texts."""
    if not isinstance(value, str):
        return value or 0
    shape = _NUMBER.fullmatch(value)
    if shape is None:
        return 0
    digits = shape[2].lstrip("0")[:_LONGEST]  # what is longer is huge either way
    return int(shape[1] + (digits or "0"))


def validate_positive_int_or_percent(value: Any, path: FieldPath) -> FieldErrors:
    """How many things, or which share of them."""
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
