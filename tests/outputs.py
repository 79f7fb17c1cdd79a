"""Outputs that are kept as files, so that a change of a word is seen in review.

`PLIMSOLL_GOLDEN=write pytest ...` writes them anew; look at the difference before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

GOLDEN_DIR = Path(__file__).parent / "golden"


def check_output(name: str, text: str) -> None:
    """Compare a text with the file of this name below tests/golden, as `top/nodes.txt`."""
    path = GOLDEN_DIR / name
    if os.environ.get("PLIMSOLL_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return
    if not path.exists():
        pytest.fail(f"{path} is missing; PLIMSOLL_GOLDEN=write makes it")
    assert text == path.read_text(), f"differs from {path}"
