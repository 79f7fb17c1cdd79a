"""Plain text: tables as kubectl prints them, and counts with their nouns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap


def format_table(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the rows as aligned lines, with minimal column widths; the first row is the header."""
    table = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def wrap_text(text: str, width: int, indent: str = "  ", *, first: str = "") -> list[str]:
    """Break a text between words; names stay whole, even if they are wider than the lines."""
    return wrap(
        text,
        max(40, width),
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def format_fitting_table(rows: Sequence[Sequence[str]], width: int, indent: str = "") -> Iterator[str]:
    """Yield the rows as a table, or each as a list of its cells if the table is too wide.

    Nothing is cut. Cells that are "-" are left out of the lists.
    """
    table = [indent + line for line in format_table(rows)]
    if max(map(len, table)) <= max(40, width):
        yield from table
        return
    header = [name.lower() for name in rows[0]]
    column = max(map(len, header[1:]), default=0)
    for row in rows[1:]:
        yield from wrap_text(row[0], width, f"{indent}  ", first=indent)
        for name, cell in zip(header[1:], row[1:], strict=True):
            if cell != "-":
                text = f"{name.ljust(column)}  {cell}"
                yield from wrap_text(text, width, f"{indent}    ", first=f"{indent}  ")


def format_count(number: int, noun: str) -> str:
    """Format a count with its noun: `1 node`, `5,000 nodes`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
