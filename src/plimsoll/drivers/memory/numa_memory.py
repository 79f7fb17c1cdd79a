"""Memory of the machine's NUMA nodes, read from sysfs (/sys/devices/system/node/nodeN).

`read_numa_memory` returns the memory and the huge pages of every node that has memory. Files that are missing
or malformed count as no memory of that kind; a machine without any node raises InputError.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.errors import InputError

NODES = "sys/devices/system/node"
_NODE = re.compile(r"node([0-9]{1,5})", re.ASCII)
_SIZE = re.compile(r"hugepages-([0-9]{1,12})kB", re.ASCII)
_TOTAL = re.compile(r"MemTotal:\s+([0-9]{1,15}) kB", re.ASCII)
_COUNT_MAX = 1 << 40


@dataclass(frozen=True, slots=True)
class NumaMemory:
    """Memory of one NUMA node in bytes; `huge` are the bytes in huge pages by page size, part of `total`."""

    node: int
    total: int
    huge: Mapping[int, int] = field(default_factory=dict)

    @property
    def ordinary(self) -> int:
        """Bytes that are not set aside for huge pages."""
        return max(0, self.total - sum(self.huge.values()))


def read_numa_memory(root: Path = Path("/")) -> tuple[NumaMemory, ...]:
    """Read the nodes with memory, in order; raises InputError if there is none."""
    directory = root / NODES
    try:
        names = [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror or error}") from None
    found = []
    for name in names:
        match = _NODE.fullmatch(name)
        if match is None:
            continue
        total = _read_total(directory / name / "meminfo")
        if total:
            found.append(NumaMemory(int(match[1]), total, _read_huge(directory / name / "hugepages")))
    if not found:
        raise InputError(f"{directory}: no NUMA node with memory (nodeN/meminfo)")
    return tuple(sorted(found, key=lambda each: each.node))


def _read_total(path: Path) -> int:
    match = _TOTAL.search(_read_text(path))
    return int(match[1]) * 1024 if match is not None else 0


def _read_huge(directory: Path) -> dict[int, int]:
    """Return the bytes in huge pages by page size; sizes without pages are included with 0."""
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except OSError:
        return {}
    found = {}
    for name in names:
        if match := _SIZE.fullmatch(name):
            size = int(match[1]) * 1024
            text = _read_text(directory / name / "nr_hugepages").strip()
            count = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
            if size and count < _COUNT_MAX:
                found[size] = size * count
    return dict(sorted(found.items()))


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
