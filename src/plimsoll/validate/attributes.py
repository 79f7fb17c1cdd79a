"""Attributes of devices (section 5 of the API semantics)."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.names import byte_length
from plimsoll.api.resource import DeviceAttribute
from plimsoll.validate.names import ATTRIBUTE_VALUE_MAX, check_format, semantic_version
from plimsoll.validate.problems import Path, Problems, invalid, too_long


def count_values(attributes: Iterable[DeviceAttribute]) -> int:
    """How many values the attributes have: each item of a list counts, anything else counts one."""
    return sum(max(1, sum(len(values or ()) for values in _lists(attribute))) for attribute in attributes)


def has_lists(attribute: DeviceAttribute) -> bool:
    return any(values is not None for values in _lists(attribute))


def _lists(attribute: DeviceAttribute) -> tuple[tuple[object, ...] | None, ...]:
    return (attribute.bool_values, attribute.int_values, attribute.string_values, attribute.version_values)


def check_attribute(attribute: DeviceAttribute, path: Path) -> Problems:
    if attribute.string_value is not None:
        yield from _check_text(attribute.string_value, path.child("string"))
    if attribute.version_value is not None:
        yield from _check_version(attribute.version_value, path.child("version"))
    for name, values in zip(("bools", "ints", "strings", "versions"), _lists(attribute), strict=True):
        if values is not None and not values:
            yield invalid(path.child(name), None, "must not be an empty list; leave it out instead")
    for place, text in enumerate(attribute.string_values or ()):
        yield from _check_text(text, path.child("strings").index(place))
    for place, text in enumerate(attribute.version_values or ()):
        yield from _check_version(text, path.child("versions").index(place))

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


def _check_text(text: str, path: Path) -> Problems:
    if byte_length(text) > ATTRIBUTE_VALUE_MAX:
        yield too_long(path, ATTRIBUTE_VALUE_MAX)


def _check_version(text: str, path: Path) -> Problems:
    yield from check_format(text, path, semantic_version)
    yield from _check_text(text, path)
