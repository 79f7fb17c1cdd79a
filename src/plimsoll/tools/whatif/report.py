"""The answer of a what-if, for people and for programs.

Owns `WhatifReport`: the values of `answer.py` with the words of `texts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.tools.colors import Paint
from plimsoll.tools.whatif.result import WhatifResult
from plimsoll.tools.whatif.texts import format_report


class WhatifReport(WhatifResult):
    """Before, after, and what differs, in words."""

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield from format_report(self, paint, wide=wide)
