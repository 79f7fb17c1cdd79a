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

from plimsoll.api.names import label_key, label_value
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.status import bad_request

_TOKEN = re.compile(r"\s*(?:(!=|==|=|>|<|!|,|\(|\))|([^\s!=><,()]+))")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """Condition on one label: `operator` is in, notin, exists, absent, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "absent":
            return value is None
        number, (bound,) = _parse_int(value), (int(v) for v in self.values)
        if number is None:
            return False
        return number > bound if self.operator == "gt" else number < bound


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """Conjunction of label requirements; an empty one matches everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)


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


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
_MATCH_NOTHING = LabelMatcher((LabelRequirement("", "in"),))


def parse_label_selector(text: str) -> LabelMatcher:
    """Parse a label selector; ApiError 400 describes the error."""
    tokens = _tokens(text)
    requirements: list[LabelRequirement] = []
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
            requirements.append(LabelRequirement(key, "absent" if absent else "exists"))
        elif operator in ("=", "==", "!="):
            take()
            value = take() if peek() not in ("", ",") else ""
            kind = "notin" if operator == "!=" else "in"
            requirements.append(LabelRequirement(key, kind, frozenset([_value(value, fail)])))
        elif operator in (">", "<"):
            take()
            value = take()
            if _parse_int(value) is None:
                raise fail(f"{value!r} is no integer for {operator!r}")
            requirements.append(LabelRequirement(key, "gt" if operator == ">" else "lt", frozenset([value])))
        elif operator in ("in", "notin"):
            take()
            requirements.append(LabelRequirement(key, operator, _values(take, peek, fail)))
        else:
            raise fail(f"found {operator!r}, expected: in, notin, =, ==, !=, >, <")
        if position < len(tokens) and take() != ",":
            raise fail(f"found {tokens[position - 1]!r}, expected: ',' or the end")
        if position == len(tokens) and tokens[-1] == ",":
            raise fail("found the end, expected a label key")
    return LabelMatcher(tuple(requirements))


def read_selector(tree: Any) -> LabelMatcher:
    """Read a LabelSelector object (matchLabels, matchExpressions); a malformed one matches nothing."""
    match_labels = tree.get("matchLabels") or {} if isinstance(tree, Mapping) else None
    expressions = tree.get("matchExpressions") or [] if isinstance(tree, Mapping) else None
    if not isinstance(match_labels, Mapping) or not isinstance(expressions, list):
        return _MATCH_NOTHING
    requirements = [
        LabelRequirement(key, "in", frozenset([str(value)])) for key, value in match_labels.items()
    ]
    for entry in expressions:
        key, operator, values = (
            (entry.get("key"), _OPERATORS.get(str(entry.get("operator"))), entry.get("values") or [])
            if isinstance(entry, Mapping)
            else (None, None, None)
        )
        if not isinstance(key, str) or operator is None or not isinstance(values, list):
            return _MATCH_NOTHING
        requirements.append(LabelRequirement(key, operator, frozenset(map(str, values))))
    return LabelMatcher(tuple(requirements))


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
) -> frozenset[str]:
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
            return frozenset(values)
        if end != ",":
            raise fail(f"found {end!r}, expected: ',' or ')'")


def _value(value: str, fail: Callable[[str], Exception]) -> str:
    errors = label_value(value)
    if errors:
        raise fail(f"value {value!r}: {errors[0]}")
    return value


def _parse_int(value: str | None) -> int | None:
    try:
        number = int(value or "")
    except ValueError:
        return None
    return number if -(2**63) <= number < 2**63 else None


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
