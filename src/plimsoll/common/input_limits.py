"""Limits on the size of input files, derived from the memory of this machine.

`default_bounds` computes them from the available memory and `PLIMSOLL_MAX_INPUT`; `check_density` rejects
JSON that is small as text but huge as objects. The objects of a dump take about seven times the size of its
text, so the maximum is an eighth of the memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plimsoll.api.quantity import Quantity
from plimsoll.errors import ConfigError, InputError, QuantityError

VARIABLE = "PLIMSOLL_MAX_INPUT"
_MIB = 1 << 20
#: Larger dumps are read only if they are requested explicitly, since that takes minutes.
DEFAULT_MAX = 512 * _MIB
#: Minimum of the limit, even if no memory seems to be available.
_LEAST = 16 * _MIB
_MEMORY_PER_BYTE = 8
#: Memory per byte of text, as `check_density` estimates it.
_DENSEST = 12
_ANY = 1000
_FALLBACK_MEMORY = 4 << 30


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on unpacked and read data; larger input is rejected as an attack or a mistake."""

    text: int = DEFAULT_MAX  #: bytes of all texts together
    ratio: int = 300  #: maximum ratio of uncompressed to compressed size; dumps have 10 to 60
    ratio_from: int = 64 * _MIB  #: uncompressed size from which the ratio is checked
    members: int = 200_000  #: files in an archive
    memory: int = _DENSEST * DEFAULT_MAX  #: estimated bytes of memory for the objects of one text
    density: int = 30  #: maximum ratio of memory to size; a dump without indentation has 9

    @property
    def unpacked(self) -> int:
        """Limit for all unpacked data, including files that are skipped (logs)."""
        return 4 * self.text


def default_bounds(environment: Mapping[str, str] | None = None, memory: int | None = None) -> Bounds:
    """Return the limits of this machine; ConfigError if `PLIMSOLL_MAX_INPUT` cannot be used."""
    given = (os.environ if environment is None else environment).get(VARIABLE, "")
    if given:
        text = _read_size(given)
        return Bounds(text=text, ratio_from=text, memory=_DENSEST * text, density=_ANY)
    free = available_memory() if memory is None else memory
    text = max(_LEAST, min(DEFAULT_MAX, free // _MEMORY_PER_BYTE))
    return Bounds(text=text, memory=max(_DENSEST * _LEAST, min(_DENSEST * text, free)))


def _read_size(given: str) -> int:
    try:
        size = Quantity.parse(given).value()
    except QuantityError as error:
        raise ConfigError(f"{VARIABLE}: {error}") from None
    if size <= 0:
        raise ConfigError(f"{VARIABLE}: {given!r} must be greater than 0, such as 2Gi")
    return size


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory available to this process: of the machine, or of its cgroup if less."""
    found = [size for size in (_machine(root), *_cgroups(root)) if size is not None]
    return max(0, min(found, default=_FALLBACK_MEMORY))


def _machine(root: Path) -> int | None:
    info = _read(root / "proc/meminfo")
    line = re.search(r"^MemAvailable:\s+([0-9]{1,15}) kB", info, re.MULTILINE)
    if line:
        return int(line[1]) * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):  # not known on this system
        return None


def _cgroups(root: Path) -> list[int]:
    """Return the memory left in each cgroup with a limit: for v2 up to the root, for v1 the process's own."""
    left: list[int] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            top = root / "sys/fs/cgroup"
            directory = top / path.strip("/")
            while True:
                left += _left(directory / "memory.max", directory / "memory.current")
                if directory == top or top not in directory.parents:
                    break
                directory = directory.parent
        elif "memory" in controllers.split(","):
            directory = root / "sys/fs/cgroup/memory" / path.strip("/")
            left += _left(directory / "memory.limit_in_bytes", directory / "memory.usage_in_bytes")
    return left


def _left(limit: Path, used: Path) -> list[int]:
    most, now = _read(limit).strip(), _read(used).strip()
    return [int(most) - int(now)] if most.isdecimal() and now.isdecimal() else []


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


# -- JSON that is small as text but huge as objects

#: Bytes of memory for each object, list and value of a decoded tree, rounded up.
_OBJECT, _LIST, _VALUE = 232, 88, 64
#: Size from which the density of a text is checked.
_DENSE_FROM = 256 * _MIB


def check_density(text: bytes | str, source: str, bounds: Bounds) -> None:
    """Raise InputError if decoded JSON would need more memory than the limit.

    The estimate counts brackets and commas, also those in strings: it is an upper bound, two to four times
    the actual memory of a cluster dump.
    """
    need = 2 * len(text) + (
        _OBJECT * text.count("{") + _LIST * text.count("[") + _VALUE * text.count(",")
        if isinstance(text, str)
        else _OBJECT * text.count(b"{") + _LIST * text.count(b"[") + _VALUE * text.count(b",")
    )
    limit = min(bounds.memory, max(_DENSE_FROM, bounds.density * len(text)))
    if need > limit:
        raise InputError(
            f"{source}: would need about {show_size(need)} of memory; the limit is {show_size(limit)} "
            f"for a text of {show_size(len(text))}; {limit_hint('split it')}"
        )


def limit_hint(otherwise: str) -> str:
    """Return the fix for a file that is too large: split or unpack it, or raise the limit."""
    return f"{otherwise}, or raise the limit with {VARIABLE}=SIZE (such as 2Gi)"


def show_size(octets: int) -> str:
    """Format a size, such as `512 MiB`."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if octets >= 1 << shift:
            shown = f"{octets / (1 << shift):.1f}".removesuffix(".0")
            return f"{shown} {unit}"
    return f"{octets} B"
