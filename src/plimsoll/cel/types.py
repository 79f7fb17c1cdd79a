"""Static CEL types: `CelType`, the types of the DRA environment and the messages that literals can name.

Types are immutable values; two types are equal if kind, name and parameters are equal (a nullable wrapper
equals the wrapped type, as in cel-go).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from plimsoll.errors import CelCompileError

# DIFF: cel-go has no such limits and can be made to hang; see test_types_are_bounded.
MAX_DEPTH = 260
MAX_SIZE = 5_000


class TypeKind(enum.Enum):
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

    # Members are singletons; Enum's hash would cost a Python call.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class CelType:
    """A type; `name` is its run-time name in CEL, or the name of a type parameter."""

    kind: TypeKind
    name: str
    params: tuple[CelType, ...] = ()
    nullable: bool = field(default=False, compare=False)
    depth: int = field(default=1, compare=False, repr=False)
    size: int = field(default=1, compare=False, repr=False)
    # Whether it contains a type parameter.
    open: bool = field(default=False, compare=False, repr=False)

    def with_params(self, params: tuple[CelType, ...]) -> CelType:
        """Return the same type with other parameters; raises CelCompileError if it is too large."""
        depth = 1 + max([one.depth for one in params])
        size = 1 + sum([one.size for one in params])
        if depth > MAX_DEPTH or size > MAX_SIZE:
            raise CelCompileError("expression has types too large to check")
        open_ = any(one.open for one in params)
        return CelType(self.kind, self.name, params, self.nullable, depth, size, open_)

    def __str__(self) -> str:
        if self.kind in _SHORT:
            return _SHORT[self.kind]
        name = f"wrapper({self.name})" if self.nullable else self.name
        if not self.params:
            return name
        return f"{name}({', '.join(str(param) for param in self.params)})"

    def takes(self, other: CelType) -> bool:
        """Return whether a value of type `other` is valid where this type is declared, ignoring
        parameters.
        """
        if self.nullable and other.kind is TypeKind.NULL:
            return True
        if self is other or self.kind in _OPEN:
            return True
        return (
            self.kind is other.kind
            and self.name == other.name
            and len(self.params) == len(other.params)
            and all(mine.takes(theirs) for mine, theirs in zip(self.params, other.params, strict=True))
        )


_SHORT = {
    TypeKind.ANY: "any",
    TypeKind.DURATION: "duration",
    TypeKind.TIMESTAMP: "timestamp",
    TypeKind.NULL: "null",
}
_OPEN = frozenset({TypeKind.DYN, TypeKind.ANY, TypeKind.PARAM})

ANY = CelType(TypeKind.ANY, "google.protobuf.Any")
BOOL = CelType(TypeKind.BOOL, "bool")
BYTES = CelType(TypeKind.BYTES, "bytes")
DOUBLE = CelType(TypeKind.DOUBLE, "double")
DURATION = CelType(TypeKind.DURATION, "google.protobuf.Duration")
DYN = CelType(TypeKind.DYN, "dyn")
ERROR = CelType(TypeKind.ERROR, "error")
INT = CelType(TypeKind.INT, "int")
NULL = CelType(TypeKind.NULL, "null_type")
STRING = CelType(TypeKind.STRING, "string")
TIMESTAMP = CelType(TypeKind.TIMESTAMP, "google.protobuf.Timestamp")
TYPE = CelType(TypeKind.TYPE, "type")
UINT = CelType(TypeKind.UINT, "uint")

CIDR = CelType(TypeKind.OPAQUE, "net.CIDR")
IP = CelType(TypeKind.OPAQUE, "net.IP")
OPTIONAL = CelType(TypeKind.OPAQUE, "optional_type")
FORMAT = CelType(TypeKind.STRUCT, "kubernetes.NamedFormat")
QUANTITY = CelType(TypeKind.STRUCT, "kubernetes.Quantity")
SEMVER = CelType(TypeKind.STRUCT, "kubernetes.Semver")
URL = CelType(TypeKind.STRUCT, "kubernetes.URL")
AUTHORIZER = CelType(TypeKind.STRUCT, "kubernetes.authorization.Authorizer")
PATH_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.PathCheck")
GROUP_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = CelType(TypeKind.STRUCT, "kubernetes.authorization.ResourceCheck")
DECISION = CelType(TypeKind.STRUCT, "kubernetes.authorization.Decision")
DEVICE = CelType(TypeKind.STRUCT, "kubernetes.DRADevice")
EMPTY = CelType(TypeKind.STRUCT, "google.protobuf.Empty")

#: Results of the mutations of admission policies.
OBJECT = CelType(TypeKind.STRUCT, "Object")
JSON_PATCH = CelType(TypeKind.STRUCT, "JSONPatch")

DEVICE_VARIABLE = "device"


_LIST = CelType(TypeKind.LIST, "list")
_MAP = CelType(TypeKind.MAP, "map")


def list_of(item: CelType) -> CelType:
    return _LIST.with_params((item,))


def map_of(key: CelType, value: CelType) -> CelType:
    return _MAP.with_params((key, value))


def optional_of(value: CelType) -> CelType:
    return OPTIONAL.with_params((value,))


def type_of(value: CelType) -> CelType:
    return TYPE.with_params((value,))


def param(name: str) -> CelType:
    return CelType(TypeKind.PARAM, name, open=True)


def nullable(wrapped: CelType) -> CelType:
    return CelType(wrapped.kind, wrapped.name, nullable=True)


def is_object_type(name: str) -> bool:
    """Return whether a name is `Object` or a path below it, such as `Object.spec`."""
    return name.partition(".")[0] == OBJECT.name


def is_mutation_type(name: str) -> bool:
    """Return whether a name is a type of the results of mutations."""
    return name == JSON_PATCH.name or is_object_type(name)


def is_dyn(value: CelType) -> bool:
    return value.kind is TypeKind.DYN or value.kind is TypeKind.ANY


def unwrap_optional(value: CelType) -> tuple[CelType, bool]:
    """Return the type inside an optional, and whether it was one."""
    if value.kind is TypeKind.OPAQUE and value.name == "optional_type" and value.params:
        return value.params[0], True
    return value, False


# Protobuf's well-known messages: the types and the fields of their literals.
MESSAGES: dict[str, CelType] = {
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
MESSAGE_FIELDS: dict[str, dict[str, CelType]] = {
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
# The message of a literal of each kind; 32-bit wrappers use the 64-bit message.
_MESSAGE_OF_KIND = {
    TypeKind.ANY: "google.protobuf.Any",
    TypeKind.BOOL: "google.protobuf.BoolValue",
    TypeKind.BYTES: "google.protobuf.BytesValue",
    TypeKind.DOUBLE: "google.protobuf.DoubleValue",
    TypeKind.DURATION: "google.protobuf.Duration",
    TypeKind.DYN: "google.protobuf.Value",
    TypeKind.INT: "google.protobuf.Int64Value",
    TypeKind.LIST: "google.protobuf.ListValue",
    TypeKind.MAP: "google.protobuf.Struct",
    TypeKind.NULL: "google.protobuf.NullValue",
    TypeKind.STRING: "google.protobuf.StringValue",
    TypeKind.TIMESTAMP: "google.protobuf.Timestamp",
    TypeKind.UINT: "google.protobuf.UInt64Value",
}


def message_name(value: CelType) -> str | None:
    """Return the message that defines the fields of a literal of this type, or None if it has none."""
    if value.kind is TypeKind.STRUCT:
        return value.name
    if value.kind is TypeKind.LIST and value.params[0].kind is not TypeKind.DYN:
        return None
    if value.kind is TypeKind.MAP and not (
        value.params[0].kind is TypeKind.STRING and value.params[1].kind is TypeKind.DYN
    ):
        return None
    primitive = value.kind in (
        TypeKind.BOOL,
        TypeKind.BYTES,
        TypeKind.DOUBLE,
        TypeKind.INT,
        TypeKind.STRING,
        TypeKind.UINT,
    )
    if primitive and not value.nullable:
        return None
    return _MESSAGE_OF_KIND.get(value.kind)
