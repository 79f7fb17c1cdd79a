"""Fixtures of the PodResources tool tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.directories import short_directory


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as path:
        yield path
