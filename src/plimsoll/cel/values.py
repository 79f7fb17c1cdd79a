"""Run-time values of CEL: their Python representation, sizes and map keys.

    bool -> bool          int -> int             uint -> Uint          double -> float
    string -> str         bytes -> bytes         null -> None          list -> list
    map -> dict           timestamp -> Timestamp duration -> Duration  type -> TypeValue
    optional -> Optional  Quantity, Semver, IP, CIDR, URL, NamedFormat -> classes of the same names

Lists and dicts are not modified after a program can read them. Map keys are stored in a form in which `1`,
`true`, `1u` and `1.0` are distinct (`key_of`, `from_key`); strings and ints, the common keys, are unchanged.
`DomainMap` is the map of attribute or capacity domains of a device, in which an unknown domain is an empty
map. Floats are CEL doubles only. docs/spec/api.md, "CEL environment".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from plimsoll.api.quantity import Quantity
from plimsoll.cel.admission_values import ADMISSION_TYPE_NAMES
from plimsoll.cel.syntax.ast import Uint
from plimsoll.errors import CelCostError, CelFatalError, CelRuntimeError

Value: TypeAlias = Any

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
UINT_MAX = 2**64 - 1


#: Errors that `&&`, `||` and comprehensions do not absorb.
UNABSORBED = (CelCostError, CelFatalError)


def no_overload(function: str, *args: Value) -> CelRuntimeError:
    """Return the error for arguments that match no overload of a function."""
    if not args:
        return CelRuntimeError(f"no such overload: {function}")
    return CelRuntimeError(f"no such overload: {function}({', '.join(type_name(arg) for arg in args)})")


class Duration:
    """A duration in whole nanoseconds, within int64."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("duration", self.nanos))

    def __repr__(self) -> str:
        return f"Duration({self.nanos})"


class Timestamp:
    """A time in nanoseconds since 1970, with the zone offset (seconds) of its text."""

    __slots__ = ("nanos", "offset")

    def __init__(self, nanos: int, offset: int | None = None) -> None:
        self.nanos = nanos
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __hash__(self) -> int:
        return hash(("timestamp", self.nanos))

    def __repr__(self) -> str:
        return f"Timestamp({self.nanos}, {self.offset})"


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: `int`, `type(x)`."""

    name: str


class Optional:
    """`optional.of(value)`; `NONE` is the optional without a value."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "optional.none()" if self is NONE else f"optional.of({self.value!r})"


NONE = Optional(None)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Value of an optional that upstream cannot convert; reading it is an error."""

    reason: str


def content(optional: Optional) -> Value:
    """Return the value of an optional; raises for none."""
    if optional is NONE:
        raise CelRuntimeError("optional.none() dereference")
    value = optional.value
    if type(value) is Unreadable:
        raise CelRuntimeError(value.reason)
    return value


class EmptyMessage:
    """The value of `google.protobuf.Empty{}`."""

    __slots__ = ()


EMPTY_MESSAGE = EmptyMessage()


class Semver:
    """A semantic version. `key` orders versions; build metadata is kept in the text only.

    Comparing with anything but a Semver raises TypeError: in CEL that is an error, and generated code relies
    on the exception to fall back to the interpreter.
    """

    __slots__ = ("key", "text")

    key: tuple[Any, ...]
    text: str

    def __init__(self, key: tuple[Any, ...], text: str) -> None:
        self.key = key
        self.text = text

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not Semver:
            raise TypeError("a Semver compares with a Semver only")
        return self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Semver({self.text!r})"


@dataclass(frozen=True, slots=True)
class IP:
    """An IPv4 or IPv6 address: `bits` is 32 or 128."""

    number: int
    bits: int


@dataclass(frozen=True, slots=True)
class CIDR:
    """An address with a prefix length; host bits are kept."""

    number: int
    bits: int
    prefix: int


@dataclass(frozen=True, slots=True)
class URL:
    """A parsed URL: the parts that functions return, and the text, which determines equality."""

    scheme: str
    host: str
    escaped_path: str
    query: str
    text: str


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A named string format; `regex_size` is its weight in the cost model."""

    name: str
    validate: Callable[[str], list[str]]
    regex_size: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedFormat) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class DomainMap(dict[str, dict[str, Value]]):
    """Domains of a device: an unknown domain is read as an empty map, but is not `in` the map."""

    __slots__ = ()


