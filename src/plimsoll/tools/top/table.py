"""`Table`: text table that is laid out first and colored afterwards, fitted to a terminal's width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from plimsoll.tools.colors import Paint

_GAP = "  "
_DOTS = "..."
#: Width below which columns are shortened only after the optional ones are left out.
_USUAL = 16
#: Width below which no column is shortened.
_LEAST = 10
#: Color of a usage bar: each kind of mark has its own.
BAR = "bar"


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a color: the name of a `Paint` method, or `BAR`."""

    text: str
    color: str = ""


@dataclass(slots=True)
class Table:
    """Rows under headings; a heading that starts with `>` is right-aligned, one with `=` is never shortened.

    Only on a terminal that is narrower than the table, `optional` columns are left out and cells shortened:
    text columns to a common width, names in the middle, so that what distinguishes them remains.
    """

    headings: tuple[str, ...]
    rows: list[tuple[str | Cell | Sequence[str], ...]] = field(default_factory=list)
    optional: tuple[str, ...] = ()  #: headings of columns that are left out first

    def add(self, *cells: str | Cell | Sequence[str]) -> None:
        self.rows.append(cells)

    def lines(self, paint: Paint, *, wide: bool = False, indent: str = "") -> Iterator[str]:
        """Yield the table as lines without trailing spaces; a `wide` one is not shortened."""
        heads = tuple(Cell(heading.lstrip(">="), "dim") for heading in self.headings)
        right = [heading.startswith(">") for heading in self.headings]
        fixed = [heading.startswith((">", "=")) for heading in self.headings]
        columns = list(zip(heads, *self.rows, strict=True))
        texts = [[*map(_text, column)] for column in columns]
        left_out: list[str] = []
        if paint.is_terminal and not wide:
            room = paint.width - len(indent)
            for name in self.optional:
                if name not in self.headings or _least_width(texts, fixed) <= room:
                    continue
                index = [each[0] for each in texts].index(name.lstrip(">="))
                left_out.append(texts[index][0])
                del texts[index], columns[index], right[index], fixed[index]
            _shorten(texts, columns, fixed, room)
        shown = [
            _align(each, column, max(map(len, each)), is_right, paint)
            for each, column, is_right in zip(texts, columns, right, strict=True)
        ]
        for row in zip(*shown, strict=True):
            yield (indent + _GAP.join(row)).rstrip()
        if left_out:
            yield paint.dim(f"{indent}Left out: {', '.join(left_out)}; -o wide shows everything.")


def _least_width(texts: Sequence[Sequence[str]], fixed: Sequence[bool]) -> int:
    """Return the width of the table if its columns are shortened as far as they usually are."""
    widths = [max(map(len, column)) for column in texts]
    for index, width in enumerate(widths):
        if not fixed[index]:
            widths[index] = min(width, _USUAL + _extra(index))
    return sum(widths) + len(_GAP) * (len(texts) - 1)


def _extra(index: int) -> int:
    """Return by how much a column may be wider than others: the first one names the row."""
    return 0 if index else _USUAL


def _shorten(
    texts: list[list[str]], columns: Sequence[Sequence[Any]], fixed: Sequence[bool], room: int
) -> None:
    """Shorten the widest text columns until the table fits into `room`."""
    widths = [max(map(len, column)) for column in texts]
    most = widths.copy()
    while sum(most) + len(_GAP) * (len(most) - 1) > room:
        open_to = [index for index, width in enumerate(most) if not fixed[index] and width > _LEAST]
        if not open_to:
            break
        most[max(open_to, key=lambda index: most[index] - _extra(index))] -= 1
    for index, column in enumerate(columns):
        if most[index] < widths[index]:
            head = _head_length([text for text in texts[index] if len(text) > most[index]], most[index])
            texts[index] = [_fit(cell, most[index], head) for cell in column]


def _head_length(texts: Sequence[str], width: int) -> int:
    """Return how many first characters to keep, so that shortened texts still differ."""
    kept = width - len(_DOTS)
    names = set(texts)
    choices = (kept // 2, kept // 4, kept - kept // 4)
    return max(choices, key=lambda head: len({_middle(name, width, head) for name in names}))


def _middle(text: str, width: int, head: int) -> str:
    """Shorten a name in the middle, a sentence at its end."""
    if len(text) <= width:
        return text
    if " " in text:
        return text[: width - len(_DOTS)] + _DOTS
    return text[:head] + _DOTS + text[len(text) - (width - len(_DOTS) - head) :]


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


def _fit(cell: str | Cell | Sequence[str], width: int, head: int) -> str:
    """Fit a cell into `width` characters; a list is shortened with a count of the rest."""
    text = _text(cell)
    if len(text) <= width or isinstance(cell, str | Cell):
        return _middle(text, width, head)
    for count in range(len(cell) - 1, 0, -1):
        shown = f"{', '.join(cell[:count])}, +{len(cell) - count} more"
        if len(shown) <= width:
            return shown
    extra = f", +{len(cell) - 1} more" if len(cell) > 1 else ""
    room = width - len(extra)
    if room <= len(_DOTS):
        return f"{len(cell)} in all"
    return _middle(cell[0], room, min(head, max(0, room - len(_DOTS)) // 2)) + extra
