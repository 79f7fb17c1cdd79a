"""Terminal colors and sanitizing of untrusted text.

Coloring does not change the visible characters, so tables are laid out first. Names and messages in objects
are untrusted: everything printed passes `printable` or `Paint.sanitize`, which replace control characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Escape codes used by `Paint`.
_OURS = re.compile("(\x1b\\[(?:0|1|2|31|32|33|34)m)")


def printable(text: str) -> str:
    """Replace characters that move the cursor, hide or reorder text with question marks."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


@dataclass(frozen=True, slots=True)
class Paint:
    """Output style: colors, and the width of lines, to which tables are shortened on a terminal only."""

    color: bool = False
    width: int = 100
    is_terminal: bool = False

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
        """Replace every control sequence in a line except the colors defined here."""
        if not self.color or line.isprintable():
            return printable(line)
        return "".join(part if at % 2 else printable(part) for at, part in enumerate(_OURS.split(line)))

    def _with(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.color and text else text


PLAIN = Paint()
