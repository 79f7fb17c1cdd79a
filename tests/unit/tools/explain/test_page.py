"""Outputs in docs/explain.md equal the recorded ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
BLOCK = re.compile(r"<!-- (tests/golden/\S+) -->\n```text\n(.*?)```\n", re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "docs" / "explain.md").read_text())


@pytest.mark.parametrize(("name", "text"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_an_output_on_the_page_is_the_real_one(name: str, text: str) -> None:
    assert text == (ROOT / name).read_text(), f"copy {name} to docs/explain.md"


def test_the_page_has_outputs() -> None:
    assert len(BLOCKS) > 30
