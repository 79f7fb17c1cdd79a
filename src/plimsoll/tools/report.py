"""`Report`: protocol of all tool results, rendered as lines of text or as a JSON tree (`-o`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from plimsoll.tools.colors import PLAIN, Paint


class Report(Protocol):
    """Result of a tool."""

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        """Yield lines of text, the most important first; `wide` adds columns that are seldom needed."""
        ...

    def as_json(self) -> Any:
        """Return dicts, lists, strings and integers; quantities in Kubernetes notation."""
        ...


def as_text(report: Report, *, wide: bool = False) -> str:
    """Render a report as the command prints it, without colors."""
    return "\n".join(report.lines(PLAIN, wide=wide))


@dataclass(frozen=True, slots=True)
class StaticReport:
    """Report whose text and tree are given."""

    text: Sequence[str]
    tree: Any

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield from self.text

    def as_json(self) -> Any:
        return self.tree
