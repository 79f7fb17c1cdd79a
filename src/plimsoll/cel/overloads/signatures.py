"""Signatures of overloads and their parser.

A signature is written `(args) -> result`, for a member overload `receiver.(args) -> result`. A single capital
letter is a type parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from plimsoll.cel import types
from plimsoll.cel.types import CelType, TypeKind
from plimsoll.cel.values import TYPE_NAMES, DomainMap, Value

_TOKEN = re.compile(r"[A-Za-z]+|->|[().,]")
NAMED_TYPES = {
    "any": types.ANY,
    "bool": types.BOOL,
    "bytes": types.BYTES,
    "double": types.DOUBLE,
    "duration": types.DURATION,
    "dyn": types.DYN,
    "int": types.INT,
    "string": types.STRING,
    "timestamp": types.TIMESTAMP,
    "uint": types.UINT,
    "Authorizer": types.AUTHORIZER,
    "CIDR": types.CIDR,
    "Decision": types.DECISION,
    "Format": types.FORMAT,
    "GroupCheck": types.GROUP_CHECK,
    "IP": types.IP,
    "PathCheck": types.PATH_CHECK,
    "Quantity": types.QUANTITY,
    "ResourceCheck": types.RESOURCE_CHECK,
    "Semver": types.SEMVER,
    "URL": types.URL,
}
_GENERIC_TYPES: dict[str, Callable[..., CelType]] = {
    "list": types.list_of,
    "map": types.map_of,
    "optional": types.optional_of,
    "type": types.type_of,
}


class Signature(NamedTuple):
    """Types of an overload; the receiver of a member overload is the first argument."""

    member: bool
    args: tuple[CelType, ...]
    result: CelType


def parse_signature(text: str) -> Signature:
    tokens = _TOKEN.findall(text)
    args: list[CelType] = []
    member = tokens[0] != "("
    if member:
        args.append(_type(tokens))
        assert tokens.pop(0) == "."
    args += _types(tokens)
    assert tokens.pop(0) == "->"
    result = _type(tokens)
    assert not tokens, text
    return Signature(member, tuple(args), result)


def _types(tokens: list[str]) -> list[CelType]:
    assert tokens.pop(0) == "("
    result: list[CelType] = []
    while tokens[0] != ")":
        if tokens[0] == ",":
            tokens.pop(0)
        result.append(_type(tokens))
    tokens.pop(0)
    return result


def _type(tokens: list[str]) -> CelType:
    name = tokens.pop(0)
    if name in _GENERIC_TYPES:
        return _GENERIC_TYPES[name](*_types(tokens))
    return types.param(name) if len(name) == 1 else NAMED_TYPES[name]


def type_params(*given: CelType) -> frozenset[str]:
    """Return the names of the type parameters in types."""
    names = {one.name for one in given if one.kind is TypeKind.PARAM}
    return frozenset(names.union(*(type_params(*one.params) for one in given)))


# -- run time


class Never:
    """Run-time type of parameters for which no value exists in a selector."""


_RUNTIME_TYPES = {name: kind for kind, name in TYPE_NAMES.items() if kind is not DomainMap}


class Param(NamedTuple):
    """Run-time type of a parameter: a Python type (None for any) and, for a list, its element type.

    Only the first element of a list is compared with the element type, as in cel-go.
    """

    kind: type | None
    item: type | None = None

    @classmethod
    def of(cls, declared: CelType) -> Param:
        item = _runtime_type(declared.params[0]) if declared.kind is TypeKind.LIST else None
        return cls(_runtime_type(declared), item)

    def accepts(self, value: Value) -> bool:
        if self.kind is None:
            return True
        if type(value) is not self.kind:
            return False
        return self.item is None or not value or type(_first(value)) is self.item


def _first(items: Value) -> Value:
    return items[0]


def _runtime_type(declared: CelType) -> type | None:
    if declared.kind in (TypeKind.PARAM, TypeKind.DYN):
        return None
    return _RUNTIME_TYPES.get(declared.name, Never)
