"""Parsed lines of plain block YAML, cached: most lines of a dump occur in several objects.

A line is a shape (columns, dash, key and kind of value), which decides where its value belongs in the tree,
and that value. Equal shapes are one object, so the shapes of two texts are compared by identity.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from plimsoll.common.yaml import resolve_plain


class ValueKind(Enum):
    """Kind of the value that a line gives."""

    SCALAR = 0
    LATER = 1  #: on the following lines, or null
    MAP = 2  #: `{}`
    LIST = 3  #: `[]`
    CLIPPED = 4  #: `|`: a literal text follows
    STRIPPED = 5  #: `|-`
    BLANK = 6  #: none: a blank line or a comment
    NOT_PLAIN = 7  #: none: the line is beyond the fast reader


@dataclass(frozen=True, slots=True, eq=False)
class LineShape:
    """Everything about a line except for its scalar."""

    at: int  #: column of its dash or key
    dash: bool
    key_at: int  #: column of the key
    key: str | None  #: None: a scalar follows the dash
    kind: ValueKind


#: A shape and its scalar; None if the shape's kind is another one. A tuple, because very many are made.
ParsedLine: TypeAlias = "tuple[LineShape, Any]"
#: A scalar, or the kind of a value that is not one.
_Value: TypeAlias = Any

BLANK: Final = LineShape(-1, False, -1, None, ValueKind.BLANK)
#: Shape of lines that the fast reader does not support.
ODD: Final = LineShape(-1, False, -1, None, ValueKind.NOT_PLAIN)
_NO_LINE: Final = (BLANK, None)
_ODD_LINE: Final = (ODD, None)

_KEY = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_./-]{0,300}+):(?: +(.*))?", re.DOTALL)
_ESCAPED = re.compile(r'"(?:[^"\\]|\\["\\n])*+"')
#: Plain scalars without anything special.
_WORD = re.compile(r"[A-Za-z0-9/](?:[A-Za-z0-9/._@+=-]++|:(?=[^ ]))*+")
_QUOTED = re.compile(r"'([^']*+)'")
_INDICATORS = frozenset("!&*|>%@`{}[],#?:\"'=<~")
_MARKED = {
    "{}": ValueKind.MAP,
    "[]": ValueKind.LIST,
    "|": ValueKind.CLIPPED,
    "|-": ValueKind.STRIPPED,
}
_LINES_MAX = 8_000
_SHAPES_MAX = 20_000
_LONG = 200

_Head: TypeAlias = "tuple[int, bool, int, str | None]"


class LineCache(dict[str, ParsedLine]):
    """Parsed lines by their text, in two generations: lines that have become rare are dropped.

    The memory is bounded: two generations of lines that are not too long, and the shapes, which are all
    dropped when there are too many.
    """

    def __init__(self) -> None:
        self._older: dict[str, ParsedLine] = {}
        self._shapes: dict[tuple[_Head, ValueKind], LineShape] = {}
        #: Beginnings of lines, up to the colon.
        self._heads: dict[str, tuple[_Head, LineShape]] = {}

    def __missing__(self, line: str) -> ParsedLine:
        found = self._older.get(line)
        if found is None:
            start, mark, text = line.partition(": ")
            known = self._heads.get(start)
            if known is None:
                found = self._parse(line, start if mark else None)
            elif _WORD.fullmatch(text):
                found = known[1], resolve_plain(text)
            elif quoted := _QUOTED.fullmatch(text):
                found = known[1], quoted[1]
            else:
                found = self._parse(line, start if mark else None)
            if len(line) > _LONG:
                return found
        if len(self) >= _LINES_MAX:
            self._older = dict(self)
            self.clear()
        self[line] = found
        return found

    def _parse(self, line: str, start: str | None) -> ParsedLine:
        if start is not None and (known := self._heads.get(start)) is not None:
            text = line[len(start) + 2 :].lstrip(" ")
            return self._line(known[0], _read_value(text) if text else ValueKind.LATER)
        rest = line.lstrip(" ")
        if not rest or rest[0] == "#":
            return _NO_LINE
        at = key_at = len(line) - len(rest)
        dash = rest[0] == "-" and (len(rest) == 1 or rest[1] == " ")
        if dash:
            inner = rest[1:].lstrip(" ")
            if not inner:
                return self._line((at, True, at, None), ValueKind.LATER)
            if inner[0] == "#" or inner == "-" or inner.startswith("- "):
                return _ODD_LINE
            if _KEY.fullmatch(inner) is None:
                return self._line((at, True, at, None), _read_value(inner))
            key_at += len(rest) - len(inner)
            rest = inner
        found = _KEY.fullmatch(rest)
        if found is None or not isinstance(resolve_plain(found[1]), str):
            return _ODD_LINE  # no key, or one that is not a string in YAML: `y`, `null`, `010`
        head = at, dash, key_at, found[1]
        if start is not None:
            self._heads[start] = head, self._shape(head, ValueKind.SCALAR)
        return self._line(head, _read_value(found[2]) if found[2] else ValueKind.LATER)

    def _line(self, head: _Head, value: _Value) -> ParsedLine:
        if type(value) is not ValueKind:
            return self._shape(head, ValueKind.SCALAR), value
        return _ODD_LINE if value is ValueKind.NOT_PLAIN else (self._shape(head, value), None)

    def _shape(self, head: _Head, kind: ValueKind) -> LineShape:
        """Return the only shape of this kind; the shapes of other lines are forgotten if there are many."""
        found = self._shapes.get((head, kind))
        if found is None:
            if len(self._shapes) >= _SHAPES_MAX:
                self.clear()
                self._older, self._shapes, self._heads = {}, {}, {}
            found = self._shapes[head, kind] = LineShape(*head, kind)
        return found


def _read_value(text: str) -> _Value:
    """Return a scalar on one line, or its kind; NOT_PLAIN if it may continue."""
    if _WORD.fullmatch(text):
        return resolve_plain(text)
    text = text.rstrip(" ")
    first = text[0]
    if first not in _INDICATORS:
        if first == "-" and (len(text) == 1 or text[1] == " " or text.startswith("---")):
            return ValueKind.NOT_PLAIN
        if ": " in text or " #" in text or text[-1] == ":" or text.startswith("..."):
            return ValueKind.NOT_PLAIN
        return resolve_plain(text)
    if first == '"':
        if "\\" not in text:
            closed = len(text) > 1 and text.find('"', 1) == len(text) - 1
            return text[1:-1] if closed else ValueKind.NOT_PLAIN
        return json.loads(text) if _ESCAPED.fullmatch(text) else ValueKind.NOT_PLAIN
    if first == "'":
        inner = text[1:-1]
        fine = len(text) > 1 and text[-1] == "'" and "'" not in inner.replace("''", "")
        return inner.replace("''", "'") if fine else ValueKind.NOT_PLAIN
    return _MARKED.get(text, ValueKind.NOT_PLAIN)
