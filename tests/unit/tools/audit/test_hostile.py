"""An audit of any dump ends with a report or a one-line error."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.errors import PlimsollError
from plimsoll.tools.audit.junit import as_junit
from plimsoll.tools.audit.sarif import as_sarif
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.findings import Severity
from tests.sizes import seeds
from tests.unit.tools.audit.build import report_on
from tests.unit.tools.audit.sarif_rules import check_sarif

BROKEN = Path(__file__).parents[4] / "examples" / "audit" / "cluster.yaml"
ODD: tuple[Any, ...] = (None, "", "-1", "1e999", "\x1b[2J", 0, -1, 2**63 - 1, [], {}, True, "999Ei", "n1")


@pytest.fixture(scope="module")
def items() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.load(BROKEN.read_text(), yaml.CSafeLoader)["items"]
    return found


@pytest.mark.parametrize("seed", seeds(20))
def test_odd_values_anywhere(items: list[dict[str, Any]], seed: int) -> None:
    chance = random.Random(seed)
    trees = copy.deepcopy(items)
    for _ in range(chance.randint(1, 6)):
        _spoil(chance.choice(trees), chance)
    refused = ""
    try:
        report = report_on(*trees, live=chance.random() < 0.5)
    except PlimsollError as error:
        refused = str(error)
    if refused:
        assert "\n" not in refused
        return
    assert json.dumps(report.as_json())
    assert all(line.isprintable() for line in report.lines(PLAIN, wide=True))
    assert as_junit(report, Severity.INFO)
    check_sarif(as_sarif(report))


def _spoil(tree: Any, chance: random.Random) -> None:
    """Change or remove a random value below a tree, but not its kind."""
    places = [
        (at, key)
        for at, key in _places(tree)
        if not (at is tree and key in ("apiVersion", "kind", "metadata"))
    ]
    at, key = chance.choice(places)
    if isinstance(at, dict) and chance.random() < 0.3:
        del at[key]
    else:
        at[key] = chance.choice(ODD)


def _places(tree: Any) -> list[tuple[Any, Any]]:
    keys = tree.keys() if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    found = []
    for key in keys:
        found += [(tree, key), *_places(tree[key])]
    return found
