"""The answer of a what-if, for people and for programs.

Owns `WhatifReport`: the values of `answer.py` with the words of `texts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.tools.colors import Paint
from plimsoll.tools.whatif.result import Answer
from plimsoll.tools.whatif.texts import tell


class WhatifReport(Answer):
    """Before, after, and what differs, in words."""

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield from tell(self, paint, wide=wide)
