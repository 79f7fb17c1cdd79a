"""Table rows: lenient access to fields, and formatting of ages, labels and selectors.

A field of the wrong type counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from plimsoll.api.quantity import Number
from plimsoll.api.timestamps import parse_datetime
from plimsoll.apiserver.json_values import get_path, items

Tree: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]
Cell: TypeAlias = "Callable[[TableRow], Any]"
T = TypeVar("T")

UNKNOWN = "<unknown>"
NONE = "<none>"
UNSET = "<unset>"


def text_of(value: Any, absent: str = "") -> str:
    """Return a string, or a number as string; `absent` if the value is absent or empty."""
    if isinstance(value, str):
        return value or absent
    if isinstance(value, (int, Number)) and not isinstance(value, bool):
        return repr(value)
    return absent


class TableRow:
    """An object and the current time."""

    __slots__ = ("_memo", "now", "tree")

    def __init__(self, tree: Any, now: datetime) -> None:
        self.tree: Tree = tree if isinstance(tree, dict) else {}
        self.now = now
        self._memo: dict[Any, Any] = {}

    def get(self, path: Path) -> Any:
        return get_path(self.tree, path)

    def text(self, path: Path, absent: str = "") -> str:
        return text_of(get_path(self.tree, path), absent)

    def number(self, path: Path) -> int:
        value = get_path(self.tree, path)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    def flag(self, path: Path) -> bool:
        return get_path(self.tree, path) is True

    def trees(self, path: Path) -> list[Tree]:
        """Return the objects of a list."""
        return list(items(get_path(self.tree, path)))

    def map(self, path: Path) -> Tree:
        value = get_path(self.tree, path)
        return value if isinstance(value, dict) else {}

    def age(self, path: Path, absent: str = UNKNOWN) -> str:
        return format_age(get_path(self.tree, path), self.now, absent)

    def cached(self, work: Callable[[TableRow], T]) -> T:
        """Return the result of work that several cells share."""
        if work not in self._memo:
            self._memo[work] = work(self)
        result: T = self._memo[work]
        return result


def texts_of(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


# -- time


@lru_cache(maxsize=4096)
def parse_timestamp(text: str) -> datetime | None:
    """Parse a timestamp; None if it is unset or invalid."""
    timestamp = parse_datetime(text)
    return None if timestamp is None or timestamp.year <= 1 else timestamp


def format_age(value: Any, now: datetime, absent: str = UNKNOWN) -> str:
    """Format the time since a timestamp."""
    timestamp = parse_timestamp(value) if isinstance(value, str) and len(value) <= 64 else None
    return absent if timestamp is None else format_duration(now - timestamp)


#: Durations below this many seconds are formatted in this unit and, if given, the smaller one.
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_SCALES: tuple[tuple[int, int, str, int, str], ...] = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def format_duration(duration: timedelta) -> str:
    """Format a duration in one or two units; negative ones within clock skew are 0."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    for limit, unit, letter, smaller, small_letter in _SCALES:
        if seconds < limit:
            rest = seconds % unit // smaller if smaller else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{small_letter}" if rest else "")
    return f"{seconds // _YEAR}y"


# -- labels


def format_labels(value: Any) -> str:
    """Format labels as `a=b,c=d`, sorted by key."""
    labels = value if isinstance(value, dict) else {}
    return ",".join(f"{key}={text_of(labels[key])}" for key in sorted(labels)) or NONE


_OPERATORS = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}


def format_selector(value: Any, absent: str = NONE) -> str:
    """Format a label selector as `kubectl get -l` accepts it."""
    selector = value if isinstance(value, dict) else {}
    labels = selector.get("matchLabels")
    parts = [(key, f"{key}={text_of(labels[key])}") for key in labels] if isinstance(labels, dict) else []
    for rule in items(selector.get("matchExpressions")):
        key, form = text_of(rule.get("key")), _OPERATORS.get(text_of(rule.get("operator")))
        if form is None:
            return "<error>"
        parts.append((key, form.format(key, ",".join(sorted(texts_of(rule.get("values")))))))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0])) or absent


def shorten(items: Iterable[str], most: int, separator: str = ",") -> str:
    """Join the first items and the number of remaining ones."""
    kept = list(items)
    shown = separator.join(kept[:most])
    return f"{shown} + {len(kept) - most} more..." if len(kept) > most else shown
