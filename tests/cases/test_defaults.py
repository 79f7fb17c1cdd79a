"""Claims without allocationMode and count are read as the API defaults them, although they look stored."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.tools.audit import audit
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import explain_pending, explain_pod
from plimsoll.tools.top.top import top
from tests.cases.cases import case_objects
from tests.dumps import make_cluster_state

QUESTIONS: dict[str, Callable[[ClusterState], Any]] = {
    "explain": lambda state: explain_pod(state, state.pod("next", "d")),
    "pending": explain_pending,
    "audit": audit,
    "top": top,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_defaults_that_were_removed_change_no_answer(question: str) -> None:
    whole = case_objects("small/dual.yaml")
    bare = copy.deepcopy(whole)
    for tree in bare:
        for request in tree.get("spec", {}).get("devices", {}).get("requests", ()) if is_claim(tree) else ():
            del request["exactly"]["allocationMode"], request["exactly"]["count"]
    assert bare != whole
    assert answer(question, make_cluster_state(bare)) == answer(question, make_cluster_state(whole))


def is_claim(tree: dict[str, Any]) -> bool:
    return str(tree["kind"]) == "ResourceClaim"


def answer(question: str, state: ClusterState) -> list[str]:
    """Return the lines of an answer; the last word of some is the file that was read."""
    report = QUESTIONS[question](state)
    return [line.partition(" in /")[0] for line in report.lines(PLAIN)]
