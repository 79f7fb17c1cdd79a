"""`WhatifReport`: the result of a what-if with its text output."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.tools.colors import Paint
from plimsoll.tools.whatif.result import WhatifResult
from plimsoll.tools.whatif.texts import format_report


class WhatifReport(WhatifResult):
    """State before, state after, and the differences, as text."""

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield from format_report(self, paint, wide=wide)
