"""Plain text tables as kubectl prints them: minimal column widths, three spaces apart, no colors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def format_table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the rows as aligned lines; the first row is the header."""
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
