"""What a command has to say, in whichever form it is wanted.

Owns the `Report` protocol: every answer of the tools is a value that can be written as lines for people or as
a tree for programs. `-o` chooses. `StaticReport` is one whose lines and tree are at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from plimsoll.tools.colors import PLAIN, Paint


class Report(Protocol):
    """An answer."""

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        """For people: what matters first; `wide` with the columns that are seldom wanted."""
        ...

    def as_json(self) -> Any:
        """For programs: plain dicts, lists, texts, whole numbers; quantities as Kubernetes writes them."""
        ...


def as_text(report: Report, *, wide: bool = False) -> str:
    """An answer as a command prints it, without colours."""
    return "\n".join(report.lines(PLAIN, wide=wide))


@dataclass(frozen=True, slots=True)
class StaticReport:
    """An answer that is there in both forms."""

    text: Sequence[str]
    tree: Any

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield from self.text

    def as_json(self) -> Any:
        return self.tree
