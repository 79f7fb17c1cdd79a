"""Every order of prepare, start, crash, restart, release, and of drivers, agents and API servers that come
and go. A line is a step (`script.py`); after the last one everything comes back, all pods go, and nothing of
them may be left."""

from __future__ import annotations

import pytest

from tests.playbooks.script import play

CONVERSATIONS = {
    "a pod comes and goes": """
        driver comes
        agent starts
        pod p with a
        p runs
        quiet
        pod p is deleted
        p is gone
        quiet
        a asked 1
        a released 1
    """,
}


@pytest.mark.parametrize("script", CONVERSATIONS.values(), ids=list(CONVERSATIONS))
def test_conversation(script: str) -> None:
    play(script)
