"""Numbers in the files of the kernel.

Owns reading them, and the working set as the kubelet has it: memory in use less the file pages that nobody
has touched lately, which can be dropped at once.
"""

from __future__ import annotations


def number(text: str | None) -> int | None:
    """A whole number; None for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def entry(text: str | None, name: str) -> int | None:
    """One number of a file of `name number` lines."""
    for line in (text or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return number(value.strip())
    return None


def working_set(usage: int, stat: str | None, inactive: str) -> int:
    """What is in use less what can be dropped at once; never below zero."""
    return max(0, usage - (entry(stat, inactive) or 0))
