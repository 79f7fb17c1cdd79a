"""States of branches derived from the beginning, compared with those read from all pods."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.whatif import Whatif
from plimsoll.tools.whatif.outcome import NodeNames, compare_states
from plimsoll.tools.whatif.start_state import StartState
from plimsoll.tools.whatif.verdict import judge
from tests.build import pod
from tests.sizes import examples
from tests.unit.tools.whatif.random_operations import STEPS, cluster, do


def with_ended_pods() -> Whatif:
    """Return a cluster that also has pods that ended, are being deleted, or name an unknown node."""
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    ended = [
        pod("done", cpu="1", node="a", status={"phase": "Succeeded"}),
        pod("leaving", cpu="1", metadata=deleted),
        pod("lost", cpu="1", node="nowhere"),
        pod("huge", cpu="90"),
    ]
    return Whatif(ClusterState(ClusterObjects([*cluster(), *ended])))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=6), st.lists(STEPS, max_size=6), st.booleans())
def test_derived_states_equal_those_of_all_pods(
    first: list[tuple[Any, ...]], second: list[tuple[Any, ...]], scheduled: bool
) -> None:
    whatif = with_ended_pods()
    if scheduled:  # reasons of an earlier round are not those of a branch
        whatif.schedule()
    start = StartState(whatif)
    assert dict(NodeNames(start.placements)) == {
        name: placement.node for name, placement in whatif.state().items()
    }
    found, naive = [], []
    for steps in (first, second):
        with whatif.branch() as branch:
            for number, step in enumerate(steps):
                do(branch, number, step)
            derived = start.derive(branch)
            found.append(derived)
            naive.append(branch.state())
            pods = branch.cluster_state.pods
            assert derived.placements == naive[-1]
            assert derived.placed == len([each for each in pods if each.spec.node_name])
            assert derived.pending == len(branch.cluster_state.pending)
            lowest = min([each.spec.priority or 0 for each in branch.cluster.bound()], default=0)
            assert branch.cluster.lowest_priority() == lowest
    names = found[0].names | found[1].names
    before, after = naive
    assert compare_states(before, after, names) == compare_states(before, after)
    asked: dict[str, Any] = {
        "added": [], "displaced": [], "drains": False, "evicted": [], "nodes": ["a", "b", "c"],
    }  # fmt: skip
    now = NodeNames(start.placements)
    assert judge(now, (before, after), names=names, **asked) == judge(now, (before, after), **asked)
