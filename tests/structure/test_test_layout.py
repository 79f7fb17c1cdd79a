"""Layout of the tests: `tests/unit` mirrors `src`, and no test imports from another test module."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT, PACKAGE = ROOT / "tests" / "unit", ROOT / "src" / "plimsoll"
_FROM_TEST = re.compile(r"^\s*(?:from|import) +(\S+\.test_\w+)", re.M)


def test_unit_tests_have_the_directories_of_the_package() -> None:
    directories = {path.parent.relative_to(UNIT) for path in UNIT.rglob("*.py")}
    assert [str(each) for each in sorted(directories) if not (PACKAGE / each).is_dir()] == []


def test_helpers_are_not_in_test_modules() -> None:
    imported = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("tests", "bench", "release")
        for path in (ROOT / folder).rglob("*.py")
        for name in _FROM_TEST.findall(path.read_text())
    }
    assert imported == set()
