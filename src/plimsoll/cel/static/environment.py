"""Environment of a selector: names, fields, types and functions. `Declarations` is what the checker reads of
any environment; that of admission policies is in `admission_environment.py`.

`Environment` has a kind and the two feature gates that affect it. API writes are checked in "new", which
honors the gates; the scheduler compiles in "stored", which declares everything (docs/spec/api.md, "CEL
environment"). Both kinds have the same libraries in this version, since the newest of them is older than the
previous minor release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

from plimsoll.cel import types
from plimsoll.cel.functions import FUNCTIONS, LIST_ATTRIBUTE_FUNCTIONS, PATCH_FUNCTIONS
from plimsoll.cel.overloads.overload import Overload
from plimsoll.cel.types import DEVICE_VARIABLE, CelType

# Names that denote types at run time too; other type names are valid only in message literals.
RUNTIME_TYPES: dict[str, CelType] = {
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "google.protobuf.Duration": types.DURATION,
    "google.protobuf.Empty": types.EMPTY,
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "int": types.INT,
    "list": types.list_of(types.param("A")),
    "map": types.map_of(types.param("A"), types.param("B")),
    "net.CIDR": types.CIDR,
    "net.IP": types.IP,
    "null_type": types.NULL,
    "optional_type": types.OPTIONAL,
    "string": types.STRING,
    "type": types.TYPE,
    "uint": types.UINT,
}
# Names of constants: protobuf enum values.
CONSTANTS: dict[str, int] = {"google.protobuf.NullValue.NULL_VALUE": 0}

STATIC_TYPES: dict[str, CelType] = {
    **types.MESSAGES,
    "duration": types.DURATION,
    "timestamp": types.TIMESTAMP,
    **RUNTIME_TYPES,
}


class Declarations(Protocol):
    """Names that an expression may use."""

    @property
    def functions(self) -> Mapping[str, tuple[Overload, ...]]:
        """The declared functions by name."""

    @property
    def fields(self) -> Mapping[str, Mapping[str, CelType]]:
        """The fields of every message type, by type name."""

    def variable(self, name: str) -> CelType | None:
        """Return the type of a declared variable, or `type(T)` for a type name; None if it is undeclared."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Environment that an expression is compiled against."""

    kind: Literal["new", "stored"] = "stored"
    consumable_capacity: bool = True
    list_attributes: bool = False

    @property
    def attribute_type(self) -> CelType:
        """The type of attributes: any, or dyn (which can be iterated) with list attributes."""
        return types.DYN if self.list_attributes else types.ANY

    @property
    def functions(self) -> dict[str, tuple[Overload, ...]]:
        hidden = PATCH_FUNCTIONS
        if self.kind != "stored" and not self.list_attributes:
            hidden |= LIST_ATTRIBUTE_FUNCTIONS
        return functions_without(hidden)

    @property
    def fields(self) -> dict[str, dict[str, CelType]]:
        """The fields of every message type, by type name."""
        return _fields(self.attribute_type, self.kind == "stored" or self.consumable_capacity)

    def variable(self, name: str) -> CelType | None:
        """Return the type of a declared variable, or `type(T)` for a type name; None if it is undeclared."""
        if name == DEVICE_VARIABLE:
            return types.DEVICE
        if name in CONSTANTS:
            return types.INT
        known = STATIC_TYPES.get(name)
        if known is None:
            known = _device_types(self.attribute_type).get(name)
        return None if known is None else types.type_of(known)


@cache
def functions_without(hidden: frozenset[str]) -> dict[str, tuple[Overload, ...]]:
    """Return the overloads of all functions but the hidden ones."""
    return {name: function.overloads for name, function in FUNCTIONS.items() if name not in hidden}


@cache
def _device_types(attribute: CelType) -> dict[str, CelType]:
    return {
        types.DEVICE.name: types.DEVICE,
        f"{types.DEVICE.name}.attributes": _by_domain(attribute),
        f"{types.DEVICE.name}.capacity": _by_domain(types.QUANTITY),
    }


@cache
def _fields(attribute: CelType, allow_multiple: bool) -> dict[str, dict[str, CelType]]:
    device = {
        "driver": types.STRING,
        "attributes": _by_domain(attribute),
        "capacity": _by_domain(types.QUANTITY),
    }
    if allow_multiple:
        device["allowMultipleAllocations"] = types.BOOL
    return {**types.MESSAGE_FIELDS, types.DEVICE.name: device}


def _by_domain(value: CelType) -> CelType:
    return types.map_of(types.STRING, types.map_of(types.STRING, value))
