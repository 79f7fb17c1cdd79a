"""Numbers in the kernel's files.

Includes the working set as the kubelet computes it: memory usage less inactive file pages, which can be
reclaimed at once.
"""

from __future__ import annotations


def number(text: str | None) -> int | None:
    """Parse a non-negative integer; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def entry(text: str | None, name: str) -> int | None:
    """Return one number of a file of `name number` lines."""
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return number(value.strip())
    return None


def working_set(usage: int, stat: str | None, inactive: str) -> int:
    """Return the memory usage less what can be reclaimed at once; never below zero."""
    return max(0, usage - (entry(stat, inactive) or 0))
