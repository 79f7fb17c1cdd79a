"""JSON as Go's encoding/json writes and reads it, for files that a kubelet shares with us.

Owns the escaping of texts, and decoding along a shape with Go's leniency (keys in any case, unknown keys,
null for nothing, broken UTF-8 and lone surrogates replaced) and Go's words for what is wrong. Section 3 of
the node protocols.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.node.claims.go_syntax import syntax_error

_SPECIAL = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONE = re.compile("[\ud800-\udfff]")


def quote(text: str) -> str:
    """A text as Go writes it, `<`, `>` and `&` escaped."""
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = 0xFFFD if _LONE.match(character) else ord(character)
    return _SHORT.get(character) or f"\\u{code:04x}"


# -- what a value should look like


@dataclass(frozen=True)
class Text:
    """A text; `name` is the Go type that errors name."""

    name: str = "string"
    #: A pointer can be nil, and null makes it so.
    pointer: bool = False
    #: The struct it is embedded with, if it is.
    embedded: str = ""


@dataclass(frozen=True)
class Uint32:
    name: str = "uint32"


@dataclass(frozen=True)
class Listing:
    item: Any
    name: str


@dataclass(frozen=True)
class Dictionary:
    value: Any
    name: str


@dataclass(frozen=True)
class Struct:
    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


def zero(shape: Any) -> Any:
    """What Go has where nothing was said."""
    if isinstance(shape, Text):
        return None if shape.pointer else ""
    if isinstance(shape, Uint32):
        return 0
    if isinstance(shape, Struct):
        return {name: zero(each) for name, each in shape.fields.items()}
    return None


def decode(raw: bytes, shape: Any) -> tuple[Any, str]:
    """A document by its shape, and Go's words for what is wrong with it."""
    text = raw.decode("utf-8", "surrogateescape")
    try:
        tree = json.loads(
            text, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_refuse
        )
    except RecursionError:
        return zero(shape), "exceeded max depth"
    except ValueError:
        return zero(shape), syntax_error(raw)
    reader = _Reader()
    value = reader.read(shape, tree, zero(shape))
    return value, reader.error


class _Pairs(list[tuple[str, Any]]):
    """An object with its keys in order, repeated ones too."""


class _Number(str):
    """A number as it was written."""


def _refuse(word: str) -> Any:
    raise ValueError(word)


class _Reader:
    """Goes on after a value of the wrong type and remembers the first, as Go does."""

    def __init__(self) -> None:
        self.error = ""
        self._struct = ""
        self._path: list[str] = []

    def read(self, shape: Any, tree: Any, prior: Any) -> Any:
        """A value; `prior` is what an earlier key of the same name left there."""
        if tree is None:
            # null leaves texts, numbers and structs alone.
            kept = isinstance(shape, (Uint32, Struct)) or (isinstance(shape, Text) and not shape.pointer)
            return prior if kept else None
        if isinstance(shape, Text):
            if type(tree) is str:
                return _LONE.sub("\ufffd", tree)
        elif isinstance(shape, Uint32):
            return self._number(shape, tree, prior)
        elif isinstance(shape, Listing):
            if type(tree) is list:
                return self._items(shape, tree, prior)
        elif isinstance(tree, _Pairs):
            return self._members(shape, tree, prior)
        return self._wrong(_kind(tree), shape, prior)

    def _number(self, shape: Uint32, tree: Any, prior: Any) -> Any:
        if not isinstance(tree, _Number):
            return self._wrong(_kind(tree), shape, prior)
        if not re.fullmatch("[0-9]{1,10}", tree) or int(tree) >= 1 << 32:
            return self._wrong(f"number {tree}", shape, prior)
        return int(tree)

    def _items(self, shape: Listing, tree: list[Any], prior: Any) -> list[Any]:
        known = prior or []
        return [
            self.read(shape.item, item, known[place] if place < len(known) else zero(shape.item))
            for place, item in enumerate(tree)
        ]

    def _members(self, shape: Struct | Dictionary, tree: _Pairs, prior: Any) -> Any:
        if isinstance(shape, Dictionary):
            known = dict(prior or {})
            for key, value in tree:
                known[_LONE.sub("\ufffd", key)] = self.read(shape.value, value, zero(shape.value))
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
            inside = part.embedded if isinstance(part, Text) else ""
            self._path += [inside, name] if inside else [name]
            values[name] = self.read(part, value, values[name])
            del self._path[depth:]
            self._struct = outer
        return values

    def _wrong(self, found: str, shape: Any, prior: Any) -> Any:
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
