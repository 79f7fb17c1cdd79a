"""Console output of `plimsoll up`.

`Console` prints lines and steps. A step is printed when it begins and again with its result; on a terminal
the result replaces the first line, elsewhere only the result is written.
"""

from __future__ import annotations

import sys
from typing import TextIO

from plimsoll.tools.colors import Paint

_WIDTH = 12


class Console:
    """Progress output on standard output or another stream."""

    def __init__(
        self, stream: TextIO | None = None, paint: Paint | None = None, *, live: bool = False
    ) -> None:
        """Create a console; `live` if the output is a terminal."""
        self._stream = stream or sys.stdout
        self.paint = paint or Paint()
        self.live = live
        self._current = ""

    def line(self, text: str = "") -> None:
        """Write a line above the current step."""
        current = self._current
        self._clear()
        self._write(f"{text}\n")
        if current:
            self.begin(current)

    def begin(self, what: str, progress: str = "") -> None:
        """Show the current step and its progress."""
        if self.live:
            self._clear()
            self._current = what
            self._write(self.paint.dim(f"  {what:<{_WIDTH}} {progress or '...'}"))

    def done(self, what: str, text: str) -> None:
        """Write the result of a step."""
        self._clear()
        self._write(f"  {self.paint.bold(f'{what:<{_WIDTH}}')} {text}\n")

    def end(self) -> None:
        """Clear the current step."""
        self._clear()

    def _clear(self) -> None:
        if self._current:
            self._current = ""
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()
