"""Fixtures: a directory in memory for tests that save thousands of times."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

#: Many times faster than a disk; any directory will do.
SHARED_MEMORY = "/dev/shm"


def memory_directory() -> str:
    """Return a new directory, in memory if possible."""
    fast = os.path.isdir(SHARED_MEMORY) and os.access(SHARED_MEMORY, os.W_OK)
    return tempfile.mkdtemp(prefix="p-", dir=SHARED_MEMORY if fast else None)


@pytest.fixture
def directory() -> Iterator[Path]:
    path = memory_directory()
    yield Path(path)
    shutil.rmtree(path)
