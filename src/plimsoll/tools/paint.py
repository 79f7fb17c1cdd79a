"""Colours for people at a terminal, and none for anybody else.

Owns `Paint`. A text that is painted has the same characters, so that columns are laid out before painting.
"""

from __future__ import annotations

from dataclasses import dataclass


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

    def _with(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text


PLAIN = Paint()
