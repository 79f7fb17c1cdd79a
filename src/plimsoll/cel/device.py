"""Flattened devices: the form of a device that CEL programs read.

`flatten` takes a device (`plimsoll.api.resource.Device`, or plain JSON) and its driver name, which is also
the domain of names without one. Versions and quantities are parsed; equal values are one object across
devices. Invalid values are recorded in `problem` instead of raised, because for a selector they are run-time
errors of that device (docs/spec/api.md, "CEL environment").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any

from plimsoll.api import resource
from plimsoll.api.quantity import Quantity
from plimsoll.cel.functions.semver import parse as parse_semver
from plimsoll.cel.overloads.fragments import MAX_PLAIN_LIST, MAX_PLAIN_SIZE
from plimsoll.cel.values import DomainMap, Value
from plimsoll.errors import CelRuntimeError, QuantityError


class CelDevice:
    """A flattened device.

    `plain` and `listed` are aliases of the attributes, set only if generated code may read this device
    (`listed` also if some attributes are lists). If unset, the first read fails and the interpreter is used.
    """

    __slots__ = (
        "allow_multiple",
        "attributes",
        "capacity",
        "driver",
        "listed",
        "lists",
        "plain",
        "problem",
    )

    listed: DomainMap
    plain: DomainMap

    def __init__(
        self,
        driver: str,
        attributes: DomainMap,
        capacity: DomainMap,
        allow_multiple: bool,
        lists: str | None,
        problem: str | None,
        longest: int,
    ) -> None:
        self.driver = driver
        self.attributes = attributes
        self.capacity = capacity
        self.allow_multiple = allow_multiple
        self.lists = lists  #: name of an attribute with a list, which needs the gate for list attributes
        self.problem = problem
        if longest <= MAX_PLAIN_SIZE and problem is None:
            self.listed = attributes
            if lists is None:
                self.plain = attributes

    @property
    def variable(self) -> dict[str, Value]:
        """The device as one map, for expressions that do not read it field by field."""
        return {
            "driver": self.driver,
            "allowMultipleAllocations": self.allow_multiple,
            "attributes": self.attributes,
            "capacity": self.capacity,
        }


def flatten(device: resource.Device | Mapping[str, Any], driver: str) -> CelDevice:
    """Convert a device to the form that selectors read."""
    reader = _Reader(driver)
    values, amounts = DomainMap(), DomainMap()
    if isinstance(device, resource.Device):
        for name, attribute in device.attributes.items():
            reader.put(values, name, reader.typed(name, attribute))
        for name, entry in device.capacity.items():
            reader.put(amounts, name, _ZERO if entry.value is None else entry.value)
        allow_multiple = device.allow_multiple_allocations
    else:
        for name, fields in (device.get("attributes") or {}).items():
            reader.put(values, name, reader.untyped(name, fields))
        for name, fields in (device.get("capacity") or {}).items():
            reader.put(amounts, name, reader.amount(name, fields.get("value")))
        allow_multiple = device.get("allowMultipleAllocations")
    return CelDevice(
        reader.driver, values, amounts, bool(allow_multiple), reader.lists, reader.problem, reader.longest
    )


def has_invalid_attribute(devices: Iterable[resource.Device]) -> bool:
    """Return whether an attribute of some device has no value or cannot be parsed."""
    reader, texts = _Reader(""), set[str]()
    for device in devices:
        for name, attribute in device.attributes.items():
            if attribute.version_value is not None:
                texts.add(attribute.version_value)
            elif attribute.string_value is None:
                reader.typed(name, attribute)
    return reader.problem is not None or any(
        reader.typed("", resource.DeviceAttribute(version_value=text)) is None for text in texts
    )


_ZERO = Quantity.from_json(None)


@lru_cache(maxsize=65_536)
def _split(name: str, driver: str) -> tuple[str, str]:
    """Return the domain and the name of an attribute or capacity."""
    domain, slash, key = name.partition("/")
    return (intern(domain), intern(key)) if slash else (driver, intern(name))


class _Reader:
    """Reader of one device; records invalid values, list attributes and the longest string."""

    def __init__(self, driver: str) -> None:
        self.driver = intern(driver)
        self.lists: str | None = None
        self.problem: str | None = None
        self.longest = len(driver)

    def put(self, domains: DomainMap, name: str, value: Value) -> None:
        domain, key = _split(name, self.driver)
        entries = domains.get(domain)
        if entries is None:
            entries = domains[domain] = {}
        entries[key] = value

    def typed(self, name: str, attribute: resource.DeviceAttribute) -> Value:
        if attribute.string_value is not None:
            return self._string(attribute.string_value)
        if attribute.int_value is not None:
            return attribute.int_value
        if attribute.bool_value is not None:
            return attribute.bool_value
        if attribute.version_value is not None:
            return self._version(name, attribute.version_value)
        plain = attribute.int_values, attribute.bool_values, attribute.string_values
        return self._list(name, *plain, attribute.version_values)

    def untyped(self, name: str, fields: Mapping[str, Any]) -> Value:
        get = fields.get
        if (text := get("string")) is not None:
            return self._string(text)
        for field in ("int", "bool"):
            if (value := get(field)) is not None:
                return value
        if (text := get("version")) is not None:
            return self._version(name, text)
        return self._list(name, get("ints"), get("bools"), get("strings"), get("versions"))

    def amount(self, name: str, value: Any) -> Value:
        try:
            return Quantity.from_json(value)
        except QuantityError as error:
            self.problem = f"capacity {name}: {error}"
            return None

    def _string(self, text: str) -> str:
        if len(text) > self.longest:
            self.longest = len(text)
        return intern(text)

    def _list(
        self,
        name: str,
        ints: Sequence[int] | None,
        bools: Sequence[bool] | None,
        strings: Sequence[str] | None,
        versions: Sequence[str] | None,
    ) -> Value:
        for values in (ints, bools, strings, versions):
            if values is not None:
                break
        else:
            self.problem = f"attribute {name}: unsupported attribute value"
            return None
        self.lists = name
        if len(values) > MAX_PLAIN_LIST:
            self.longest = MAX_PLAIN_SIZE + 1
        if values is versions:
            return [self._version(name, text) for text in versions]
        if values is strings:
            return [self._string(text) for text in strings]
        return list(values)

    def _version(self, name: str, text: str) -> Value:
        try:
            return parse_semver(text)
        except CelRuntimeError as error:
            self.problem = f"attribute {name}: parse semantic version: {error}"
            return None
