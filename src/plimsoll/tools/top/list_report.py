"""`ListReport`: the base of reports that are a list of rows, of which the first are shown."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count

Row = TypeVar("Row")


def not_shown(left: int, word: str) -> Iterator[str]:
    if left > 0:
        yield f"{format_count(left, 'more ' + word)} not shown; --limit 0 shows all."


@dataclass(frozen=True)
class ListReport(Generic[Row]):
    """Rows in display order, with a limit."""

    view: ClassVar[str]  #: key of the rows in JSON
    word: ClassVar[str]  #: a row
    empty: ClassVar[str]  #: line without rows

    rows: tuple[Row, ...]
    limit: int = field(default=0, kw_only=True)  #: number of rows to show; 0: all

    @property
    def shown(self) -> tuple[Row, ...]:
        return self.rows[: self.limit] if self.limit else self.rows

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        if self.rows:
            yield from self.row_lines(paint, wide)
        else:
            yield self.empty

    @abstractmethod
    def row_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        """Yield the lines of a report that has rows."""

    def rest_lines(self) -> Iterator[str]:
        """Yield the number of rows that are not shown, if there are any."""
        yield from not_shown(len(self.rows) - len(self.shown), self.word)

    def row_json(self, row: Any) -> dict[str, Any]:
        tree: dict[str, Any] = row.as_json()
        return tree

    def as_json(self) -> dict[str, Any]:
        shown = [self.row_json(row) for row in self.shown]
        return {self.view: shown, "notShown": len(self.rows) - len(shown)}
