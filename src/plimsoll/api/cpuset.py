"""CPU sets and their list format (`0-3,8`), as in Kubernetes.

`CpuSet` is immutable and compares by value. Internally it is a bit mask, so that set operations are fast on
machines with hundreds of CPUs. Parsing follows Kubernetes, including its error texts (InputError): no spaces,
no empty parts, a sign where Go's numbers allow one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice

from plimsoll.api.go_text import quote_go
from plimsoll.errors import InputError

MASK_LIMIT = 1 << 16
"""CPU numbers below this are bits of the mask; larger ones, which no machine has, are a set."""

MAX_SPARSE_CPUS = 1 << 20
"""Maximum number of CPUs above `MASK_LIMIT` in one list."""


class CpuSet:
    """An immutable set of CPU numbers.

    `mask` has one bit for each CPU below `MASK_LIMIT`; `far` has larger numbers, which only occur in unusual
    texts.
    """

    __slots__ = ("far", "mask")
    mask: int
    far: frozenset[int]

    def __init__(self, cpus: Iterable[int] = ()) -> None:
        mask = 0
        far: set[int] = set()
        for cpu in cpus:
            if cpu < MASK_LIMIT:
                mask |= 1 << cpu
            else:
                far.add(cpu)
        _set(self, "mask", mask)
        _set(self, "far", frozenset(far) if far else _NONE)

    @classmethod
    def of_mask(cls, mask: int, far: frozenset[int] = frozenset()) -> CpuSet:
        """Return the set for a bit mask."""
        made = _new(cls)
        _set(made, "mask", mask)
        _set(made, "far", far)
        return made

    @classmethod
    def parse(cls, text: str) -> CpuSet:
        """Parse a list such as `0-3,8`; raises InputError with Kubernetes' text."""
        mask = 0
        far: set[int] = set()
        for part in text.split(",") if text else ():
            first, dash, last = part.partition("-")
            low = _read(first)
            high = _read(last) if dash else low
            if low > high:
                raise InputError(f"invalid range {quote_go(part)} ({low} > {high})")
            if high < MASK_LIMIT:
                mask |= ((1 << (high - low + 1)) - 1) << low
            else:
                _check_length(part, high - low + len(far))
                far.update(range(low, high + 1))
        if far:
            return cls(far) | cls.of_mask(mask)
        return cls.of_mask(mask)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("CpuSet cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return (CpuSet.of_mask, (self.mask, self.far))

    def __or__(self, other: CpuSet) -> CpuSet:
        return CpuSet.of_mask(self.mask | other.mask, self.far | other.far)

    def __and__(self, other: CpuSet) -> CpuSet:
        return CpuSet.of_mask(self.mask & other.mask, self.far & other.far)

    def __sub__(self, other: CpuSet) -> CpuSet:
        return CpuSet.of_mask(self.mask & ~other.mask, self.far - other.far)

    def __le__(self, other: CpuSet) -> bool:
        """Return whether this set is a subset of the other."""
        return not self.mask & ~other.mask and self.far <= other.far

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuSet) and self.mask == other.mask and self.far == other.far

    def __hash__(self) -> int:
        return hash((self.mask, self.far))

    def __len__(self) -> int:
        return self.mask.bit_count() + len(self.far)

    def __bool__(self) -> bool:
        return self.mask != 0 or bool(self.far)

    def __contains__(self, cpu: int) -> bool:
        return (0 <= cpu < MASK_LIMIT and bool(self.mask >> cpu & 1)) or cpu in self.far

    def __iter__(self) -> Iterator[int]:
        """Iterate over the CPUs, ascending."""
        near = (at.start() for at in re.finditer("1", bin(self.mask)[:1:-1]))
        return chain(near, sorted(self.far)) if self.far else near

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first and last CPU of each contiguous range, ascending."""
        if self.far:
            return _runs_of(self)
        return ((at.start(), at.end() - 1) for at in re.finditer("1+", bin(self.mask)[:1:-1]))

    def lowest(self, count: int) -> CpuSet:
        """Return the `count` lowest CPUs, or all if there are fewer."""
        if count >= len(self):
            return self
        return CpuSet(islice(self, count))

    def __str__(self) -> str:
        """Format as Kubernetes does: ranges joined, ascending; "" for the empty set."""
        return _format(self.runs()) if self.far else _format_mask(self.mask)

    def __repr__(self) -> str:
        return f"CpuSet({str(self)!r})"


def union(sets: Iterable[CpuSet]) -> CpuSet:
    mask, far = 0, _NONE
    for each in sets:
        mask |= each.mask
        if each.far:
            far |= each.far
    return CpuSet.of_mask(mask, far)


@lru_cache(maxsize=2048)  # drivers format the sets of all claims again and again
def _format_mask(mask: int) -> str:
    return _format((at.start(), at.end() - 1) for at in re.finditer("1+", bin(mask)[:1:-1]))


def _format(runs: Iterable[tuple[int, int]]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _runs_of(cpus: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = -2
    for cpu in cpus:
        if cpu != last + 1:
            if first >= 0:
                yield first, last
            first = cpu
        last = cpu
    if first >= 0:
        yield first, last


def _check_length(part: str, length: int) -> None:
    # DIFF: Kubernetes expands a range of billions of numbers in memory; here it is rejected
    # (test_huge_ranges_are_refused).
    if length >= MAX_SPARSE_CPUS:
        raise InputError(f"invalid range {quote_go(part)}: more than {MAX_SPARSE_CPUS} CPUs")


_NONE: frozenset[int] = frozenset()
_new = object.__new__
_set = object.__setattr__

EMPTY = CpuSet()


_NUMBER = re.compile(r"[+-]?([0-9]*)")


def _read(text: str) -> int:
    """Parse a 64-bit decimal number as Go does."""
    match = _NUMBER.match(text)
    digits = match[1] if match else ""
    # As in Go, a number of more than 64 bits is out of range, whatever follows it.
    if len(digits) > 19 and (len(short := digits.lstrip("0")) > 20 or int(short or "0") >= 1 << 64):
        raise InputError(f"strconv.Atoi: parsing {quote_go(text)}: value out of range")
    if not digits or match is None or match.end() != len(text):
        raise InputError(f"strconv.Atoi: parsing {quote_go(text)}: invalid syntax")
    number = int(text)
    if not -(1 << 63) <= number < 1 << 63:
        raise InputError(f"strconv.Atoi: parsing {quote_go(text)}: value out of range")
    return number
