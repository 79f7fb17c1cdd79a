"""Decoder with the behavior of Go (encoding/json), for files shared with a kubelet.

Decodes along a schema with Go's leniency (case-insensitive keys, unknown keys, null as
zero value, invalid UTF-8 and lone surrogates replaced) and Go's error messages. See
docs/spec/node-protocols.md, "DRA manager checkpoint".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.node.claims.go_syntax import syntax_error

_SURROGATE = re.compile("[\ud800-\udfff]")


# -- schema


@dataclass(frozen=True)
class GoString:
    """String; `name` is the Go type used in errors."""

    name: str = "string"
    #: A pointer can be nil, and null makes it nil.
    pointer: bool = False
    #: Name of the embedded struct the field belongs to, if any.
    embedded: str = ""


@dataclass(frozen=True)
class GoUint32:
    name: str = "uint32"


@dataclass(frozen=True)
class GoList:
    item: Any
    name: str


@dataclass(frozen=True)
class GoMap:
    value: Any
    name: str


@dataclass(frozen=True)
class GoStruct:
    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


def zero(shape: Any) -> Any:
    """Return Go's zero value of a schema."""
    if isinstance(shape, GoString):
        return None if shape.pointer else ""
    if isinstance(shape, GoUint32):
        return 0
    if isinstance(shape, GoStruct):
        return {name: zero(each) for name, each in shape.fields.items()}
    return None


def decode(raw: bytes, shape: Any) -> tuple[Any, str]:
    """Decode a document by its schema; return the value and Go's error message."""
    text = raw.decode("utf-8", "surrogateescape")
    try:
        tree = json.loads(
            text,
            object_pairs_hook=_Pairs,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_reject_constant,
        )
    except RecursionError:
        return zero(shape), "exceeded max depth"
    except ValueError:
        return zero(shape), syntax_error(raw)
    reader = _Reader()
    value = reader.read(shape, tree, zero(shape))
    return value, reader.error


class _Pairs(list[tuple[str, Any]]):
    """Object with its keys in order, including repeated ones."""


class _Number(str):
    """Number as it was written."""


def _reject_constant(word: str) -> Any:
    raise ValueError(word)


class _Reader:
    """Decoder that continues after a value of the wrong type and keeps the first error, as Go does."""

    def __init__(self) -> None:
        self.error = ""
        self._struct = ""
        self._path: list[str] = []

    def read(self, shape: Any, tree: Any, prior: Any) -> Any:
        """Read a value; `prior` is the value left by an earlier key of the same name."""
        if tree is None:
            # null leaves strings, numbers and structs unchanged.
            kept = isinstance(shape, (GoUint32, GoStruct)) or (
                isinstance(shape, GoString) and not shape.pointer
            )
            return prior if kept else None
        if isinstance(shape, GoString):
            if type(tree) is str:
                return _SURROGATE.sub("\ufffd", tree)
        elif isinstance(shape, GoUint32):
            return self._number(shape, tree, prior)
        elif isinstance(shape, GoList):
            if type(tree) is list:
                return self._items(shape, tree, prior)
        elif isinstance(tree, _Pairs):
            return self._members(shape, tree, prior)
        return self._fail(_kind(tree), shape, prior)

    def _number(self, shape: GoUint32, tree: Any, prior: Any) -> Any:
        if not isinstance(tree, _Number):
            return self._fail(_kind(tree), shape, prior)
        if not re.fullmatch("[0-9]{1,10}", tree) or int(tree) >= 1 << 32:
            return self._fail(f"number {tree}", shape, prior)
        return int(tree)

    def _items(self, shape: GoList, tree: list[Any], prior: Any) -> list[Any]:
        known = prior or []
        return [
            self.read(shape.item, item, known[place] if place < len(known) else zero(shape.item))
            for place, item in enumerate(tree)
        ]

    def _members(self, shape: GoStruct | GoMap, tree: _Pairs, prior: Any) -> Any:
        if isinstance(shape, GoMap):
            known = dict(prior or {})
            for key, value in tree:
                known[_SURROGATE.sub("\ufffd", key)] = self.read(shape.value, value, zero(shape.value))
            return known
        outer, depth = self._struct, len(self._path)
        folded = {_fold(name): name for name in shape.fields}
        values = dict(prior)
        for key, value in tree:
            name = key if key in shape.fields else folded.get(_fold(key), "")
            if not name:
                continue
            self._struct = shape.short
            part = shape.fields[name]
            inside = part.embedded if isinstance(part, GoString) else ""
            self._path += [inside, name] if inside else [name]
            values[name] = self.read(part, value, values[name])
            del self._path[depth:]
            self._struct = outer
        return values

    def _fail(self, found: str, shape: Any, prior: Any) -> Any:
        if not self.error:
            place = f"struct field {self._struct}.{'.'.join(self._path)}" if self._path else "value"
            self.error = f"json: cannot unmarshal {found} into Go {place} of type {shape.name}"
        return prior


def _kind(tree: Any) -> str:
    if isinstance(tree, bool):
        return "bool"
    if isinstance(tree, _Pairs):
        return "object"
    if isinstance(tree, list):
        return "array"
    return "number" if isinstance(tree, _Number) else "string"


def _fold(key: str) -> str:
    return key.replace("\u017f", "s").replace("\u212a", "k").lower()
