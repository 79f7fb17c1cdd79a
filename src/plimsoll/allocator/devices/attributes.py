"""Values of one attribute over the devices of a node, as bit sets.

Every distinct value has a bit, so that constraints become integer arithmetic: devices share a value if their
bits overlap. Handles attribute lookup (a name without a domain is in the driver's domain) and lists: with the
feature gate a list is the set of its values and a scalar a set of one; without it a list equals nothing
(docs/spec/allocator.md, "Constraints").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from plimsoll.api.resource import Device, DeviceAttribute

#: A type and a value: values of different types are never equal.
Value: TypeAlias = "tuple[str, str | int]"


class AttributeTable:
    """Devices that have an attribute, and their values."""

    __slots__ = ("_overlaps", "by_bit", "has", "opaque", "scalar", "sets", "values")

    def __init__(self, devices: Iterable[tuple[str, Device]], attribute: str, lists: bool) -> None:
        #: Device -> the bits of its values, or None if it lacks the attribute.
        self.sets: list[int | None] = []
        self.values: list[Value] = []  #: bit -> value
        self.by_bit: list[int] = []  #: bit -> mask of the devices that have it
        self.has = 0  #: mask of the devices that have the attribute
        self.opaque = 0  #: mask of those whose value equals nothing
        self.scalar = True  #: whether every device has at most one value
        self._overlaps: dict[int, int] = {}
        bits: dict[Value, int] = {}
        for index, (driver, device) in enumerate(devices):
            found = _lookup(device, driver, attribute)
            values = None if found is None else _values(found, lists)
            if values is None:
                self.sets.append(None)
                continue
            mine, flag = 0, 1 << index
            self.has |= flag
            for value in values:
                bit = bits.setdefault(value, len(bits))
                if bit == len(self.values):
                    self.values.append(value)
                    self.by_bit.append(0)
                self.by_bit[bit] |= flag
                mine |= 1 << bit
            if not mine:
                self.opaque |= flag
            elif mine & (mine - 1):
                self.scalar = False
            self.sets.append(mine)

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


def _lookup(device: Device, driver: str, attribute: str) -> DeviceAttribute | None:
    found = device.attributes.get(attribute)
    if found is None:
        domain, slash, name = attribute.partition("/")
        if slash and domain == driver:
            found = device.attributes.get(name)
    return found


def _values(attribute: DeviceAttribute, lists: bool) -> Iterable[Value] | None:
    """Return the values of an attribute; empty if it equals nothing, None if it is treated as unset."""
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
