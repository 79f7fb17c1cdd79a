"""Random damage to a valid dump: every command ends with a report or a one-line error."""

from __future__ import annotations

import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.dumps import write_dump
from tests.questions.asking import COMMANDS, FILE_COMMANDS, ask
from tests.questions.clusters import rich_cluster
from tests.sizes import examples

Way = tuple[Any, ...]
WORLD = rich_cluster()
ALL = {**COMMANDS, **FILE_COMMANDS}
TEXTS = (
    "",
    "0",
    "-5",
    "1e-9",
    "1e1000",
    "9e18",
    "nonsense",
    "\x1b[2J",
    "a\nb",
    "x" * 2000,
    "node-0000",
    "node-0001",
    "work",
    "work/picky",
    "2026-11-15T00:00:00Z",
    "cpu.example.com",
    "NoExecute",
    "Exists",
)
NUMBERS = (0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**70)
OTHERS: tuple[Any, ...] = (None, True, 1.5, [], {}, [None], {"cpu": "-7"}, {"x": "y"}, [[]])


def _ways(tree: Any, way: Way = ()) -> list[Way]:
    inside: Any = ()
    if isinstance(tree, dict):
        inside = tree.items()
    elif isinstance(tree, list):
        inside = enumerate(tree)
    return [way, *(found for key, value in inside for found in _ways(value, (*way, key)))]


WAYS = _ways(WORLD)[1:]


def _at(tree: Any, way: Way) -> Any:
    for key in way:
        tree = tree[key]
    return tree


@st.composite
def _hurt(draw: st.DrawFn) -> tuple[Way, Any]:
    """Replace a random value, mostly by one of the same type, and return its path."""
    way = draw(st.sampled_from(WAYS))
    old = _at(WORLD, way)
    if isinstance(old, str):
        same: tuple[Any, ...] = TEXTS
    elif isinstance(old, (int, float)) and not isinstance(old, bool):
        same = NUMBERS
    else:
        same = (type(old)(),)
    choice = draw(st.integers(0, 9))
    if choice < 3:
        return way, ...
    if choice < 8:
        return way, draw(st.sampled_from(same))
    if choice < 9:
        return way, deepcopy(_at(WORLD, draw(st.sampled_from(WAYS))))
    return way, draw(st.sampled_from((*TEXTS, *NUMBERS, *OTHERS)))


def damaged(hurts: list[tuple[Way, Any]]) -> Any:
    trees: Any = deepcopy(WORLD)
    for way, value in hurts:
        try:
            place = _at(trees, way[:-1])
            if value is ...:
                del place[way[-1]]
            else:
                place[way[-1]] = value
        except (KeyError, IndexError, TypeError):
            pass  # what was there is gone already
    return trees


@given(
    st.lists(_hurt(), min_size=1, max_size=4), st.lists(st.sampled_from(sorted(ALL)), min_size=3, max_size=3)
)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_objects_never_crash_a_command(hurts: list[tuple[Way, Any]], names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = write_dump(damaged(hurts), Path(directory) / "dump.json", "json")
        for name in names:
            ask(*ALL[name], "-f", path).check()
