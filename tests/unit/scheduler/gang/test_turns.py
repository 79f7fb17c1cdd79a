"""Attempts of pod groups that take several turns, while the cluster changes in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.scheduling import PodGroup
from plimsoll.scheduler.gang.cycle import RESTARTS, GroupResult, group_turns, schedule_group
from plimsoll.scheduler.gang.preemption import GroupPreemption, preemption_turns
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import claim, device, device_class, exactly, member, node, pod, pod_group, resource_slice
from tests.sizes import examples
from tests.unit.scheduler.overdrafts import find_overdrafts
from tests.unit.scheduler.snapshots import snapshot_of

T = TypeVar("T")
PROFILE = SchedulerProfile.default()


def attempt(
    group: PodGroup, members: Sequence[Pod], snapshot: Snapshot
) -> Generator[None, bool | None, GroupResult]:
    ids = (f"share-{number}" for number in itertools.count())
    return group_turns(group, members, snapshot, lambda each: PROFILE, lambda: next(ids))


def drive(turns: Generator[None, bool | None, T], between: Callable[[int], Any] = lambda turn: None) -> T:
    """Take all turns; `between` is called after each with its number, and returns what is sent."""
    sent: Any = None
    for turn in itertools.count():
        try:
            turns.send(sent)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        sent = between(turn)
    raise AssertionError


def nodes_of(result: GroupResult) -> list[str]:
    return sorted(each.node for each in result.placements)


def gang(count: int, cpu: str = "1", **fields: Any) -> list[Pod]:
    return [member(f"p{number}", cpu=cpu, **fields) for number in range(count)]


def test_a_node_that_is_removed_voids_the_placements_on_it() -> None:
    snapshot = snapshot_of(*(node(name, cpu="1") for name in "abc"))

    def remove_first(turn: int) -> None:
        if turn == 0:
            (placed,) = snapshot.assumed.values()
            snapshot.remove(snapshot.node(placed.row))
            snapshot.set(node("new", cpu="1"))  # takes its row

    result = drive(attempt(pod_group(min_count=3), gang(3), snapshot), remove_first)
    assert result.is_scheduled
    assert "new" in nodes_of(result)
    assert not snapshot.assumed


def test_an_attempt_starts_again_a_limited_number_of_times() -> None:
    snapshot, restarts = snapshot_of(node("a", cpu="9")), itertools.count()

    def replace_node(turn: int) -> None:
        (row,) = snapshot.rows()
        snapshot.remove(snapshot.node(row))
        snapshot.set(node(f"a-{next(restarts)}", cpu="9"))

    result = drive(attempt(pod_group(min_count=2), gang(2), snapshot), replace_node)
    assert (result.is_scheduled, result.gave_up, result.placements) == (False, True, ())
    assert next(restarts) == RESTARTS + 1
    assert verify(snapshot) == []


def test_an_attempt_that_is_closed_leaves_nothing() -> None:
    snapshot = snapshot_of(node("a", cpu="9"))
    turns = attempt(pod_group(min_count=3), gang(3), snapshot)
    next(turns)
    assert len(snapshot.assumed) == 1
    turns.close()
    assert not snapshot.assumed
    assert verify(snapshot) == []


def hard_case() -> tuple[Snapshot, list[Pod]]:
    """Return members for which a search is necessary."""
    return snapshot_of(node("small", cpu="2"), node("large", cpu="4")), [
        member("p1", cpu="2"), member("p2", cpu="4")
    ]  # fmt: skip


def test_a_search_ends_when_the_cluster_changes_or_the_caller_wants() -> None:
    snapshot, members = hard_case()
    assert drive(attempt(pod_group(min_count=2), members, snapshot)).searched
    found = drive(attempt(pod_group(min_count=2), members, snapshot), lambda turn: True)
    assert (found.is_scheduled, found.gave_up) == (False, True)
    other = (pod(f"other{number}", node="large", cpu="0") for number in itertools.count())
    found = drive(attempt(pod_group(min_count=2), members, snapshot), lambda turn: snapshot.set(next(other)))
    assert (found.is_scheduled, found.gave_up) == (False, True)


def test_a_large_gang_is_searched() -> None:
    """More members than Python allows nested calls, the last of which fits only on the second node."""
    snapshot = snapshot_of(
        node("large", cpu="600", pods="1000"), node("small", cpu="2", labels={"size": "small"})
    )
    last = member("last", cpu="2", node_selector={"size": "small"})
    result = drive(attempt(pod_group(min_count=601), [*gang(600), last], snapshot))
    assert result.is_scheduled
    assert result.searched


def test_members_with_claims_of_their_own_are_interchangeable() -> None:
    """Without that, the search would try all orders of the members."""
    devices = [resource_slice([device("d0"), device("d1")], name) for name in "ab"]
    claims = [claim(f"c{number}", exactly(count=2)) for number in range(3)]
    snapshot = snapshot_of(node("a"), node("b"), device_class(), *devices, *claims)
    members = [member(f"p{number}", claims={"d": f"c{number}"}) for number in range(3)]
    result = drive(attempt(pod_group(min_count=3), members, snapshot))
    assert (result.is_scheduled, result.gave_up) == (False, False)
    assert result.searched < 6


EVENTS = st.lists(
    st.tuples(st.sampled_from(["node", "gone", "pod", "deleted", "claim", ""]), st.integers(0, 3)),
    max_size=12,
)


@given(EVENTS, st.lists(st.integers(1, 3), min_size=1, max_size=5), st.booleans())
@example([("node", 1), ("node", 1), ("node", 1), ("node", 1), ("node", 0)], [1, 2, 1, 3], True)
@settings(max_examples=examples(200), deadline=None)
def test_random_events_between_turns(
    events: list[tuple[str, int]], sizes: list[int], in_one_rack: bool
) -> None:
    """The placements are on existing nodes, and nothing is left of the attempt."""

    def rack_node(number: int) -> Any:
        return node(f"n{number}", cpu="4", labels={"rack": f"r{number % 2}"})

    snapshot = snapshot_of(*map(rack_node, range(4)), device_class())
    members = [member(f"p{number}", cpu=str(cpu)) for number, cpu in enumerate(sizes)]
    names = itertools.count()

    def event(turn: int) -> None:
        kind, number = events[turn] if turn < len(events) else ("", 0)
        if kind == "node":
            for more in range(40):  # the snapshot grows
                snapshot.set(rack_node(4 + number * 40 + more))
        elif kind == "gone":
            snapshot.remove(rack_node(number))
        elif kind == "pod" and snapshot.row_of(f"n{number}") is not None:
            snapshot.set(pod(f"other{next(names)}", node=f"n{number}", cpu="0"))
        elif kind == "deleted":
            snapshot.remove(members[number % len(members)])
        elif kind == "claim":
            snapshot.set(claim(f"c{number}", exactly()))

    group = pod_group(min_count=len(members), topology="rack" if in_one_rack else "")
    result = drive(attempt(group, members, snapshot), event)
    assert not snapshot.assumed
    assert verify(snapshot) == []
    assert all(snapshot.row_of(each.node) == each.row for each in result.placements)
    racks = {snapshot.node(each.row).metadata.labels["rack"] for each in result.placements}
    assert len(racks) <= 1 or not in_one_rack
    for placement in result.placements:
        snapshot.assume(placement)
    assert find_overdrafts(snapshot) == []


# -- preemption


def preempt(
    count: int, snapshot: Snapshot, between: Callable[[int], Any] = lambda turn: None
) -> GroupPreemption | str:
    group, members = pod_group(min_count=count, priority=10), gang(count, priority=10)
    ids = (f"share-{number}" for number in itertools.count())

    def schedule(steps: int) -> GroupResult:
        return schedule_group(group, members, snapshot, lambda each: PROFILE, lambda: next(ids), steps=steps)

    return drive(preemption_turns(group, members, snapshot, schedule), between)


def full_cluster(nodes: int) -> Snapshot:
    running = [pod(f"v{number}", cpu="1", node=f"n{number}") for number in range(nodes)]
    return snapshot_of(*(node(f"n{number}", cpu="1") for number in range(nodes)), *running)


def test_the_cluster_is_complete_between_turns_of_a_preemption() -> None:
    snapshot, seen = full_cluster(70), set()
    pods = len(snapshot.pod_keys())
    found = preempt(65, snapshot, lambda turn: seen.add((turn, len(snapshot.pod_keys()))))
    assert isinstance(found, GroupPreemption)
    assert len(found.victims) == 65
    assert {number for _, number in seen} == {pods}
    assert len(seen) > 1


def test_victims_that_are_gone_are_not_preempted() -> None:
    snapshot = full_cluster(70)

    def delete(turn: int) -> None:
        if turn == 2:
            for number in (0, 1):
                snapshot.remove(pod(f"v{number}"))

    found = preempt(65, snapshot, delete)
    assert isinstance(found, GroupPreemption)
    assert not {"v0", "v1"} & {each.metadata.name for each in found.victims}
    assert verify(snapshot) == []


def test_a_preemption_that_no_longer_helps_is_given_up() -> None:
    snapshot = full_cluster(66)

    def cordon(turn: int) -> None:
        for number in range(10):
            snapshot.set(node(f"n{number}", cpu="1", unschedulable=True))

    assert isinstance(preempt(65, snapshot, cordon), str)
    assert verify(snapshot) == []
