"""Lexer: operators, names, numbers, quoted strings and the decoding of their escapes.

Reads each character a bounded number of times and raises CelCompileError with the offset of the first
character that does not start a token. Implements the CEL lexical rules as in cel-go v0.26: longest match,
`//` comments, no names in backticks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from plimsoll.errors import CelCompileError

# Kinds of tokens with text; operators and keywords are their own kind.
NAME, INT, UINT, FLOAT, STRING, BYTES, END = "name", "int", "uint", "float", "string", "bytes", "end"

_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_STRING = "|".join(
    (
        r'[rR]"""(?s:.*?)"""',
        r"[rR]'''(?s:.*?)'''",
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    )
)
# The order implements longest match: no later alternative can match more than an earlier one.
_TOKEN = re.compile(
    rf"""
    (?P<skip>[\t\ \r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB](?:{_STRING}))
    |(?P<string>{_STRING})
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<op>==|!=|<=|>=|&&|\|\||[\[\]{{}}().,\-!?:+*/%<>])
    """,
    re.VERBOSE,
)
_KEYWORDS = frozenset({"in", "true", "false", "null"})


class Token(NamedTuple):
    kind: str
    text: str
    pos: int


def split(source: str) -> list[Token]:
    """Return the tokens of `source`, ending with one of kind END."""
    tokens: list[Token] = []
    pos, end = 0, len(source)
    match = _TOKEN.match
    while pos < end:
        found = match(source, pos)
        if found is None:
            raise _invalid_character(source, pos)
        kind = found.lastgroup or ""
        text = found.group()
        if kind == "op" or text in _KEYWORDS:
            tokens.append(Token(text, text, pos))
        elif kind != "skip":
            tokens.append(Token(kind, text, pos))
        pos = found.end()
    tokens.append(Token(END, "", end))
    return tokens


def _invalid_character(source: str, pos: int) -> CelCompileError:
    char = source[pos]
    if char == "`":
        message = 'names in backticks are not supported here: write a["name"] instead'
    elif char in "\"'":
        message = "string without a closing quote, or with a wrong escape"
    elif char in "&|=":
        message = f"unknown operator {char!r}: did you mean {char * 2!r}?"
    else:
        message = f"character {char!r} is not allowed here"
    return CelCompileError(message, pos)


def unquote(text: str, pos: int) -> str:
    """Return the value of a string token."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body
    try:
        return _ANY_ESCAPE.sub(_decode_char, body)
    except ValueError:
        raise CelCompileError("string escape is not a valid Unicode code point", pos) from None


def unquote_bytes(text: str, pos: int) -> bytes:
    """Return the value of a bytes token: hex and octal escapes are bytes, other characters are UTF-8."""
    body, raw = _body(text[1:])
    if raw or "\\" not in body:
        return body.encode("utf-8")
    result = bytearray()
    last = 0
    for found in _ANY_ESCAPE.finditer(body):
        result += body[last : found.start()].encode("utf-8")
        code = found.group()
        if code[1] in "uU":
            raise CelCompileError("bytes literals have no \\u or \\U escapes: use \\x", pos)
        if code[1] in "xX":
            result.append(int(code[2:], 16))
        elif code[1] in "0123":
            result.append(int(code[1:], 8))
        else:
            result += _SIMPLE[code[1]].encode()
        last = found.end()
    result += body[last:].encode("utf-8")
    return bytes(result)


_ANY_ESCAPE = re.compile(_ESCAPE)
_SIMPLE = dict(zip("abfnrtv\"'\\?`", "\a\b\f\n\r\t\v\"'\\?`", strict=True))


def _body(text: str) -> tuple[str, bool]:
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    # Line ends of a value are always \n.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) >= 6 and text[:3] in ('"""', "'''"):
        return text[3:-3], raw
    return text[1:-1], raw


def _decode_char(found: re.Match[str]) -> str:
    code = found.group()
    if code[1] in "xXuU":
        value = int(code[2:], 16)
    elif code[1] in "0123":
        value = int(code[1:], 8)
    else:
        return _SIMPLE[code[1]]
    if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
        raise ValueError("no such code point")
    return chr(value)
