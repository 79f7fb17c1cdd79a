"""Tests, benchmarks and release tools use public names only: they do not depend on how something is done."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("bench", "examples", "release", "tests")
#: Names of the standard library and of other packages that begin with an underscore.
FOREIGN = {
    "_app_transport",  # asyncio
    "_continue",  # the Kubernetes client
    "_exit",
    "_get_local_constants",  # hypothesis
    "_getframe",
    "_log_destroy_pending",  # asyncio
    "_replace",
    "_retry_connection",  # aiohttp
    "_run",  # asyncio
    "_run_exitfuncs",
}
#: What only some modules have: parsing all of them would take seconds.
_SUSPECT = re.compile(
    r"(?<!self)(?<!cls)(?<!super\(\))\._[A-Za-z]|^from .* import .*\b_[A-Za-z]|^    _\w+,$|[\"']_[A-Za-z]",
    re.M,
)
#: Faults that are planted into the product.
PATCHES = ROOT / "tests" / "simulation" / "planted.py"
_PATCHES = {"patch", "object", "setattr", "getattr", "delattr"}


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__")


def find_private_names(source: str) -> Iterator[str]:
    """Yield the private names of others that a module uses."""
    tree = ast.parse(source)
    own = {
        node.attr if isinstance(node, ast.Attribute) else node.name
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value))
        or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if node.attr not in own | FOREIGN and not _is_self(node.value):
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Call):
            function = node.func
            if getattr(function, "attr", getattr(function, "id", "")) in _PATCHES:
                texts = [each.value for each in node.args[:2] if isinstance(each, ast.Constant)]
                names = [text.rpartition(".")[2] for text in texts[:1] if isinstance(text, str)]
                yield from (name for name in names if is_private(name) and name not in FOREIGN)


def _is_self(node: ast.AST) -> bool:
    """Report whether attributes of this are those of the same object: `self`, `cls` or `super()`."""
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Name) and node.id in ("self", "cls", "super")


@pytest.mark.parametrize(
    "source",
    [
        "thing._part",
        "thing.part._inner = 3",
        "from plimsoll.api import _name",
        "monkeypatch.setattr(module, '_NAME', 3)",
        "patch('plimsoll.api._name', 3)",
    ],
)
def test_private_names_are_found(source: str) -> None:
    assert _SUSPECT.search(source)
    assert list(find_private_names(source))


@pytest.mark.parametrize(
    "source",
    [
        "thing.part",
        "thing.__class__",
        "class Mine:\n    def __init__(self): self._part = 3\n    def look(self): return self._part",
        "class Mine(Base):\n    def _hook(self): return super()._hook()",
        "patch('plimsoll.api.name', '_text')",
    ],
)
def test_own_and_public_names_are_not(source: str) -> None:
    assert not list(find_private_names(source))


def test_only_the_product_uses_its_private_names() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if path != PATCHES and _SUSPECT.search(source := path.read_text())
        for name in find_private_names(source)
    }
    assert not found
