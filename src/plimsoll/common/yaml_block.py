"""Fast reader of plain block YAML, as kubectl writes it, line by line.

Supports keys, dashes, scalars on one line, `{}`, `[]` and literal texts (`|`, `|-`), and returns `NOT_PLAIN`
for anything else: quoted text over several lines, anchors, tags, flow style, comments after values, nested
dashes, duplicate keys. Parsed lines are cached, since most lines of a dump occur in several objects.
Guarantees: otherwise the result is that of `load_documents`; a property test compares them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeAlias

from plimsoll.common.yaml import resolve_plain

#: Result for text that is not plain.
NOT_PLAIN: Final = object()

_ODD = re.compile("[\t\r\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_USUAL = bytes([*range(32, 127), 10])  # the ASCII characters that are not odd
_KEY = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_./-]{0,300}):(?: +(.*))?", re.DOTALL)
_ESCAPED = re.compile(r'"(?:[^"\\]|\\["\\n])*+"')
_WORD = re.compile(r"[A-Za-z0-9/][A-Za-z0-9/._-]*")  # scalars without anything special
_INDICATORS = frozenset("!&*|>%@`{}[],#?:\"'=<~")
_DEPTH = 100
#: Values that are created for every line.
_MAP, _LIST, _KEPT, _CLIPPED, _LATER = (object() for _ in range(5))
_MARKED = {"{}": _MAP, "[]": _LIST, "|": _CLIPPED, "|-": _KEPT}


#: Parsed line: column of its dash or key, whether it has a dash, column of the key, key (None: a scalar
#: follows the dash), value, and whether the value is a scalar. A tuple, because very many are made.
_Line: TypeAlias = "tuple[int, bool, int, str | None, Any, bool]"

#: Cache of parsed lines: the first ones that are not too long.
_SEEN: dict[str, Any] = {}
_SEEN_MAX = 30_000
#: Cache of the beginnings of lines, up to the colon: column, dash, column of the key, key.
_HEADS: dict[str, tuple[int, bool, int, str]] = {}
_HEADS_MAX = 10_000
_LONG = 200


def read_plain(text: str) -> Any:
    """Return the tree of one document, or NOT_PLAIN."""
    if text.encode().translate(None, _USUAL) if text.isascii() else _ODD.search(text):
        return NOT_PLAIN
    lines = text.split("\n")
    number, count = 0, len(lines)
    if lines[0] == "---":
        number = 1
    root: Any = None
    depth: list[int] = []  # columns of the keys or dashes of the open containers
    opened: list[Any] = []
    waiting: Any = None  # the container whose last key or dash has no value yet
    waiting_key: Any = None
    waiting_at = -1
    top: Any = None  # the innermost open container
    keys_at = -1  # the column of its keys; -1: it is a list, or a value is expected first
    known = _SEEN.get
    while number < count:
        line = lines[number]
        number += 1
        parsed = known(line)
        if parsed is None:
            if not line:
                continue
            parsed = _parse_line(line)
            if parsed is NOT_PLAIN:
                return NOT_PLAIN
        if parsed is _BLANK:
            continue
        at, dash, key_at, key, value, plain = parsed
        if at == keys_at and plain and not dash:  # most lines: one more key of the same mapping
            if key in top:
                return NOT_PLAIN
            top[key] = value
            continue

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
        if dash:
            if key is None:
                key = len(top)
                top.append(None)
            else:
                fresh = {}
                top.append(fresh)
                depth.append(key_at)
                opened.append(fresh)
                top = fresh
        elif key in top:
            return NOT_PLAIN
        if plain:
            top[key] = value
        elif value is _LATER:
            top[key] = None
            waiting, waiting_key, waiting_at = top, key, key_at
            keys_at = -1
            continue
        elif value is _MAP:
            top[key] = {}
        elif value is _LIST:
            top[key] = []
        else:
            found, number = _literal(value is _CLIPPED, lines, number, key_at)
            if found is NOT_PLAIN:
                return NOT_PLAIN
            top[key] = found
        keys_at = key_at if type(top) is dict else -1
    return root


_BLANK: Final = object()


def _parse_line(line: str) -> Any:
    """Parse a line, cached."""
    parsed = _parse(line)
    if parsed is not NOT_PLAIN and len(line) < _LONG and len(_SEEN) < _SEEN_MAX:
        _SEEN[line] = parsed
    return parsed


def _parse(line: str) -> Any:
    head, mark, text = line.partition(": ")
    begin = _HEADS.get(head) if mark else None
    if begin is not None:
        text = text.lstrip(" ")
        return _line(*begin, _value(text) if text else _LATER)
    rest = line.lstrip(" ")
    if not rest or rest[0] == "#":
        return _BLANK
    at = key_at = len(line) - len(rest)
    dash = rest[0] == "-" and (len(rest) == 1 or rest[1] == " ")
    if dash:
        inner = rest[1:].lstrip(" ")
        if not inner:
            return at, True, at, None, _LATER, False
        if inner[0] == "#" or inner == "-" or inner.startswith("- "):
            return NOT_PLAIN
        if _KEY.fullmatch(inner) is None:
            return _line(at, True, at, None, _value(inner))
        key_at += len(rest) - len(inner)
        rest = inner
    found = _KEY.fullmatch(rest)
    if found is None or not isinstance(resolve_plain(found[1]), str):
        return NOT_PLAIN  # no key, or one that is not a string in YAML: `y`, `null`, `010`
    if mark and len(_HEADS) < _HEADS_MAX:
        _HEADS[head] = at, dash, key_at, found[1]
    return _line(at, dash, key_at, found[1], _value(found[2]) if found[2] else _LATER)


def _line(at: int, dash: bool, key_at: int, key: str | None, value: Any) -> _Line | object:
    if type(value) is not object:  # no marker
        return at, dash, key_at, key, value, True
    return NOT_PLAIN if value is NOT_PLAIN else (at, dash, key_at, key, value, False)


def _value(text: str) -> Any:
    """Return a scalar on one line, or a marker; NOT_PLAIN if it may continue."""
    if _WORD.fullmatch(text):
        return resolve_plain(text)
    text = text.rstrip(" ")
    first = text[0]
    if first not in _INDICATORS:
        if first == "-" and (len(text) == 1 or text[1] == " " or text.startswith("---")):
            return NOT_PLAIN
        if ": " in text or " #" in text or text[-1] == ":" or text.startswith("..."):
            return NOT_PLAIN
        return resolve_plain(text)
    if first == '"':
        if "\\" not in text:
            return text[1:-1] if len(text) > 1 and text.find('"', 1) == len(text) - 1 else NOT_PLAIN
        return json.loads(text) if _ESCAPED.fullmatch(text) else NOT_PLAIN
    if first == "'":
        inner = text[1:-1]
        fine = len(text) > 1 and text[-1] == "'" and "'" not in inner.replace("''", "")
        return inner.replace("''", "'") if fine else NOT_PLAIN
    return _MARKED.get(text, NOT_PLAIN)


def _literal(clipped: bool, lines: list[str], number: int, at: int) -> tuple[Any, int]:
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
