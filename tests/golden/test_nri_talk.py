"""The CPU driver says to runtimes what it has always said, byte by byte."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.golden.nri_talk import NEW, OLD, RECORDING, talk


@pytest.mark.parametrize("generation", ["old", "new"])
def test_bytes_are_as_recorded(generation: str) -> None:
    recorded = json.loads(RECORDING.read_text())[generation]
    said = asyncio.run(talk({"old": OLD, "new": NEW}[generation]))
    assert [list(pair) for pair in said] == recorded
