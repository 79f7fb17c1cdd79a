"""Plain columns, the way kubectl prints them: as wide as they must be, three blanks apart, no colours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def format_table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Rows of cells as lines; the first row is the heading."""
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
