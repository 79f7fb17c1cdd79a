"""`Table`: text table that is laid out first and colored afterwards, fitted to a terminal's width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from plimsoll.tools.colors import Paint

_GAP = "  "
_DOTS = "..."
#: Widths to which columns are shortened before optional ones are left out: the first one at which all cells
#: differ.
_USUAL = (16, 20, 24, 32)
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

    Only on a terminal that is narrower than the table, cells are shortened: names in the middle, so that what
    distinguishes them remains. If that is not enough, `optional` columns are left out.
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
            usual = [
                max(map(len, text)) if is_fixed else _usual_width(text, column)
                for text, column, is_fixed in zip(texts, columns, fixed, strict=True)
            ]
            for name in self.optional:
                if name not in self.headings or _total(usual) <= room:
                    continue
                index = [each[0] for each in texts].index(name.lstrip(">="))
                left_out.append(texts[index][0])
                del texts[index], columns[index], right[index], fixed[index], usual[index]
            least = [
                width if is_fixed else min(width, _LEAST)
                for width, is_fixed in zip(usual, fixed, strict=True)
            ]
            _shorten(texts, columns, (usual, least), room)
        shown = [
            _align(each, column, max(map(len, each)), is_right, paint)
            for each, column, is_right in zip(texts, columns, right, strict=True)
        ]
        for row in zip(*shown, strict=True):
            yield (indent + _GAP.join(row)).rstrip()
        if left_out:
            yield paint.dim(f"{indent}Left out: {', '.join(left_out)}; -o wide shows everything.")


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _usual_width(texts: Sequence[str], column: Sequence[Any]) -> int:
    """Return the width to which a column is shortened before optional columns are left out."""
    cells = dict(zip(texts, column, strict=True))
    full = max(map(len, cells))
    for width in _USUAL:
        if width >= full:
            return full
        head = _head_length([text for text in cells if len(text) > width], width)
        if len({_fit(cell, width, head) for cell in cells.values()}) == len(cells):
            return width
    return _USUAL[0]


def _shorten(
    texts: list[list[str]], columns: Sequence[Sequence[Any]], floors: Sequence[Sequence[int]], room: int
) -> None:
    """Shorten the widest columns until the table fits into `room`, to one floor after the other."""
    widths = [max(map(len, column)) for column in texts]
    most = widths.copy()
    for floor in floors:
        while _total(most) > room and (open_to := [at for at, width in enumerate(most) if width > floor[at]]):
            most[max(open_to, key=most.__getitem__)] -= 1
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
    """Shorten a name in the middle, also one before details in parentheses, and a sentence at its end."""
    if len(text) <= width:
        return text
    name, _, details = text.partition(" (")
    if details and " " not in name:
        room = width - len(details) - 2
        if room < _LEAST:
            details, room = "", width - len(_DOTS) - 1
        short = _middle(name, room, min(head, max(0, room - len(_DOTS)) // 2))
        return f"{short} ({details}" if details else f"{short} {_DOTS}"
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
    if width - len(extra) < _LEAST:
        extra = extra.removesuffix(" more")
    room = width - len(extra)
    if room <= len(_DOTS):
        return f"{len(cell)} in all"
    return _middle(cell[0], room, min(head, max(0, room - len(_DOTS)) // 2)) + extra
