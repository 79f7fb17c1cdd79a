"""Paths from the device to a value, with the maximum sizes that Kubernetes allows.

Declares the sizes of the device's parts (driver and domains 63 characters, IDs 32, values 64, 32 entries per
map) and `ValuePath`, which names a part. Used by the cost estimate only.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.cel.overloads.ranges import Range
from plimsoll.cel.types import DEVICE_VARIABLE


@dataclass(frozen=True, slots=True)
class _Shape:
    """Declared size of a part of the device and of its contents."""

    size: int
    fields: dict[str, _Shape] | None = None
    keys: _Shape | None = None
    values: _Shape | None = None
    # Whether selecting any name returns a value: true for attributes, false for capacity.
    named: bool = False

    def part(self, step: str) -> _Shape | None:
        if step in ("@items", "@values"):
            return self.values
        if step == "@keys":
            return self.keys
        if self.fields is not None:
            return self.fields.get(step)
        return self.values if self.named else None


def _by_domain(value: _Shape, named: bool) -> _Shape:
    inner = _Shape(32, keys=_Shape(32), values=value, named=named)
    return _Shape(32, keys=_Shape(63), values=inner)


_DEVICE = _Shape(
    0,
    fields={
        "driver": _Shape(63),
        "allowMultipleAllocations": _Shape(1),
        "attributes": _by_domain(_Shape(64), named=True),
        "capacity": _by_domain(_Shape(0), named=False),
    },
)


class ValuePath:
    """Steps from a variable: field names, @items, @indices, @keys, @values.

    Behaves like a Go slice, because upstream extends paths in place: two extensions of the same path may
    share their last step, which the later one overwrites. In `device.attributes["d"].all(k, v, ...)`, for
    instance, the keys get the size of the values.
    """

    __slots__ = ("_length", "_steps")

    def __init__(self, steps: list[str], length: int) -> None:
        self._steps = steps
        self._length = length

    @classmethod
    def of(cls, variable: str) -> ValuePath:
        return cls([variable], 1)

    def to(self, step: str) -> ValuePath:
        steps, length = self._steps, self._length
        if length == len(steps):
            steps = steps + [""] * max(length, 1)
        steps[length] = step
        return ValuePath(steps, length + 1)

    def declared_size(self, *more: str) -> Range | None:
        """Return the size declared for the path, or None."""
        steps = self._steps[: self._length]
        if not steps or steps[0] != DEVICE_VARIABLE:
            return None
        shape: _Shape | None = _DEVICE
        for step in (*steps[1:], *more):
            shape = None if shape is None else shape.part(step)
        return None if shape is None else Range(0, shape.size)


NO_PATH = ValuePath([], 0)
