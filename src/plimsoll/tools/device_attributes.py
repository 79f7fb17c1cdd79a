"""Device attributes that a selector reads, with the device's values.

Any name that occurs in the expression as a field or a string is assumed to be read, which is enough to show
the deciding values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache

from plimsoll.api.resource import Device, DeviceAttribute, DeviceCapacity
from plimsoll.cel.syntax.ast import Const, Select
from plimsoll.cel.syntax.parser import parse
from plimsoll.errors import CelCompileError

#: Values of a device that are shown.
SHOWN = 4
#: Name that selectors read and that is not an attribute.
DRIVER = "driver"


def attributes_read(
    expression: str, driver: str, device: Device
) -> list[tuple[str, DeviceAttribute | DeviceCapacity | str]]:
    """Return the device's values for the names that an expression reads, attributes first."""
    words = words_of(expression)
    found: list[tuple[str, DeviceAttribute | DeviceCapacity | str]] = []
    named: list[tuple[str, DeviceAttribute | DeviceCapacity]] = [*sorted(device.attributes.items())]
    named += sorted(device.capacity.items())
    found += [each for each in named if each[0] in words or each[0].rpartition("/")[2] in words]
    if not found and DRIVER in words:
        found.append((DRIVER, driver))
    return found[:SHOWN]


@lru_cache(maxsize=512)
def words_of(expression: str) -> frozenset[str]:
    """Return the field names and strings in an expression; none if it does not parse."""
    try:
        return frozenset(_words(parse(expression)))
    except CelCompileError:
        return frozenset()


def _words(tree: object) -> Iterator[str]:
    stack: list[object] = [tree]
    while stack:
        each = stack.pop()
        if isinstance(each, Select):
            yield each.field
        if isinstance(each, Const) and isinstance(each.value, str):
            yield each.value
        if isinstance(each, tuple):
            stack.extend(each)
        elif is_dataclass(each):
            stack.extend(getattr(each, field.name) for field in fields(each))


def value_text(value: DeviceAttribute | DeviceCapacity | str) -> str:
    """Format a value as it appears in a slice."""
    if isinstance(value, str):
        return value
    if isinstance(value, DeviceCapacity):
        return str(value.value)
    for single in (value.string_value, value.int_value, value.version_value):
        if single is not None:
            return str(single)
    if value.bool_value is not None:
        return str(value.bool_value).lower()
    for several in (value.string_values, value.int_values, value.version_values, value.bool_values):
        if several is not None:
            return "[" + ", ".join(map(str, several)) + "]"
    return ""
