"""Every deliberate difference from upstream names its test, and docs/compat.md lists it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIFF = re.compile(r"DIFF:(.*?)(?=DIFF:|\n\s*\n|\"\"\"|\Z)", re.DOTALL)
TEST = re.compile(r"\btest_\w+")


def test_every_difference_names_a_test_that_exists_and_is_documented() -> None:
    existing = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        existing |= set(re.findall(r"def (test_\w+)", path.read_text()))
    compat = (ROOT / "docs" / "compat.md").read_text()
    found = 0
    for path in sorted((ROOT / "src").rglob("*.py")):
        for match in DIFF.finditer(path.read_text()):
            found += 1
            tests = TEST.findall(match[1])
            assert tests, f"{path}: a DIFF: without the name of its test: {match[0][:80]!r}"
            for test in tests:
                assert test in existing, f"{path}: DIFF: names {test}, which does not exist"
                assert test in compat, f"{path}: {test} is not in docs/compat.md"
    assert found
    for test in TEST.findall(compat):
        assert test in existing, f"docs/compat.md names {test}, which does not exist"
