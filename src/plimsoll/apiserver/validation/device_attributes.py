"""Validation of device attributes (docs/spec/api.md, "ResourceSlice")."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from plimsoll.api.names import byte_length
from plimsoll.api.resource import DeviceAttribute
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid, too_long
from plimsoll.apiserver.validation.name_formats import ATTRIBUTE_VALUE_MAX, semantic_version, validate_format


def count_values(attributes: Iterable[DeviceAttribute]) -> int:
    """Count attribute values: each item of a list counts, any other attribute counts as one."""
    return sum(
        max(1, sum(len(values or ()) for values in _lists(attribute))) if has_lists(attribute) else 1
        for attribute in attributes
    )


def has_lists(attribute: DeviceAttribute) -> bool:
    return (
        attribute.string_values is not None
        or attribute.int_values is not None
        or attribute.bool_values is not None
        or attribute.version_values is not None
    )


def _lists(attribute: DeviceAttribute) -> tuple[tuple[object, ...] | None, ...]:
    return (attribute.bool_values, attribute.int_values, attribute.string_values, attribute.version_values)


def is_plain(attribute: DeviceAttribute) -> bool:
    """Report whether an attribute is a single valid scalar, the common case that needs no further
    validation.
    """
    if has_lists(attribute):
        return False
    text, version = attribute.string_value, attribute.version_value
    number, truth = attribute.int_value, attribute.bool_value
    if text is not None:
        short = len(text) <= ATTRIBUTE_VALUE_MAX and text.isascii()
        return short and number is None and truth is None and version is None
    if version is not None:
        return number is None and truth is None and _is_short_version(version)
    return (number is None) != (truth is None)


@lru_cache(maxsize=1024)
def _is_short_version(text: str) -> bool:
    return len(text) <= ATTRIBUTE_VALUE_MAX and not semantic_version(text)


def validate_attribute(attribute: DeviceAttribute, path: FieldPath) -> FieldErrors:
    if attribute.string_value is not None:
        yield from _validate_text(attribute.string_value, path.child("string"))
    if attribute.version_value is not None:
        yield from _validate_version(attribute.version_value, path.child("version"))
    for name, values in zip(("bools", "ints", "strings", "versions"), _lists(attribute), strict=True):
        if values is not None and not values:
            yield invalid(path.child(name), None, "must not be an empty list; leave it out instead")
    for index, text in enumerate(attribute.string_values or ()):
        yield from _validate_text(text, path.child("strings").index(index))
    for index, text in enumerate(attribute.version_values or ()):
        yield from _validate_version(text, path.child("versions").index(index))

    scalars = (
        attribute.bool_value,
        attribute.int_value,
        attribute.string_value,
        attribute.version_value,
    )
    given = sum(value is not None for value in (*scalars, *_lists(attribute)))
    if given != 1:
        detail = "must have exactly one of bool, int, string, version, bools, ints, strings and versions"
        yield invalid(path, f"{given} values", detail)


def _validate_text(text: str, path: FieldPath) -> FieldErrors:
    if byte_length(text) > ATTRIBUTE_VALUE_MAX:
        yield too_long(path, ATTRIBUTE_VALUE_MAX)


def _validate_version(text: str, path: FieldPath) -> FieldErrors:
    yield from validate_format(text, path, semantic_version)
    yield from _validate_text(text, path)
