"""The public names: all of them, sorted, documented, and nothing else."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import plimsoll

REFERENCE = Path(__file__).parents[2] / "docs" / "python.md"


def test_all_lists_exactly_the_public_names() -> None:
    public = {
        name
        for name, value in vars(plimsoll).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(plimsoll.__all__) == public
    assert plimsoll.__all__ == sorted(plimsoll.__all__)


def test_every_public_name_is_documented() -> None:
    text = REFERENCE.read_text()
    for name in plimsoll.__all__:
        assert f"`{name}" in text, f"{name} is missing in docs/python.md"
        value = getattr(plimsoll, name)
        assert inspect.getdoc(value), f"{name} has no docstring"


def test_types_are_shipped() -> None:
    assert (Path(plimsoll.__file__).parent / "py.typed").exists()
