"""Plain text: tables as kubectl prints them, and counts with their nouns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def format_table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the rows as aligned lines, with minimal column widths; the first row is the header."""
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun: `1 node`, `5,000 nodes`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
