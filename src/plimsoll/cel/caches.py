"""Bounded cache of compiled expressions, and their results on many devices."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from plimsoll.cel.derived import DerivedAttribute, DerivedValues, compile_derived
from plimsoll.cel.device import CelDevice
from plimsoll.cel.selector import Selector, compile_selector
from plimsoll.cel.static.environment import Environment
from plimsoll.errors import CelCompileError, CelRuntimeError

P = TypeVar("P")
#: Result of a derived attribute on a device.
DerivedResult: TypeAlias = "DerivedValues | CelRuntimeError"


class ProgramCache:
    """Compiled expressions by text and environment, including compile errors; least recently used.

    Not thread-safe.
    """

    __slots__ = ("_derived", "_programs", "_size")

    def __init__(self, size: int = 4096) -> None:
        self._programs: OrderedDict[tuple[str, Environment], Selector | CelCompileError] = OrderedDict()
        self._derived: OrderedDict[tuple[str, Environment], DerivedAttribute | CelCompileError] = (
            OrderedDict()
        )
        self._size = size

    def __len__(self) -> int:
        return len(self._programs)

    def compile(self, expression: str, environment: Environment) -> Selector:
        """Return the selector of an expression; raises CelCompileError, cached as well."""
        return _recall(self._programs, (expression, environment), compile_selector, self._size)

    def compile_derived(self, expression: str, environment: Environment) -> DerivedAttribute:
        """Return the derived attribute of an expression; raises CelCompileError, cached as well."""
        return _recall(self._derived, (expression, environment), compile_derived, self._size)


def _recall(
    known: OrderedDict[tuple[str, Environment], P | CelCompileError],
    key: tuple[str, Environment],
    compile: Callable[[str, Environment], P],
    size: int,
) -> P:
    """Return a program of a cache, compiled if it is missing; the oldest is evicted."""
    found = known.get(key)
    if found is None:
        try:
            found = compile(*key)
        except CelCompileError as error:
            found = error
        known[key] = found
        if len(known) > size:
            known.popitem(last=False)
    else:
        known.move_to_end(key)
    if isinstance(found, CelCompileError):
        raise found.with_traceback(None)
    return found


@dataclass(frozen=True, slots=True)
class SelectorMatches:
    """Devices that a selector matches: bit i is device i. Devices with an error do not match."""

    bits: int
    errors: Mapping[int, CelRuntimeError]

    def __contains__(self, index: int) -> bool:
        return bool(self.bits >> index & 1)


def match_all(selector: Selector, devices: Iterable[CelDevice]) -> SelectorMatches:
    """Evaluate a selector on a sequence of devices."""
    marks = bytearray()
    errors: dict[int, CelRuntimeError] = {}
    for index, device in enumerate(devices):
        try:
            marks.append(_ONE if selector.matches(device) else _ZERO)
        except CelRuntimeError as error:
            marks.append(_ZERO)
            errors[index] = error.with_traceback(None)
    marks.reverse()
    return SelectorMatches(int(marks or b"0", 2), errors)


def derive_all(derived: DerivedAttribute, devices: Iterable[CelDevice]) -> tuple[DerivedResult, ...]:
    """Evaluate a derived attribute on a sequence of devices."""
    found: list[DerivedResult] = []
    for device in devices:
        try:
            found.append(derived.evaluate(device))
        except CelRuntimeError as error:
            found.append(error.with_traceback(None))
    return tuple(found)


_ZERO, _ONE = b"01"
