"""Progress of long work, as functions report it."""

from __future__ import annotations

from collections.abc import Callable

#: Progress callback: activity, done, total (0: unknown).
ProgressCallback = Callable[[str, int, int], None]
#: Number of objects between two reports.
TICK_EVERY = 500


def no_progress(what: str, done: int, envelope: int) -> None:
    """Ignore progress reports."""
