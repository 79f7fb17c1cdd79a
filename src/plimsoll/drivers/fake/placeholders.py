"""Placeholders in strings: `gpu-{i}`, `{i/4}`, `{capacity.bandwidth}`.

A placeholder is a name, or a sum of products of names and integers without parentheses (`*`, `/` and `%` bind
tighter than `+` and `-`; division rounds down). `{{` and `}}` are literal braces. A string that consists of
one placeholder has its value, an integer or a string; any other is a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from plimsoll.errors import InputError

Value: TypeAlias = "int | str"
Variables: TypeAlias = Mapping[str, Value]

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(\.[^\s{}]+)?", re.ASCII)
_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z][A-Za-z0-9]*)|([-+*/%]))", re.ASCII)
#: Limit on numbers, to catch mistakes before they use up memory.
_MAX_VALUE = 2**63 - 1


def fill(text: str, variables: Variables) -> str:
    """Replace all placeholders; raises InputError for unknown ones."""
    if "{" not in text and "}" not in text:  # most texts
        return text
    return "".join(str(value) for value in _pieces(text, variables))


def fill_value(text: str, variables: Variables) -> Value:
    """Replace placeholders; a string that is one placeholder keeps the type of its value."""
    if "{" not in text and "}" not in text:
        return text
    pieces = list(_pieces(text, variables))
    if len(pieces) == 1:
        return pieces[0]
    return "".join(map(str, pieces))


def _pieces(text: str, variables: Variables) -> Iterator[Value]:
    for piece in _PIECE.finditer(text):
        found = piece.group()
        if found in ("{{", "}}"):
            yield found[0]
        elif found in ("{", "}"):
            raise InputError(f"{text!r} has an unmatched {found!r}: write {found}{found} for a literal brace")
        elif piece.group(1) is not None:
            yield _evaluate(piece.group(1), variables)
        else:
            yield found


def _evaluate(expression: str, variables: Variables) -> Value:
    name = expression.strip()
    if name in variables:
        return variables[name]
    if _NAME.fullmatch(name):
        raise InputError(f"{{{expression}}}: unknown name {name!r}; known names: {_list_names(variables)}")
    number = _SumParser(expression, variables).read()
    if abs(number) > _MAX_VALUE:
        raise InputError(f"{{{expression}}} exceeds 64 bits: use smaller numbers")
    return number


class _SumParser:
    """Parser and evaluator of one sum of products."""

    def __init__(self, expression: str, variables: Variables) -> None:
        self._expression = expression
        self._variables = variables
        self._tokens = list(self._split())
        self._position = 0

    def read(self) -> int:
        total = self._product()
        while (sign := self._next("+-")) is not None:
            amount = self._product()
            total = total + amount if sign == "+" else total - amount
        if self._position < len(self._tokens):
            raise self._error("an operator is missing")
        return total

    def _product(self) -> int:
        product = self._number()
        while (sign := self._next("*/%")) is not None:
            other = self._number()
            if sign == "*":
                product *= other
            elif other == 0:
                raise self._error("division by zero")
            else:
                product = product // other if sign == "/" else product % other
            if abs(product) > _MAX_VALUE:
                raise self._error("exceeds 64 bits: use smaller numbers")
        return product

    def _number(self) -> int:
        if self._position >= len(self._tokens):
            raise self._error("a number or a name is missing")
        token = self._tokens[self._position]
        self._position += 1
        if token.isdigit():
            return int(token)
        if token in "+-*/%":
            raise self._error(f"a number or a name is missing before {token!r}")
        value = self._variables.get(token)
        if value is None:
            raise self._error(f"unknown name {token!r}; known names: {_list_names(self._variables)}")
        if not isinstance(value, int):
            raise self._error(f"{token} is a string, {value!r}, not a number")
        return value

    def _next(self, signs: str) -> str | None:
        if self._position < len(self._tokens) and self._tokens[self._position] in signs:
            self._position += 1
            return self._tokens[self._position - 1]
        return None

    def _split(self) -> Iterator[str]:
        position, text = 0, self._expression.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None or len(found.group()) > 20:
                raise self._error("use only names, integers and + - * / %")
            yield found.group().strip()
            position = found.end()

    def _error(self, problem: str) -> InputError:
        return InputError(f"{{{self._expression}}}: {problem}")


def _list_names(variables: Variables) -> str:
    return ", ".join(sorted(variables)) or "none"
