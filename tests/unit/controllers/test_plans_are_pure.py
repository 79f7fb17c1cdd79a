"""Plans decide from their arguments alone, read from the code itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PLANS = Path(__file__).parents[3] / "src" / "plimsoll" / "controllers" / "plans"
#: What a plan may know beside the core: its words for actions, and where kinds are served.
KNOWN = (
    "plimsoll.api",
    "plimsoll.ledger",
    "plimsoll.client.endpoints",
    "plimsoll.client.event_recorder",
    "plimsoll.controllers.actions",
    "plimsoll.controllers.plans",
)
FOREIGN = {"__future__", "collections", "dataclasses", "datetime", "enum", "msgspec", "re", "typing"}


def imports(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for_types_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", sorted(PLANS.glob("*.py")), ids=lambda path: path.name)
def test_plans_are_pure(path: Path) -> None:
    for module in imports(path):
        ours = module.startswith(KNOWN)
        assert ours or module.split(".")[0] in FOREIGN, f"{path.name} must not import {module}"
    calls = {
        ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    }
    assert not calls & {"datetime.now", "datetime.utcnow", "open", "print"}
