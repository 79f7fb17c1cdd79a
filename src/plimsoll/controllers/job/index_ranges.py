"""Sets of completion indexes as sorted ranges, and their text form: `1,3-5,7`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TypeAlias

#: Ranges of indexes, both ends included: sorted, apart from each other.
IndexRanges: TypeAlias = tuple[tuple[int, int], ...]


def parse_ranges(text: str, completions: int) -> IndexRanges:
    """Parse the indexes below `completions`; malformed parts are ignored."""
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            continue
        start, end = int(first), int(last if dash else first)
        if start < completions and start <= end:
            found.append((start, min(end, completions - 1)))
    return _normalize(found)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


def format_ranges(ranges: IndexRanges) -> str:
    """Format ranges; two neighbors are written as two indexes, as in Kubernetes."""
    parts = []
    for first, last in ranges:
        if first == last:
            parts.append(str(first))
        else:
            parts.append(f"{first},{last}" if last == first + 1 else f"{first}-{last}")
    return ",".join(parts)


def add_indexes(ranges: IndexRanges, indexes: Iterable[int]) -> IndexRanges:
    return _normalize([*ranges, *((index, index) for index in indexes)])


def merge_ranges(one: IndexRanges, other: IndexRanges) -> IndexRanges:
    return _normalize([*one, *other])


def _normalize(ranges: list[tuple[int, int]]) -> IndexRanges:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return tuple(merged)


def count_indexes(ranges: IndexRanges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def has_index(ranges: IndexRanges, index: int) -> bool:
    place = bisect_right(ranges, (index, index))
    after = place < len(ranges) and ranges[place][0] == index
    return after or (place > 0 and ranges[place - 1][1] >= index)


def count_common(one: IndexRanges, other: IndexRanges) -> int:
    """Return the number of indexes in both."""
    left, right, common = 0, 0, 0
    while left < len(one) and right < len(other):
        common += max(0, min(one[left][1], other[right][1]) - max(one[left][0], other[right][0]) + 1)
        if one[left][1] < other[right][1]:
            left += 1
        else:
            right += 1
    return common


def first_missing(ranges: IndexRanges, count: int, completions: int) -> list[int]:
    """Return the first `count` indexes below `completions` that are in no range."""
    found: list[int] = []
    candidate = 0
    for first, last in (*ranges, (completions, completions)):
        end = min(first, completions)
        if candidate < end:
            found.extend(range(candidate, min(end, candidate + count - len(found))))
        candidate = max(candidate, last + 1)
        if len(found) >= count:
            break
    return found
