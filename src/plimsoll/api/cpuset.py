"""Sets of CPUs and their text form (`0-3,8`), as Kubernetes reads and writes it.

Owns `CpuSet`. Sets are immutable and compare by value; they are whole numbers inside, one bit for each CPU,
so that set arithmetic costs next to nothing on machines with hundreds of CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class CpuSet:
    """An immutable set of CPU numbers."""

    __slots__ = ("mask",)
    mask: int

    def __init__(self, cpus: Iterable[int] = ()) -> None:
        mask = 0
        for cpu in cpus:
            mask |= 1 << cpu
        object.__setattr__(self, "mask", mask)

    @classmethod
    def of_mask(cls, mask: int) -> CpuSet:
        made = cls()
        object.__setattr__(made, "mask", mask)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("CpuSet cannot be changed")

    def __or__(self, other: CpuSet) -> CpuSet:
        return CpuSet.of_mask(self.mask | other.mask)

    def __and__(self, other: CpuSet) -> CpuSet:
        return CpuSet.of_mask(self.mask & other.mask)

    def __sub__(self, other: CpuSet) -> CpuSet:
        return CpuSet.of_mask(self.mask & ~other.mask)

    def __le__(self, other: CpuSet) -> bool:
        """Whether every CPU of this set is in the other."""
        return not self.mask & ~other.mask

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuSet) and self.mask == other.mask

    def __hash__(self) -> int:
        return hash(self.mask)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __contains__(self, cpu: int) -> bool:
        return bool(self.mask >> cpu & 1)

    def __iter__(self) -> Iterator[int]:
        """The CPUs, lowest first."""
        mask = self.mask
        while mask:
            lowest = mask & -mask
            yield lowest.bit_length() - 1
            mask ^= lowest

    def __str__(self) -> str:
        """As Kubernetes writes it: runs joined, lowest first; nothing for the empty set."""
        runs: list[list[int]] = []
        for cpu in self:
            if runs and runs[-1][1] == cpu - 1:
                runs[-1][1] = cpu
            else:
                runs.append([cpu, cpu])
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)

    def __repr__(self) -> str:
        return f"CpuSet({str(self)!r})"


EMPTY = CpuSet()
