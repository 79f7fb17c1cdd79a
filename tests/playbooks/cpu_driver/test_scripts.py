"""Step-by-step scenarios for the CPU driver from `scenarios.txt`, one test each."""

from __future__ import annotations

import pytest

from tests.playbooks.cpu_driver.script import STORIES, run_script


@pytest.mark.parametrize("script", STORIES.values(), ids=list(STORIES))
def test_script(script: str) -> None:
    run_script(script)
