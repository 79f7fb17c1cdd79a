"""Fixtures of the PodResources tool tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory() -> Iterator[Path]:
    """Directory with a path short enough for sockets."""
    found = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    yield found
    shutil.rmtree(found)
