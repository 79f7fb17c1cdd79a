"""Public names: complete, sorted and documented."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import plimsoll

REFERENCE = Path(__file__).parents[2] / "docs" / "python.md"


def test_all_lists_exactly_the_public_names() -> None:
    assert set(plimsoll.__all__) == set(plimsoll.HOMES)
    assert plimsoll.__all__ == sorted(plimsoll.__all__)
    assert set(plimsoll.__all__) <= set(dir(plimsoll))
    with pytest.raises(AttributeError):
        _ = plimsoll.nothing_of_this_name  # type: ignore[attr-defined,unused-ignore]


def test_public_names_are_imported_lazily() -> None:
    script = "import sys, plimsoll; print(*[m for m in sys.modules if m.startswith('plimsoll.')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_every_public_name_is_documented() -> None:
    text = REFERENCE.read_text()
    for name in plimsoll.__all__:
        assert re.search(rf"`{name}\b", text), f"{name} is missing in docs/python.md"
        value = getattr(plimsoll, name)
        assert inspect.getdoc(value), f"{name} has no docstring"


def test_pages_import_only_public_names() -> None:
    for page in (*REFERENCE.parent.glob("*.md"), REFERENCE.parents[1] / "README.md"):
        for names in re.findall(r"from plimsoll import (\([^)]*\)|[^\n]*)", page.read_text()):
            taken = set(re.findall(r"\w+", names))
            assert taken <= set(plimsoll.__all__), f"{page.name}: {taken - set(plimsoll.__all__)}"


def test_types_are_shipped() -> None:
    assert (Path(plimsoll.__file__).parent / "py.typed").exists()
