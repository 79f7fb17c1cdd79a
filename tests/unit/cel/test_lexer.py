"""Lexer: tokens and literals."""

from __future__ import annotations

import pytest

from plimsoll.cel.syntax import lexer
from plimsoll.errors import CelCompileError


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("", ""),
        ("a.b", "name . name"),
        ("a&&b||!c", "name && name || ! name"),
        ("x in y", "name in name"),
        ("inx truest nullable", "name name name"),
        ("true false null", "true false null"),
        ("1 1u 0xFu 0xF 07", "int uint uint int int"),
        ("1.5 .5 1e3 1E-3 2.5e+7", "float float float float float"),
        # A dot without digits behind it is not part of a number, nor is a capital 0X.
        ("1.e5", "int . name"),
        ("1.2.3", "float float"),
        ("0XF", "int name"),
        ("1_000", "int name"),
        ("a<=b>=c==d!=e", "name <= name >= name == name != name"),
        ("// all of it\n1 // and this", "int"),
        ("\t\r\n\f 1", "int"),
        (r"'a' \"b\" r'c' b'd' br'e' B\"f\"".replace("\\", ""), "string string string bytes bytes bytes"),
        ("rb'a'", "name string"),
        ("'''a'b''c''' \"\"\"d\ne\"\"\"", "string string"),
        ("r'''\\'''", "string"),
    ],
)
def test_kinds(source: str, kinds: str) -> None:
    assert " ".join(token.kind for token in lexer.split(source)) == f"{kinds} end".strip()


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ("a & b", 2),
        ("a | b", 2),
        ("a = b", 2),
        ("$x", 0),
        ("#", 0),
        ("a @b", 2),
        ("a.`b`", 2),
        ("'open", 0),
        ("'two\nlines'", 0),
        ("'\\q'", 0),
        ("'\\x1'", 0),
        ("'\\u12'", 0),
        ("'\\400'", 0),
        ("'a\\'", 0),
        ("1\u00a0+ 1", 1),
        ("é", 0),
    ],
)
def test_an_invalid_character_is_refused_with_its_position(source: str, position: int) -> None:
    with pytest.raises(CelCompileError) as caught:
        lexer.split(source)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'plain'", "plain"),
        (r"'\a\b\f\n\r\t\v\\\'\"\`\?'", "\a\b\f\n\r\t\v\\'\"`?"),
        (r"'\x41\X42\103\u0044\U00000045'", "ABCDE"),
        (r"'\xe9'", "é"),
        (r"r'\n'", r"\n"),
        (r"R'''\'''", "\\"),
        ("'''a'b'''", "a'b"),
        ('"""a\r\nb\rc"""', "a\nb\nc"),
        ("''", ""),
        ("''''''", ""),
        ("'\U0001f600'", "\U0001f600"),
    ],
)
def test_strings(text: str, value: str) -> None:
    assert [token.kind for token in lexer.split(text)] == [lexer.STRING, lexer.END]
    assert lexer.unquote(text, 0) == value


@pytest.mark.parametrize("text", [r"'\ud800'", r"'\U00110000'", r"'\Uffffffff'"])
def test_invalid_code_points(text: str) -> None:
    with pytest.raises(CelCompileError):
        lexer.unquote(text, 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("b'abc'", b"abc"),
        ("b'é'", b"\xc3\xa9"),
        (r"b'\xe9\377\n'", b"\xe9\xff\n"),
        (r"br'\xe9'", rb"\xe9"),
        (r"b'x\t\x00y'", b"x\t\x00y"),
        ('b"""a\r\nb"""', b"a\nb"),
    ],
)
def test_bytes(text: str, value: bytes) -> None:
    assert [token.kind for token in lexer.split(text)] == [lexer.BYTES, lexer.END]
    assert lexer.unquote_bytes(text, 0) == value


@pytest.mark.parametrize("text", [r"b'\u0041'", r"b'\U00000041'"])
def test_byte_literals_have_no_code_point_escapes(text: str) -> None:
    with pytest.raises(CelCompileError):
        lexer.unquote_bytes(text, 0)
