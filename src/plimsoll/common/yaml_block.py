"""Fast reader of plain block YAML, as kubectl writes it, line by line.

Supports keys, dashes, scalars on one line, `{}`, `[]` and literal texts (`|`, `|-`), and returns `NOT_PLAIN`
for anything else: quoted text over several lines, anchors, tags, flow style, comments after values, nested
dashes, duplicate keys. Objects of one kind often have the same keys in the same places; such trees are built
by a function that is compiled for their shape (`yaml_shapes.py`).
Guarantees: otherwise the result is that of `load_documents`; a property test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from plimsoll.common.yaml_lines import LineCache, LineShape, ParsedLine, ValueKind
from plimsoll.common.yaml_shapes import MAX_LINES, TreeBuilders

#: Result for text that is not plain.
NOT_PLAIN: Final = object()

_ODD = re.compile("[\t\r\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_USUAL = bytes([*range(32, 127), 10])  # the ASCII characters that are not odd
_DEPTH = 100
_SCALAR, _LATER, _MAP, _LIST, _CLIPPED, _STRIPPED, _BLANK, _NOT_PLAIN = ValueKind
_LINES = LineCache()


def read_plain(text: str) -> Any:
    """Return the tree of one document, or NOT_PLAIN."""
    if text.encode().translate(None, _USUAL) if text.isascii() else _ODD.search(text):
        return NOT_PLAIN
    lines = text.split("\n")
    if lines[0] == "---":
        del lines[0]
    if not lines:
        return None
    if len(lines) > MAX_LINES:
        return _build(lines, lambda number: _LINES[lines[number]])
    parsed = [*map(_LINES.__getitem__, lines)]
    shapes: tuple[LineShape, ...]
    scalars: tuple[Any, ...]
    shapes, scalars = zip(*parsed, strict=True)
    build = _BUILDERS.find(shapes)
    return _build(lines, parsed.__getitem__) if build is None else build(scalars)


def _build(lines: Sequence[str], parsed: Callable[[int], ParsedLine]) -> Any:
    """Build the tree of a text line by line. `parsed` returns the line of a number."""
    number, count = 0, len(lines)
    root: Any = None
    depth: list[int] = []  # columns of the keys or dashes of the open containers
    opened: list[Any] = []
    waiting: Any = None  # the container whose last key or dash has no value yet
    waiting_key: Any = None
    waiting_at = -1
    top: Any = None  # the innermost open container
    keys_at = -1  # the column of its keys; -1: it is a list, or a value is expected first
    while number < count:
        shape, value = parsed(number)
        number += 1
        at, kind, key, dash = shape.at, shape.kind, shape.key, shape.dash
        if at == keys_at and kind is _SCALAR and not dash:  # most lines: one more key of the same mapping
            if key in top:
                return NOT_PLAIN
            top[key] = value
            continue
        if kind is _BLANK:
            continue
        if kind is _NOT_PLAIN:
            return NOT_PLAIN

        # -- find the container of the line
        fresh: Any = None
        if waiting is not None:
            if at > waiting_at or (dash and at == waiting_at and type(waiting) is dict):
                fresh = [] if dash else {}
                waiting[waiting_key] = fresh
            waiting = None
        elif root is None:
            root = fresh = [] if dash else {}
        if fresh is not None:
            if len(opened) > _DEPTH:
                return NOT_PLAIN
            depth.append(at)
            opened.append(fresh)
            top = fresh
        else:
            while depth and (depth[-1] > at or (depth[-1] == at and not dash and type(opened[-1]) is list)):
                depth.pop()
                opened.pop()
            if not depth or depth[-1] != at:
                return NOT_PLAIN
            top = opened[-1]
            if (type(top) is list) is not dash:
                return NOT_PLAIN

        # -- add the value
        place: Any = key
        if dash:
            if key is None:
                place = len(top)
                top.append(None)
            else:
                fresh = {}
                top.append(fresh)
                depth.append(shape.key_at)
                opened.append(fresh)
                top = fresh
        elif key in top:
            return NOT_PLAIN
        if kind is _SCALAR:
            top[place] = value
        elif kind is _LATER:
            top[place] = None
            waiting, waiting_key, waiting_at = top, place, shape.key_at
            keys_at = -1
            continue
        elif kind is _MAP:
            top[place] = {}
        elif kind is _LIST:
            top[place] = []
        else:
            found, number = _literal(kind is _CLIPPED, lines, number, shape.key_at)
            if found is NOT_PLAIN:
                return NOT_PLAIN
            top[place] = found
        keys_at = shape.key_at if type(top) is dict else -1
    return root


def _literal(clipped: bool, lines: Sequence[str], number: int, at: int) -> tuple[Any, int]:
    """Return a literal block text."""
    if number >= len(lines) or not lines[number].strip(" "):
        return NOT_PLAIN, number
    indent = len(lines[number]) - len(lines[number].lstrip(" "))
    if indent <= at:
        return NOT_PLAIN, number
    margin = " " * indent
    kept: list[str] = []
    while number < len(lines):
        line = lines[number]
        if not line.startswith(margin) and line.strip(" "):
            break
        kept.append(line[indent:])
        number += 1
    else:
        if kept[-1]:
            return NOT_PLAIN, number  # the last line is not terminated
    text = "\n".join(kept).rstrip("\n")
    return (text + "\n" if clipped else text), number


def _build_sample(parsed: Sequence[ParsedLine]) -> Any:
    """Build the tree of lines whose texts do not matter, since none of them is part of a literal text."""
    return _build([""] * len(parsed), parsed.__getitem__)


_BUILDERS = TreeBuilders(_build_sample, NOT_PLAIN)
