"""Go's error messages for invalid JSON.

`syntax_error` scans byte by byte and is called only for documents known to be invalid.
"""

from __future__ import annotations

from plimsoll.errors import DecodeError

END = "unexpected end of JSON input"
_BLANKS = b" \t\r\n"
_DIGITS = b"0123456789"
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


def syntax_error(raw: bytes) -> str:
    """Return Go's message for the first invalid byte; empty if the document is valid."""
    try:
        _Scan(raw).document()
    except DecodeError as broken:
        return str(broken)
    except RecursionError:
        return "exceeded max depth"
    return ""


class _Scan:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def document(self) -> None:
        self.value()
        if self.blank() is not None:
            self.fail("after top-level value")

    def blank(self) -> int | None:
        """Return the next non-blank byte; None at the end."""
        while self.at < len(self.raw) and self.raw[self.at] in _BLANKS:
            self.at += 1
        return self.raw[self.at] if self.at < len(self.raw) else None

    def next(self) -> int:
        """Return the next byte; after the last, Go sees a blank."""
        self.at += 1
        return self.raw[self.at - 1] if self.at <= len(self.raw) else 0x20

    def fail(self, context: str) -> None:
        if self.at >= len(self.raw):
            raise DecodeError(END)
        raise DecodeError(f"invalid character {_quoted(self.raw[self.at])} {context}")

    def fail_at_last(self, context: str) -> None:
        last = self.raw[self.at - 1] if self.at <= len(self.raw) else 0x20
        raise DecodeError(f"invalid character {_quoted(last)} {context}")

    def value(self) -> None:
        first = self.blank()
        if first == ord("{"):
            self.members()
        elif first == ord("["):
            self.items()
        elif first == ord('"'):
            self.text()
        elif first == ord("-") or (first is not None and first in _DIGITS):
            self.number()
        elif first in _LITERALS:
            self.literal(_LITERALS[first])
        else:
            self.fail("looking for beginning of value")

    def members(self) -> None:
        self.at += 1
        if self.blank() == ord("}"):
            self.at += 1
            return
        while True:
            if self.blank() != ord('"'):
                self.fail("looking for beginning of object key string")
            self.text()
            if self.blank() != ord(":"):
                self.fail("after object key")
            self.at += 1
            self.value()
            if self.blank() == ord("}"):
                break
            if self.blank() != ord(","):
                self.fail("after object key:value pair")
            self.at += 1
        self.at += 1

    def items(self) -> None:
        self.at += 1
        if self.blank() == ord("]"):
            self.at += 1
            return
        while True:
            self.value()
            if self.blank() == ord("]"):
                break
            if self.blank() != ord(","):
                self.fail("after array element")
            self.at += 1
        self.at += 1

    def text(self) -> None:
        self.at += 1
        while (byte := self.next()) != ord('"'):
            if self.at > len(self.raw):
                raise DecodeError(END)
            if byte < 0x20:
                self.fail_at_last("in string literal")
            if byte == ord("\\"):
                self.escape()

    def escape(self) -> None:
        byte = self.next()
        if byte == ord("u"):
            for _ in range(4):
                if self.next() not in b"0123456789abcdefABCDEF":
                    self.fail_at_last("in \\u hexadecimal character escape")
        elif byte not in b'bfnrt\\/"':
            self.fail_at_last("in string escape code")

    def literal(self, word: bytes) -> None:
        self.at += 1
        for wanted in word[1:]:
            if self.next() != wanted:
                self.fail_at_last(f"in literal {word.decode()} (expecting {_quoted(wanted)})")

    def number(self) -> None:
        if self.raw[self.at] == ord("-"):
            self.at += 1
            if self.next() not in _DIGITS:
                self.fail_at_last("in numeric literal")
            self.at -= 1
        if self.raw[self.at] == ord("0"):
            self.at += 1
        else:
            self.digits()
        if self.raw[self.at : self.at + 1] == b".":
            self.at += 1
            if self.next() not in _DIGITS:
                self.fail_at_last("after decimal point in numeric literal")
            self.digits()
        if self.raw[self.at : self.at + 1] in (b"e", b"E"):
            self.at += 1
            if self.raw[self.at : self.at + 1] in (b"+", b"-"):
                self.at += 1
            if self.next() not in _DIGITS:
                self.fail_at_last("in exponent of numeric literal")
            self.digits()

    def digits(self) -> None:
        while self.at < len(self.raw) and self.raw[self.at] in _DIGITS:
            self.at += 1


_NAMES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 0x5C: "\\\\", 0x27: "\\'"}


def _quoted(byte: int) -> str:
    """Quote a byte, interpreted as a character."""
    if byte in _NAMES:
        return f"'{_NAMES[byte]}'"
    if byte < 0x20 or byte == 0x7F:
        return f"'\\x{byte:02x}'"
    if 0x80 <= byte <= 0xA0 or byte == 0xAD:
        return f"'\\u{byte:04x}'"
    return f"'{chr(byte)}'"
