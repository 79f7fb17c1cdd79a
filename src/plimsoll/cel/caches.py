"""Bounded cache of compiled selectors, and the matches of a selector on many devices."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plimsoll.cel.device import CelDevice
from plimsoll.cel.selector import Selector, compile_selector
from plimsoll.cel.static.environment import Environment
from plimsoll.errors import CelCompileError, CelRuntimeError


class ProgramCache:
    """Compiled selectors by expression and environment, including compile errors; least recently used.

    Not thread-safe.
    """

    __slots__ = ("_programs", "_size")

    def __init__(self, size: int = 4096) -> None:
        self._programs: OrderedDict[tuple[str, Environment], Selector | CelCompileError] = OrderedDict()
        self._size = size

    def __len__(self) -> int:
        return len(self._programs)

    def compile(self, expression: str, environment: Environment) -> Selector:
        """Return the selector of an expression; raises CelCompileError, cached as well."""
        key = (expression, environment)
        found = self._programs.get(key)
        if found is None:
            found = self._programs[key] = _try_compile(expression, environment)
            if len(self._programs) > self._size:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(key)
        if isinstance(found, CelCompileError):
            raise found.with_traceback(None)
        return found


def _try_compile(expression: str, environment: Environment) -> Selector | CelCompileError:
    try:
        return compile_selector(expression, environment)
    except CelCompileError as error:
        return error


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


_ZERO, _ONE = b"01"
