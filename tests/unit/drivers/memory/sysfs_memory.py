"""Directories that stand in for the memory of NUMA nodes in sysfs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write_memory(root: Path, node: int, total: int, huge: Mapping[int, int] | None = None) -> None:
    """Write a node with `total` bytes; `huge` are numbers of pages by page size in bytes."""
    directory = root / "sys/devices/system/node" / f"node{node}"
    directory.mkdir(parents=True, exist_ok=True)
    text = f"\nNode {node} MemTotal:       {total // 1024} kB\nNode {node} MemFree:        1024 kB\n"
    (directory / "meminfo").write_text(text)
    for size, count in (huge or {}).items():
        pages = directory / "hugepages" / f"hugepages-{size // 1024}kB"
        pages.mkdir(parents=True, exist_ok=True)
        (pages / "nr_hugepages").write_text(f"{count}\n")