EMPTY_DOMAIN: dict[str, Value] = {}

TYPE_NAMES: dict[type, str] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
    DomainMap: "map",
    Timestamp: "google.protobuf.Timestamp",
    Duration: "google.protobuf.Duration",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    IP: "net.IP",
    CIDR: "net.CIDR",
    URL: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
    EmptyMessage: "google.protobuf.Empty",
    **ADMISSION_TYPE_NAMES,
}


def type_name(value: Value) -> str:
    """Return the CEL name of a value's type."""
    return TYPE_NAMES[type(value)]


def is_map(value: Value) -> bool:
    return type(value) is dict or type(value) is DomainMap


def size_of(value: Value) -> int:
    """Return the size that the cost model uses: the length if there is one, else 1."""
    kind = type(value)
    if kind is str or kind is list or kind is dict or kind is bytes or kind is DomainMap:
        return len(value)
    if kind is IP:
        return int(value.bits) // 8
    if kind is CIDR:
        return -(-int(value.prefix) // 8)
    return 1


class WrappedKey:
    """Wrapper for a map key that would equal a key of another CEL type, or that is compared by identity."""

    __slots__ = ("by_identity", "value")

    def __init__(self, value: Value, by_identity: bool = False) -> None:
        self.value = value
        self.by_identity = by_identity

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WrappedKey) or self.value.__class__ is not other.value.__class__:
            return False
        return self.value is other.value if self.by_identity else bool(self.value == other.value)

    def __hash__(self) -> int:
        return id(self.value) if self.by_identity else hash((self.value.__class__, self.value))


def key_of(value: Value) -> Value:
    """Return the stored form of a map key."""
    kind = type(value)
    if kind is str or kind is int or kind is Uint:
        return value
    # Upstream compares containers and quantities by identity: no two of them are the same key.
    return WrappedKey(value, kind in _IDENTITY_KEYS)


_IDENTITY_KEYS = frozenset({list, dict, DomainMap, Optional, Quantity, URL})


def from_key(key: Value) -> Value:
    """Return the CEL value of a stored key."""
    return key.value if type(key) is WrappedKey else key


def int_of_double(value: float) -> int | None:
    """Return the int64 equal to a double, or None."""
    if value != value or not -(2.0**63) < value < 2.0**63 or value != int(value):
        return None
    return int(value)


def uint_of_double(value: float) -> int | None:
    if value != value or not 0 <= value < 2.0**64 or value != int(value):
        return None
    return int(value)


MISSING = object()


def find(mapping: dict[Any, Value], key: Value) -> Value:
    """Return the value of a key, or MISSING; numbers match across types, unknown domains are empty."""
    kind = type(key)
    if kind is str:
        found = mapping.get(key, MISSING)
    elif not mapping:
        found = MISSING
    elif kind is int:
        found = mapping.get(key, MISSING)
        if found is MISSING and key >= 0:
            found = mapping.get(Uint(key), MISSING)
    elif kind is Uint:
        found = mapping.get(key, MISSING)
        if found is MISSING and key.value <= INT_MAX:
            found = mapping.get(key.value, MISSING)
    elif kind is float:
        found = _find_double(mapping, key)
    else:
        found = mapping.get(key_of(key), MISSING)
    if found is MISSING and type(mapping) is DomainMap:
        return EMPTY_DOMAIN
    return found


def _find_double(mapping: dict[Any, Value], key: float) -> Value:
    found = mapping.get(WrappedKey(key), MISSING)
    if found is MISSING and (whole := int_of_double(key)) is not None:
        found = mapping.get(whole, MISSING)
    if found is MISSING and (whole := uint_of_double(key)) is not None:
        found = mapping.get(Uint(whole), MISSING)
    return found


def contains_key(mapping: dict[Any, Value], key: Value) -> bool:
    """Evaluate `key in map`; an unknown domain is not in the map, though it can be read."""
    if type(mapping) is DomainMap:
        return type(key) is str and key in mapping
    return find(mapping, key) is not MISSING
