"""Label and field selectors of list, watch and deletecollection.

Parses and matches them with the errors of the API server. A label selector is `a=b, c!=d, e in (x,y), f notin
(z), g, !h, i>1, j<2`; a field selector is `path=value, path!=value` over the selectable fields of the
resource.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.label_selection import (
    ABSENT,
    EXISTS,
    GREATER,
    IN,
    LESS,
    MATCH_NOTHING,
    NOT_IN,
    CompiledLabelRequirement,
    CompiledLabelSelector,
    SelectorProblem,
    compile_label_selector,
    parse_int64,
)
from plimsoll.api.meta import LabelSelector
from plimsoll.api.names import label_key, label_value
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.status import bad_request
from plimsoll.errors import DecodeError

_TOKEN = re.compile(r"\s*(?:(!=|==|=|>|<|!|,|\(|\))|([^\s!=><,()]+))")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Conjunction of conditions (field label, must be equal, value)."""

    conditions: tuple[tuple[str, bool, str], ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(path, "") == value) is equal for path, equal, value in self.conditions)

    def __bool__(self) -> bool:
        return bool(self.conditions)

    def exact(self, path: str) -> str | None:
        """Return the one value that this selector requires of a field, or None."""
        for found, equal, value in self.conditions:
            if found == path and equal:
                return value
        return None


def parse_label_selector(text: str) -> CompiledLabelSelector:
    """Parse a label selector; ApiError 400 describes the error."""
    tokens = _tokens(text)
    requirements: list[CompiledLabelRequirement] = []
    position = 0

    def fail(what: str) -> Exception:
        return bad_request(f"unable to parse requirement: {what} in label selector {text!r}")

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def take() -> str:
        nonlocal position
        position += 1
        return tokens[position - 1] if position <= len(tokens) else ""

    while position < len(tokens):
        absent = peek() == "!"
        if absent:
            take()
        key = take()
        if not key or key in "=!=<>(),":
            raise fail(f"found {key!r}, expected a label key")
        errors = label_key(key)
        if errors:
            raise fail(f"key {key!r}: {errors[0]}")
        operator = peek()
        if absent or operator in ("", ","):
            requirements.append(CompiledLabelRequirement(key, ABSENT if absent else EXISTS))
        elif operator in ("=", "==", "!="):
            take()
            value = take() if peek() not in ("", ",") else ""
            kind = NOT_IN if operator == "!=" else IN
            requirements.append(CompiledLabelRequirement(key, kind, (_value(value, fail),)))
        elif operator in (">", "<"):
            take()
            value = take()
            if parse_int64(value) is None:
                raise fail(f"{value!r} is no integer for {operator!r}")
            kind = GREATER if operator == ">" else LESS
            requirements.append(CompiledLabelRequirement(key, kind, (value,)))
        elif operator in ("in", "notin"):
            take()
            kind = IN if operator == "in" else NOT_IN
            requirements.append(CompiledLabelRequirement(key, kind, _values(take, peek, fail)))
        else:
            raise fail(f"found {operator!r}, expected: in, notin, =, ==, !=, >, <")
        if position < len(tokens) and take() != ",":
            raise fail(f"found {tokens[position - 1]!r}, expected: ',' or the end")
        if position == len(tokens) and tokens[-1] == ",":
            raise fail("found the end, expected a label key")
    return CompiledLabelSelector(tuple(requirements))


def read_selector(tree: Any) -> CompiledLabelSelector:
    """Read a LabelSelector object (matchLabels, matchExpressions); a malformed one matches nothing."""
    if not isinstance(tree, Mapping):
        return MATCH_NOTHING
    try:
        compiled = compile_label_selector(convert(tree, LabelSelector))
    except DecodeError:
        return MATCH_NOTHING
    return MATCH_NOTHING if isinstance(compiled, SelectorProblem) else compiled


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    while True:
        position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
        if position == len(text):
            return tokens
        match = _TOKEN.match(text, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: unexpected {text[position]!r} in label selector")
        tokens.append(match.group(1) or match.group(2))
        position = match.end()


def _values(
    take: Callable[[], str], peek: Callable[[], str], fail: Callable[[str], Exception]
) -> tuple[str, ...]:
    if take() != "(":
        raise fail("expected '(' after in or notin")
    values = set()
    while True:
        if peek() in (",", ")"):
            values.add("")
        else:
            values.add(_value(take(), fail))
        end = take()
        if end == ")":
            return tuple(sorted(values))
        if end != ",":
            raise fail(f"found {end!r}, expected: ',' or ')'")


def _value(value: str, fail: Callable[[str], Exception]) -> str:
    errors = label_value(value)
    if errors:
        raise fail(f"value {value!r}: {errors[0]}")
    return value


def parse_field_selector(text: str, resource: Resource) -> FieldSelector:
    """Parse a field selector over the selectable fields of a resource; ApiError 400 for other fields."""
    conditions = []
    for part in _split(text):
        match = re.fullmatch(r"\s*([^=!\s]+)\s*(!=|==|=)(.*)", part, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: {part!r}; can't understand {part!r}")
        label, operator, value = match.groups()
        if resource.field_label_path(label) is None:
            raise bad_request(resource.field_label_error(label))
        conditions.append((label, operator != "!=", _unescape(value)))
    return FieldSelector(tuple(conditions))


def _split(text: str) -> list[str]:
    """Split at unescaped commas; empty parts are dropped."""
    return [part for part in re.findall(r"(?:\\.|[^,\\])+|\\$", text, re.DOTALL) if part.strip()]


def _unescape(value: str) -> str:
    if re.search(r"\\(?![\\,=])", value):
        raise bad_request(f"invalid field selector: bad escape in {value!r}")
    if re.search(r"(?<!\\)=", value):
        raise bad_request(f"invalid field selector: unescaped '=' in {value!r}")
    return re.sub(r"\\(.)", r"\1", value)
