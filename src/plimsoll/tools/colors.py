"""Colours for people at a terminal, and none for anybody else.

Owns `Paint`. A text that is painted has the same characters, so that columns are laid out before painting.
Names and messages come from whoever wrote the objects: `printable` and `Paint.sanitize` take out of them what
a terminal would obey, and whatever is written goes through one of the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: The codes of our own colours.
_OURS = re.compile("(\x1b\\[(?:0|1|2|31|32|33|34)m)")


def printable(text: str) -> str:
    """A text for a terminal: what moves the cursor, hides things or turns them round is a question mark."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


@dataclass(frozen=True, slots=True)
class Paint:
    """How lines are written: with colours or without, and for how wide a screen."""

    colour: bool = False
    width: int = 100

    def bold(self, text: str) -> str:
        return self._with("1", text)

    def dim(self, text: str) -> str:
        return self._with("2", text)

    def red(self, text: str) -> str:
        return self._with("31", text)

    def green(self, text: str) -> str:
        return self._with("32", text)

    def yellow(self, text: str) -> str:
        return self._with("33", text)

    def blue(self, text: str) -> str:
        return self._with("34", text)

    def sanitize(self, line: str) -> str:
        """A line as it may be written: nothing that a terminal obeys is left in it but our own colours."""
        if not self.colour or line.isprintable():
            return printable(line)
        return "".join(part if at % 2 else printable(part) for at, part in enumerate(_OURS.split(line)))

    def _with(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


PLAIN = Paint()
