"""Fixes for pods of random clusters, applied to the JSON of the objects: what is printed works, and no change
that was tried by brute force works with less harm.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from plimsoll.api.codec import convert, view_type
from plimsoll.scheduler.result import Placement
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.fixes import find_fixes
from tests.sizes import examples
from tests.unit.tools.explain.symptoms import make_cluster_state
from tests.unit.tools.fixes.changes import all_changes, changed
from tests.unit.tools.fixes.clusters import schedule
from tests.unit.tools.fixes.json_edits import apply_json, find
from tests.unit.tools.fixes.random_cluster import random_cluster

Tree = dict[str, Any]
PARTS = range(4)


def cluster_state(trees: list[Tree]) -> ClusterState:
    return make_cluster_state([convert(tree, view_type(tree["apiVersion"], tree["kind"])) for tree in trees])


def fits(trees: list[Tree]) -> bool:
    state = cluster_state(trees)
    pod = state.pod("p")
    return not pod.spec.scheduling_gates and isinstance(schedule(state, pod), Placement)


@pytest.mark.sized
@pytest.mark.parametrize("part", PARTS)
def test_printed_fixes_work_and_need_each_step(part: int) -> None:
    for number in range(part, examples(2400), len(PARTS)):
        trees = random_cluster(number)
        state = cluster_state(trees)
        found = find_fixes(state, state.pod("p"))
        assert bool(found.fixes or found.note) != fits(trees), number
        for fix in found.fixes:
            printed = fix.as_json()
            assert fits(apply_json(trees, printed)), f"{number}: {fix.text}"
            for step in printed["steps"] if len(fix.steps) > 1 else ():
                rest = {"steps": [each for each in printed["steps"] if each is not step]}
                assert not fits(apply_json(trees, rest)), f"{number}: {step['text']} is not needed"


@pytest.mark.sized
@pytest.mark.parametrize("part", PARTS)
def test_no_change_works_with_less_harm(part: int) -> None:
    """If no fix was found, pairs of changes do not work either."""
    for number in range(part, examples(720), len(PARTS)):
        trees = random_cluster(number)
        if fits(trees):
            continue
        state = cluster_state(trees)
        found = find_fixes(state, state.pod("p"))
        least = found.fixes[0].cost if found.fixes else None
        is_gated = "schedulingGates" in find(trees, "Pod", "p", "default")["spec"]
        first, *changes = all_changes(trees)
        for chosen in (chosen for count in (0, 1, 2) for chosen in combinations(changes, count)):
            chosen = (first, *chosen) if is_gated else chosen
            harm = sum(each.harm for each in chosen)
            if (least is None or (harm < least and len(chosen) - is_gated < 2)) and chosen:
                worked = fits(changed(trees, *(each.change for each in chosen)))
                assert not worked, (number, [each.name for each in chosen], harm, found.fixes)
