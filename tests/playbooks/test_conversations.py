"""Scripts of `conversations.txt`, one test each: every order of prepare, start, crash, restart and release,
with drivers, agents and API servers that stop and start.
"""

from __future__ import annotations

import pytest

from tests.playbooks.script import CONVERSATIONS, run_script


@pytest.mark.parametrize("script", CONVERSATIONS.values(), ids=list(CONVERSATIONS))
def test_conversation(script: str) -> None:
    run_script(script)
