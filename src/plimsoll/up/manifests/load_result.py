"""Result of loading files: counts, and the objects that are not as in the files, by reason."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.errors import InputError
from plimsoll.up.manifests.apply import metadata_of, name_of

_log = logging.getLogger("plimsoll.manifests")
#: Names that one line shows; the log has all of them.
_MOST_NAMES = 40


@dataclass(slots=True)
class LoadResult:
    """Created, existing, rejected and skipped objects."""

    new: int = 0
    known: int = 0  #: existed before
    problems: list[str] = field(default_factory=list)  #: rejected: file, object and reason
    skipped: Counter[str] = field(default_factory=Counter)  #: left out without names: events, leases, by kind
    #: Objects that were left out: reason -> descriptions.
    left_out: dict[str, list[str]] = field(default_factory=dict)
    #: Objects that are not as in the files: how they differ -> descriptions.
    notes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def all(self) -> int:
        return self.new + self.known

    def reject(self, where: str, tree: Mapping[str, Any], error: InputError) -> None:
        problem = f"{where}: {describe(tree)}: {' '.join(str(error).split())}"[:500]
        self.problems.append(problem)
        _log.warning("rejected: %s", problem)

    def leave_out(self, reason: str, tree: Mapping[str, Any]) -> None:
        self.left_out.setdefault(reason, []).append(describe(tree))
        _log.info("not restored: %s: %s", describe(tree), reason)

    def note(self, change: str, tree: Mapping[str, Any]) -> None:
        self.notes.setdefault(change, []).append(describe(tree))
        _log.info("%s: %s", describe(tree), change)

    def add(self, other: LoadResult) -> None:
        """Add the result of loading other objects."""
        self.new += other.new
        self.known += other.known
        self.problems += other.problems
        self.skipped += other.skipped
        self.left_out |= other.left_out
        self.notes |= other.notes

    def lines(self, most: int = 5) -> list[str]:
        """Return the messages to print after the count."""
        found = self.problems[:most]
        if len(self.problems) > most:
            found.append(f"and {len(self.problems) - most} more rejected: see the log")
        for reason, names in self.left_out.items():
            found.append(f"{len(names)} not restored: {reason}: {_join(names)}")
        for change, names in self.notes.items():
            found.append(f"{len(names)} {change}: {_join(names)}")
        if self.skipped:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.skipped.items()))
            found.append(f"skipped: {kinds}")
        return found


def _join(names: list[str]) -> str:
    return ", ".join(_shortened(names))


def _shortened(names: list[str]) -> Iterator[str]:
    yield from names[:_MOST_NAMES]
    if len(names) > _MOST_NAMES:
        yield f"and {len(names) - _MOST_NAMES} more (see the log)"


def describe(tree: Mapping[str, Any]) -> str:
    """Describe an object for messages: `Pod demo/web`."""
    namespace = metadata_of(tree).get("namespace")
    name = name_of(tree) or "without a name"
    return f"{tree.get('kind')} {namespace}/{name}" if namespace else f"{tree.get('kind')} {name}"
