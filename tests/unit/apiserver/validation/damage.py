"""Random damage to objects."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from typing import Any

VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**63, -(2**63), 2**70, 1.5, float("inf"), object()),
    *("", "a", "A", "a b", "a/b", "a/b/c", "/", "é", "\ud800", "\x00", "x" * 300, "All", "Exists"),
    *("1", "-1", "0", "1e999", "500m", "2025-01-01T00:00:00Z", "device.driver == 'x'", "(" * 50),
    *([], {}, [None], [[]], [{}], {"": None}, {"a": None}, {"name": "x"}, [1, "a"]),
]


def find_places(tree: Any) -> list[tuple[Any, Any]]:
    """Yield every (container, key) of the tree."""
    found: list[tuple[Any, Any]] = []
    if isinstance(tree, dict):
        found += [(tree, key) for key in tree]
        for value in tree.values():
            found += find_places(value)
    elif isinstance(tree, list):
        found += [(tree, place) for place in range(len(tree))]
        for value in tree:
            found += find_places(value)
    return found


def damage(tree: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    tree = copy.deepcopy(tree)
    for _ in range(chance.randint(1, 4)):
        places = find_places(tree)
        if not places:
            break
        holder, key = chance.choice(places)
        how = chance.randrange(5)
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, list):
            holder.extend([holder[key]] * chance.choice([1, 10, 130]))
        elif how == 2 and isinstance(holder, dict):
            holder[chance.choice(["a b", "x" * 200, "", "é", "spec", "name"])] = holder.pop(key)
        elif how == 3:
            other, name = chance.choice(places)
            holder[key] = copy.deepcopy(other[name]) if name in _keys(other) else None
        else:
            holder[key] = copy.deepcopy(chance.choice(VALUES))
    return tree


def _keys(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else range(len(holder))


def fuzz_for_a_minute(fuzz: Callable[[int], None]) -> None:
    """Run cases by their seeds, none of which may take long."""
    start, seed = time.monotonic(), 0
    while time.monotonic() - start < 60:
        before = time.process_time()
        fuzz(seed)
        assert time.process_time() - before < 30, f"seed {seed} took too long"
        seed += 1
    assert seed > 1000
