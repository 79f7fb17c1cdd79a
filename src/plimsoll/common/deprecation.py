"""Warnings for names that were renamed; the old name keeps working for one release."""

from __future__ import annotations

import warnings


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn the caller's caller that `old` is now called `new`."""
    warnings.warn(f"{old} is deprecated, use {new}", DeprecationWarning, stacklevel=stacklevel)
