"""Temporary directories for tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_directory() -> Iterator[Path]:
    """Yield a temporary directory with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp", ignore_cleanup_errors=True) as path:
        yield Path(path)
