"""Plain block YAML, the way kubectl writes it, read line by line and several times as fast.

Owns `read_plain`. It knows keys, dashes, scalars on one line, `{}`, `[]` and literal texts (`|`, `|-`), and
gives up (`NOT_PLAIN`) at the first sign of anything else: quotes that go on, anchors, tags, flow style,
comments behind values, keys given twice. Promises: what it does not give up on, `load_documents` reads as the
same tree; a property test compares them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from plimsoll.cluster.yaml import resolve_plain

#: The answer if the text is not that plain.
NOT_PLAIN: Final = object()

_ODD = re.compile("[\t\r\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_KEY = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_./-]{0,300}):(?: +(.*))?", re.DOTALL)
_ESCAPED = re.compile(r'"(?:[^"\\]|\\["\\n])*"')
_INDICATORS = frozenset("!&*|>%@`{}[],#?:\"'=<~")
_DEPTH = 100
_PLAIN_KEYS: set[str] = set()
_PLAIN_KEYS_MAX = 20_000


def read_plain(text: str) -> Any:
    """The tree of one document, or NOT_PLAIN."""
    if _ODD.search(text):
        return NOT_PLAIN
    lines = text.split("\n")
    number, count = 0, len(lines)
    if lines[0] == "---":
        number = 1
    root: Any = None
    depth: list[int] = []  # where the keys or dashes of the open containers stand
    opened: list[Any] = []
    waiting: Any = None  # the container whose last key or dash has no value yet
    waiting_key: Any = None
    waiting_at = -1
    while number < count:
        line = lines[number]
        number += 1
        rest = line.lstrip(" ")
        if not rest or rest[0] == "#":
            continue
        at = len(line) - len(rest)
        dash = rest[0] == "-" and (len(rest) == 1 or rest[1] == " ")

        # -- which container the line belongs to
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
        else:
            while depth and (depth[-1] > at or (depth[-1] == at and not dash and type(opened[-1]) is list)):
                depth.pop()
                opened.pop()
            if not depth or depth[-1] != at or (type(opened[-1]) is list) != dash:
                return NOT_PLAIN
        top = opened[-1]

        # -- dashes
        while dash:
            inner = rest[1:].lstrip(" ")
            if not inner:
                top.append(None)
                waiting, waiting_key, waiting_at = top, len(top) - 1, at
                break
            if inner[0] == "#":
                return NOT_PLAIN
            nested = inner[0] == "-" and (len(inner) == 1 or inner[1] == " ")
            if not nested and _KEY.fullmatch(inner) is None:
                value, number = _value(inner, lines, number, at)
                if value is NOT_PLAIN:
                    return NOT_PLAIN
                top.append(value)
                break
            at += len(rest) - len(inner)
            rest, dash = inner, nested
            fresh = [] if nested else {}
            top.append(fresh)
            if len(opened) > _DEPTH:
                return NOT_PLAIN
            depth.append(at)
            opened.append(fresh)
            top = fresh
        else:
            # -- a key
            found = _KEY.fullmatch(rest)
            if found is None:
                return NOT_PLAIN
            key, given = found.groups()
            if key in top or not _is_plain_key(key):
                return NOT_PLAIN
            if not given:
                top[key] = None
                waiting, waiting_key, waiting_at = top, key, at
                continue
            value, number = _value(given, lines, number, at)
            if value is NOT_PLAIN:
                return NOT_PLAIN
            top[key] = value
    return root


def _value(text: str, lines: list[str], number: int, at: int) -> tuple[Any, int]:
    """A scalar that begins here, and the line after it; NOT_PLAIN if it goes on in some other way."""
    text = text.rstrip(" ")
    first = text[0]
    if first not in _INDICATORS:
        if first == "-" and (len(text) == 1 or text[1] == " " or text.startswith("---")):
            return NOT_PLAIN, number
        if ": " in text or " #" in text or text[-1] == ":" or text.startswith("..."):
            return NOT_PLAIN, number
        return resolve_plain(text), number
    if first == '"':
        if "\\" not in text:
            fine = len(text) > 1 and text.find('"', 1) == len(text) - 1
            return (text[1:-1] if fine else NOT_PLAIN), number
        return (json.loads(text) if _ESCAPED.fullmatch(text) else NOT_PLAIN), number
    if first == "'":
        inner = text[1:-1]
        fine = len(text) > 1 and text[-1] == "'" and "'" not in inner.replace("''", "")
        return (inner.replace("''", "'") if fine else NOT_PLAIN), number
    if text == "{}":
        return {}, number
    if text == "[]":
        return [], number
    if text in ("|", "|-"):
        return _literal(text, lines, number, at)
    return NOT_PLAIN, number


def _literal(header: str, lines: list[str], number: int, at: int) -> tuple[Any, int]:
    """A text of several lines, kept as they are."""
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
            return NOT_PLAIN, number  # the last line has no end
    text = "\n".join(kept).rstrip("\n")
    return (text + "\n" if header == "|" else text), number


def _is_plain_key(key: str) -> bool:
    """Whether a key is the text that it looks like; `y`, `null` and `010` are not."""
    if key in _PLAIN_KEYS:
        return True
    if not isinstance(resolve_plain(key), str):
        return False
    if len(_PLAIN_KEYS) < _PLAIN_KEYS_MAX:
        _PLAIN_KEYS.add(key)
    return True
