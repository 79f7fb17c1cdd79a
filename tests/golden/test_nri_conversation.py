"""The CPU driver sends the recorded bytes to runtimes."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.golden.nri_conversation import NEW, OLD, RECORDING, run_conversation


@pytest.mark.parametrize("generation", ["old", "new"])
def test_bytes_are_as_recorded(generation: str) -> None:
    recorded = json.loads(RECORDING.read_text())[generation]
    messages = asyncio.run(run_conversation({"old": OLD, "new": NEW}[generation]))
    assert [list(pair) for pair in messages] == recorded
