"""Values of one attribute over the devices of a node, as bit sets.

Every distinct value has a bit, so that constraints become integer arithmetic: devices share a value if their
bits overlap. Handles attribute lookup (a name without a domain is in the driver's domain) and lists: with the
feature gate a list is the set of its values and a scalar a set of one; without it a list equals nothing
(docs/spec/allocator.md, "Constraints"). The values are published by the driver, or computed by a derived
attribute of a request: such tables have the same numbering of values (`build_tables`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from plimsoll.api.resource import Device, DeviceAttribute, find_attribute
from plimsoll.cel import AttributeValue, DerivedResult
from plimsoll.errors import CelCompileError, CelRuntimeError

#: Values of a device; empty if it equals nothing, None if the device lacks the attribute.
Values: TypeAlias = "Sequence[AttributeValue] | None"


@dataclass(frozen=True, slots=True)
class AttributeSource:
    """Values of an attribute, by device number, and the errors of devices that have none."""

    values: Sequence[Values]
    errors: Mapping[int, CelRuntimeError | CelCompileError] = field(default_factory=dict)


class AttributeTable:
    """Devices that have an attribute, and their values."""

    __slots__ = (
        "_overlaps",
        "by_bit",
        "errors",
        "failed",
        "has",
        "opaque",
        "scalar",
        "sets",
        "unequal",
        "values",
    )

    def __init__(self, source: AttributeSource, bits: dict[AttributeValue, int], lists: bool) -> None:
        """`bits` are the numbers of all values."""
        #: Device -> the bits of its values, or None if it lacks the attribute.
        self.sets: list[int | None] = []
        self.values = list(bits)  #: bit -> value
        self.by_bit = [0] * len(bits)  #: bit -> mask of the devices that have it
        self.has = 0  #: mask of the devices that have the attribute
        self.opaque = 0  #: mask of those whose value equals nothing
        self.scalar = True  #: whether every device has at most one value
        self.errors = source.errors
        self.failed = sum(1 << number for number in source.errors)  #: mask of the devices with an error
        self._overlaps: dict[int, int] = {}
        for index, values in enumerate(source.values):
            if values is None:
                self.sets.append(None)
                continue
            mine, flag = 0, 1 << index
            self.has |= flag
            for value in values:
                bit = bits[value]
                self.by_bit[bit] |= flag
                mine |= 1 << bit
            if not mine:
                self.opaque |= flag
            elif mine & (mine - 1):
                self.scalar = False
            self.sets.append(mine)
        #: Mask of those that differ from nothing either: without lists, the value of a list is unknown.
        self.unequal = 0 if lists else self.opaque

    def overlapping(self, bits: int) -> int:
        """Return the mask of devices that have any of these values."""
        known = self._overlaps.get(bits)
        if known is None:
            known, rest = 0, bits
            while rest:
                low = rest & -rest
                known |= self.by_bit[low.bit_length() - 1]
                rest ^= low
            if len(self._overlaps) < 4096:
                self._overlaps[bits] = known
        return known


def build_tables(sources: Sequence[AttributeSource], lists: bool) -> tuple[AttributeTable, ...]:
    """Return the tables of several sources of one attribute, with one numbering of values."""
    bits: dict[AttributeValue, int] = {}
    for source in sources:
        for values in source.values:
            for value in values or ():
                bits.setdefault(value, len(bits))
    return tuple(AttributeTable(source, bits, lists) for source in sources)


def read_published(devices: Iterable[tuple[str, Device]], attribute: str, lists: bool) -> AttributeSource:
    """Return the values that drivers publish; `devices` are pairs of driver and device."""
    found = (find_attribute(device, driver, attribute) for driver, device in devices)
    return AttributeSource([None if each is None else _values(each, lists) for each in found])


def read_derived(derived: Iterable[DerivedResult], lists: bool) -> AttributeSource:
    """Return the values that a derived attribute has on each device."""
    values: list[Values] = []
    errors: dict[int, CelRuntimeError | CelCompileError] = {}
    for number, each in enumerate(derived):
        if isinstance(each, CelRuntimeError):
            errors[number] = each
            values.append(None)
        else:
            values.append(each.values if lists or not each.is_list else ())
    return AttributeSource(values, errors)


def _values(attribute: DeviceAttribute, lists: bool) -> Values:
    """Return the values of an attribute; None if it is treated as unset."""
    if lists:
        if attribute.int_values:
            return [("int", value) for value in attribute.int_values]
        if attribute.bool_values:
            return [("bool", value) for value in attribute.bool_values]
        if attribute.string_values:
            return [("string", value) for value in attribute.string_values]
        if attribute.version_values:
            return [("version", value) for value in attribute.version_values]
    if attribute.string_value is not None:
        return [("string", attribute.string_value)]
    if attribute.int_value is not None:
        return [("int", attribute.int_value)]
    if attribute.bool_value is not None:
        return [("bool", attribute.bool_value)]
    if attribute.version_value is not None:
        return [("version", attribute.version_value)]
    return None if lists else ()
