"""Bounded caches of compiled programs, flattened devices and matches.

Programs are cached by expression and environment, including compile errors. Devices and matches are cached by
slice version (UID and resourceVersion); a new version replaces the old one. Not thread-safe; each user has
its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from plimsoll.api import resource
from plimsoll.cel.device import CelDevice, flatten
from plimsoll.cel.selector import Selector, compile_selector
from plimsoll.cel.static.environment import Environment
from plimsoll.errors import CelCompileError, CelRuntimeError

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """A mapping that evicts the least recently used entry."""

    __slots__ = ("_entries", "_size")

    def __init__(self, size: int) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._size = size

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, computing it if absent."""
        entries = self._entries
        if key in entries:
            entries.move_to_end(key)
            return entries[key]
        value = entries[key] = make()
        if len(entries) > self._size:
            entries.popitem(last=False)
        return value

    def pop(self, key: K) -> None:
        self._entries.pop(key, None)


class ProgramCache:
    """Compiled selectors by expression and environment, including compile errors."""

    __slots__ = ("_known",)

    def __init__(self, size: int = 4096) -> None:
        self._known: Lru[tuple[str, Environment], Selector | CelCompileError] = Lru(size)

    def __len__(self) -> int:
        return len(self._known)

    def compile(self, expression: str, environment: Environment) -> Selector:
        """Return the selector of an expression; raises CelCompileError, cached as well."""
        found = self._known.get((expression, environment), lambda: _try_compile(expression, environment))
        if isinstance(found, CelCompileError):
            raise found.with_traceback(None)
        return found


def _try_compile(expression: str, environment: Environment) -> Selector | CelCompileError:
    try:
        return compile_selector(expression, environment)
    except CelCompileError as error:
        return error


class SliceVersion(NamedTuple):
    """A version of a ResourceSlice."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class SelectorMatches:
    """Devices of a slice that a selector matches: bit i is device i. Devices with an error do not match."""

    bits: int
    errors: Mapping[int, CelRuntimeError]

    def __contains__(self, index: int) -> bool:
        return bool(self.bits >> index & 1)


@dataclass(slots=True)
class _Slice:
    devices: tuple[CelDevice, ...]
    matches: Lru[tuple[str, Environment], SelectorMatches] = field(default_factory=lambda: Lru(256))


class SliceCache:
    """Flattened devices and matches of the slices in use; one version per slice."""

    __slots__ = ("_slices", "_versions")

    def __init__(self, size: int = 65_536) -> None:
        self._slices: Lru[SliceVersion, _Slice] = Lru(size)
        self._versions: Lru[str, str] = Lru(size)

    def __len__(self) -> int:
        return len(self._slices)

    def devices(
        self, version: SliceVersion, driver: str, devices: Iterable[resource.Device | Mapping[str, Any]]
    ) -> tuple[CelDevice, ...]:
        """Return the devices of a slice version, flattened at the first call."""
        return self._slice(version, driver, devices).devices

    def matches(
        self,
        selector: Selector,
        version: SliceVersion,
        driver: str,
        devices: Iterable[resource.Device | Mapping[str, Any]],
    ) -> SelectorMatches:
        """Return the matches of a selector on a slice version, evaluated at the first call."""
        known = self._slice(version, driver, devices)
        key = (selector.expression, selector.environment)
        return known.matches.get(key, lambda: match_all(selector, known.devices))

    def forget(self, uid: str) -> None:
        """Remove a deleted slice."""
        if uid in self._versions:
            self._slices.pop(SliceVersion(uid, self._versions.get(uid, str)))
            self._versions.pop(uid)

    def _slice(
        self, version: SliceVersion, driver: str, devices: Iterable[resource.Device | Mapping[str, Any]]
    ) -> _Slice:
        if version not in self._slices:
            self.forget(version.uid)
            self._versions.get(version.uid, lambda: version.resource_version)
        return self._slices.get(version, lambda: _Slice(tuple(flatten(device, driver) for device in devices)))


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
