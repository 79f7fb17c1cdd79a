"""Every order of prepare, start, crash, restart, release, and of drivers, agents and API servers that come
and go: the conversations of `conversations.txt`, one test each."""

from __future__ import annotations

import pytest

from tests.playbooks.script import CONVERSATIONS, run_script


@pytest.mark.parametrize("script", CONVERSATIONS.values(), ids=list(CONVERSATIONS))
def test_conversation(script: str) -> None:
    run_script(script)
