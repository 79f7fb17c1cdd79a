"""CEL types as the checker sees them.

Owns `Type`, the constants and constructors for every type of the DRA environment, how a type is written in
messages, and which message types can be named in a literal. Types are immutable values; two types are equal
when kind, name and parameters agree (a nullable wrapper equals what it wraps, as in cel-go).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from plimsoll.errors import CelCompileError

# DIFF: cel-go has no such limits and can be made to hang; see test_types_are_bounded.
MAX_DEPTH = 260
MAX_SIZE = 5_000


class Kind(enum.Enum):
    ANY = "any"
    BOOL = "bool"
    BYTES = "bytes"
    DOUBLE = "double"
    DURATION = "duration"
    DYN = "dyn"
    ERROR = "error"
    INT = "int"
    LIST = "list"
    MAP = "map"
    NULL = "null"
    OPAQUE = "opaque"
    PARAM = "param"
    STRING = "string"
    STRUCT = "struct"
    TIMESTAMP = "timestamp"
    TYPE = "type"
    UINT = "uint"

    # Members are singletons; the hash Enum would compute costs a Python call.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Type:
    """A type; `name` is the name CEL gives it at run time, or that of a type parameter."""

    kind: Kind
    name: str
    params: tuple[Type, ...] = ()
    nullable: bool = field(default=False, compare=False)
    depth: int = field(default=1, compare=False, repr=False)
    size: int = field(default=1, compare=False, repr=False)
    # Whether a type parameter occurs in it.
    open: bool = field(default=False, compare=False, repr=False)

    def with_params(self, params: tuple[Type, ...]) -> Type:
        """The same type with other parameters; refuse one that is absurdly large."""
        depth = 1 + max([one.depth for one in params])
        size = 1 + sum([one.size for one in params])
        if depth > MAX_DEPTH or size > MAX_SIZE:
            raise CelCompileError("expression has types too large to check")
        open_ = any(one.open for one in params)
        return Type(self.kind, self.name, params, self.nullable, depth, size, open_)

    def __str__(self) -> str:
        if self.kind in _SHORT:
            return _SHORT[self.kind]
        name = f"wrapper({self.name})" if self.nullable else self.name
        if not self.params:
            return name
        return f"{name}({', '.join(str(param) for param in self.params)})"

    def takes(self, other: Type) -> bool:
        """Whether a value of type `other` may stand where this one is declared, parameters apart."""
        if self.nullable and other.kind is Kind.NULL:
            return True
        if self is other or self.kind in _OPEN:
            return True
        return (
            self.kind is other.kind
            and self.name == other.name
            and len(self.params) == len(other.params)
            and all(mine.takes(theirs) for mine, theirs in zip(self.params, other.params, strict=True))
        )


_SHORT = {Kind.ANY: "any", Kind.DURATION: "duration", Kind.TIMESTAMP: "timestamp", Kind.NULL: "null"}
_OPEN = frozenset({Kind.DYN, Kind.ANY, Kind.PARAM})

ANY = Type(Kind.ANY, "google.protobuf.Any")
BOOL = Type(Kind.BOOL, "bool")
BYTES = Type(Kind.BYTES, "bytes")
DOUBLE = Type(Kind.DOUBLE, "double")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
DYN = Type(Kind.DYN, "dyn")
ERROR = Type(Kind.ERROR, "error")
INT = Type(Kind.INT, "int")
NULL = Type(Kind.NULL, "null_type")
STRING = Type(Kind.STRING, "string")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
TYPE = Type(Kind.TYPE, "type")
UINT = Type(Kind.UINT, "uint")

CIDR = Type(Kind.OPAQUE, "net.CIDR")
IP = Type(Kind.OPAQUE, "net.IP")
OPTIONAL = Type(Kind.OPAQUE, "optional_type")
FORMAT = Type(Kind.STRUCT, "kubernetes.NamedFormat")
QUANTITY = Type(Kind.STRUCT, "kubernetes.Quantity")
SEMVER = Type(Kind.STRUCT, "kubernetes.Semver")
URL = Type(Kind.STRUCT, "kubernetes.URL")
AUTHORIZER = Type(Kind.STRUCT, "kubernetes.authorization.Authorizer")
PATH_CHECK = Type(Kind.STRUCT, "kubernetes.authorization.PathCheck")
GROUP_CHECK = Type(Kind.STRUCT, "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = Type(Kind.STRUCT, "kubernetes.authorization.ResourceCheck")
DECISION = Type(Kind.STRUCT, "kubernetes.authorization.Decision")
DEVICE = Type(Kind.STRUCT, "kubernetes.DRADevice")
EMPTY = Type(Kind.STRUCT, "google.protobuf.Empty")


_LIST = Type(Kind.LIST, "list")
_MAP = Type(Kind.MAP, "map")


def list_of(item: Type) -> Type:
    return _LIST.with_params((item,))


def map_of(key: Type, value: Type) -> Type:
    return _MAP.with_params((key, value))


def optional_of(value: Type) -> Type:
    return OPTIONAL.with_params((value,))


def type_of(value: Type) -> Type:
    return TYPE.with_params((value,))


def param(name: str) -> Type:
    return Type(Kind.PARAM, name, open=True)


def nullable(wrapped: Type) -> Type:
    return Type(wrapped.kind, wrapped.name, nullable=True)


def is_dyn(value: Type) -> bool:
    return value.kind is Kind.DYN or value.kind is Kind.ANY


def unwrap_optional(value: Type) -> tuple[Type, bool]:
    """The type inside an optional, and whether it was one."""
    if value.kind is Kind.OPAQUE and value.name == "optional_type" and value.params:
        return value.params[0], True
    return value, False


# Protobuf's well-known messages: what a literal of each is, and the fields it may be given.
MESSAGES: dict[str, Type] = {
    "google.protobuf.Any": ANY,
    "google.protobuf.BoolValue": nullable(BOOL),
    "google.protobuf.BytesValue": nullable(BYTES),
    "google.protobuf.DoubleValue": nullable(DOUBLE),
    "google.protobuf.Duration": DURATION,
    "google.protobuf.Empty": EMPTY,
    "google.protobuf.FloatValue": nullable(DOUBLE),
    "google.protobuf.Int32Value": nullable(INT),
    "google.protobuf.Int64Value": nullable(INT),
    "google.protobuf.ListValue": list_of(DYN),
    "google.protobuf.StringValue": nullable(STRING),
    "google.protobuf.Struct": map_of(STRING, DYN),
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.UInt32Value": nullable(UINT),
    "google.protobuf.UInt64Value": nullable(UINT),
    "google.protobuf.Value": DYN,
}
MESSAGE_FIELDS: dict[str, dict[str, Type]] = {
    "google.protobuf.Any": {"type_url": STRING, "value": BYTES},
    "google.protobuf.BoolValue": {"value": BOOL},
    "google.protobuf.BytesValue": {"value": BYTES},
    "google.protobuf.DoubleValue": {"value": DOUBLE},
    "google.protobuf.Duration": {"seconds": INT, "nanos": INT},
    "google.protobuf.Empty": {},
    "google.protobuf.Int64Value": {"value": INT},
    "google.protobuf.ListValue": {"values": list_of(DYN)},
    "google.protobuf.StringValue": {"value": STRING},
    "google.protobuf.Struct": {"fields": map_of(STRING, DYN)},
    "google.protobuf.Timestamp": {"seconds": INT, "nanos": INT},
    "google.protobuf.UInt64Value": {"value": UINT},
    "google.protobuf.Value": {
        "null_value": INT,
        "number_value": DOUBLE,
        "string_value": STRING,
        "bool_value": BOOL,
        "struct_value": map_of(STRING, DYN),
        "list_value": list_of(DYN),
    },
}
# The message a literal of each kind is built as: wrappers of 32 bits share that of 64.
_MESSAGE_OF_KIND = {
    Kind.ANY: "google.protobuf.Any",
    Kind.BOOL: "google.protobuf.BoolValue",
    Kind.BYTES: "google.protobuf.BytesValue",
    Kind.DOUBLE: "google.protobuf.DoubleValue",
    Kind.DURATION: "google.protobuf.Duration",
    Kind.DYN: "google.protobuf.Value",
    Kind.INT: "google.protobuf.Int64Value",
    Kind.LIST: "google.protobuf.ListValue",
    Kind.MAP: "google.protobuf.Struct",
    Kind.NULL: "google.protobuf.NullValue",
    Kind.STRING: "google.protobuf.StringValue",
    Kind.TIMESTAMP: "google.protobuf.Timestamp",
    Kind.UINT: "google.protobuf.UInt64Value",
}


def message_name(value: Type) -> str | None:
    """The message whose fields a literal of this type takes, or None when it is no message type."""
    if value.kind is Kind.STRUCT:
        return value.name
    if value.kind is Kind.LIST and value.params[0].kind is not Kind.DYN:
        return None
    if value.kind is Kind.MAP and not (
        value.params[0].kind is Kind.STRING and value.params[1].kind is Kind.DYN
    ):
        return None
    primitive = value.kind in (
        Kind.BOOL,
        Kind.BYTES,
        Kind.DOUBLE,
        Kind.INT,
        Kind.STRING,
        Kind.UINT,
    )
    if primitive and not value.nullable:
        return None
    return _MESSAGE_OF_KIND.get(value.kind)
