"""`Table`: text table that is laid out first and colored afterwards, fitted to the terminal width.

The last column may be a list of words, shortened with a count of the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from plimsoll.tools.colors import Paint

_GAP = "  "
#: Minimum width of the last column.
_LEAST = 18
#: Color of a usage bar: each kind of mark has its own.
BAR = "bar"


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a color: the name of a `Paint` method, or `BAR`."""

    text: str
    color: str = ""


@dataclass(slots=True)
class Table:
    """Rows under headings; a heading that starts with `>` is right-aligned."""

    headings: tuple[str, ...]
    rows: list[tuple[str | Cell | Sequence[str], ...]] = field(default_factory=list)
    caps: dict[int, int] = field(default_factory=dict)  #: maximum widths of truncated list columns

    def add(self, *cells: str | Cell | Sequence[str]) -> None:
        self.rows.append(cells)

    def lines(self, paint: Paint, *, wide: bool = False, indent: str = "") -> Iterator[str]:
        """Yield the table as lines without trailing spaces."""
        right = [heading.startswith(">") for heading in self.headings]
        head = tuple(Cell(heading.lstrip(">"), "dim") for heading in self.headings)
        caps = {} if wide else self.caps
        room = paint.width - len(indent)
        shown = []
        for index, column in enumerate(zip(head, *self.rows, strict=True)):
            if index == len(head) - 1:
                texts = [_fit(cell, None if wide else max(_LEAST, room)) for cell in column]
            else:
                cap = caps.get(index)
                texts = [cell if type(cell) is str and cap is None else _fit(cell, cap) for cell in column]
            width = max(map(len, texts))
            room -= width + len(_GAP)
            shown.append(_align(texts, column, width, right[index], paint))
        for row in zip(*shown, strict=True):
            yield (indent + _GAP.join(row)).rstrip()


def _align(
    texts: list[str], cells: Iterable[str | Cell | Sequence[str]], width: int, right: bool, paint: Paint
) -> list[str]:
    """Fill up the texts of a column to its width, and color them."""
    align = str.rjust if right else str.ljust
    if not paint.color:
        return [align(text, width) for text in texts]
    aligned = []
    for text, cell in zip(texts, cells, strict=True):
        blank = " " * (width - len(text))
        painted = _painted(text, cell.color, paint) if isinstance(cell, Cell) else text
        aligned.append(blank + painted if right else painted + blank)
    return aligned


def _text(cell: str | Cell | Sequence[str]) -> str:
    if isinstance(cell, Cell):
        return cell.text
    return cell if isinstance(cell, str) else ", ".join(cell)


def _painted(text: str, color: str, paint: Paint) -> str:
    if color == BAR:
        marks = {"=": paint.blue, "#": paint.yellow, "+": paint.green, ".": paint.dim}
        return "".join(marks[mark]("".join(run)) for mark, run in groupby(text)) if text else ""
    return getattr(paint, color)(text) if color else text


def _fit(cell: str | Cell | Sequence[str], room: int | None) -> str:
    """Fit a cell into `room` characters."""
    text = _text(cell)
    if room is None or len(text) <= room:
        return text
    if isinstance(cell, str | Cell):
        return text[: room - 3] + "..."
    for count in range(len(cell) - 1, 0, -1):
        shown = f"{', '.join(cell[:count])}, +{len(cell) - count} more"
        if len(shown) <= room:
            return shown
    extra = f", +{len(cell) - 1} more" if len(cell) > 1 else ""
    return cell[0][: room - 3 - len(extra)] + "..." + extra
