"""Texts with placeholders: `gpu-{i}`, `{i/4}`, `{capacity.bandwidth}`.

Owns what stands between braces: a name, or a sum of products of names and whole numbers, without parentheses
(`*`, `/` and `%` before `+` and `-`; division rounds down). `{{` and `}}` are braces. A text that is one
placeholder and nothing else has the value of it, a number or a text; any other is a text.
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
#: Numbers past this are a mistake, and must not fill memory.
_MOST = 2**63 - 1


def fill(text: str, variables: Variables) -> str:
    """The text with all placeholders replaced; InputError says which cannot be."""
    if "{" not in text and "}" not in text:  # most texts
        return text
    return "".join(str(value) for value in _pieces(text, variables))


def fill_value(text: str, variables: Variables) -> Value:
    """The same, but a text that is one placeholder is what that stands for."""
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
            raise InputError(f"{text!r} has a lone {found!r}: write {found}{found} for the character itself")
        elif piece.group(1) is not None:
            yield _evaluate(piece.group(1), variables)
        else:
            yield found


def _evaluate(expression: str, variables: Variables) -> Value:
    name = expression.strip()
    if name in variables:
        return variables[name]
    if _NAME.fullmatch(name):
        raise InputError(f"{{{expression}}}: there is no {name!r} here; there is {_known(variables)}")
    number = _Sum(expression, variables).read()
    if abs(number) > _MOST:
        raise InputError(f"{{{expression}}} is past 64 bits: use smaller numbers")
    return number


class _Sum:
    """Reads a sum of products, once."""

    def __init__(self, expression: str, variables: Variables) -> None:
        self._expression = expression
        self._variables = variables
        self._tokens = list(self._split())
        self._place = 0

    def read(self) -> int:
        total = self._product()
        while (sign := self._next("+-")) is not None:
            amount = self._product()
            total = total + amount if sign == "+" else total - amount
        if self._place < len(self._tokens):
            raise self._bad("something is missing between two of its parts")
        return total

    def _product(self) -> int:
        product = self._number()
        while (sign := self._next("*/%")) is not None:
            other = self._number()
            if sign == "*":
                product *= other
            elif other == 0:
                raise self._bad("division by zero")
            else:
                product = product // other if sign == "/" else product % other
            if abs(product) > _MOST:
                raise self._bad("past 64 bits: use smaller numbers")
        return product

    def _number(self) -> int:
        if self._place >= len(self._tokens):
            raise self._bad("a number or a name is missing")
        token = self._tokens[self._place]
        self._place += 1
        if token.isdigit():
            return int(token)
        if token in "+-*/%":
            raise self._bad(f"a number or a name is missing before {token!r}")
        value = self._variables.get(token)
        if value is None:
            raise self._bad(f"there is no {token!r} here; there is {_known(self._variables)}")
        if not isinstance(value, int):
            raise self._bad(f"{token} is a text, {value!r}, and nothing to reckon with")
        return value

    def _next(self, signs: str) -> str | None:
        if self._place < len(self._tokens) and self._tokens[self._place] in signs:
            self._place += 1
            return self._tokens[self._place - 1]
        return None

    def _split(self) -> Iterator[str]:
        place, text = 0, self._expression.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None or len(found.group()) > 20:
                raise self._bad("write names, whole numbers and + - * / % only")
            yield found.group().strip()
            place = found.end()

    def _bad(self, problem: str) -> InputError:
        return InputError(f"{{{self._expression}}}: {problem}")


def _known(variables: Variables) -> str:
    return ", ".join(sorted(variables)) or "nothing"
