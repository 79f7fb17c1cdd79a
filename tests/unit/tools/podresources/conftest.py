"""Fixtures of the PodResources tool tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose sockets have paths that the kernel takes."""
    found = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    yield found
    shutil.rmtree(found)
