"""The fewest moves, compared with trying all sets of pods."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.errors import InputError
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.defrag import DefragLimits, DefragResult, DefragTarget, add_target, find_moves
from plimsoll.tools.defrag.search import MoveSearch
from plimsoll.tools.whatif import Whatif
from tests.build import (
    DRIVER,
    claim,
    device,
    device_class,
    exactly,
    member,
    node,
    pod,
    pod_group,
    resource_slice,
)
from tests.sizes import examples


def owned(kind: str = "ReplicaSet", **fields: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "rs", "controller": True}
    return {"ownerReferences": [owner], **fields}


def worker(name: str, where: str, cpu: str, **fields: Any) -> Any:
    return pod(name, cpu=cpu, node=where, metadata=owned(), **fields)


def state_of(*things: Any) -> ClusterState:
    return ClusterState(ClusterObjects(things))


def naive(state: ClusterState, target: DefragTarget, most: int) -> int | None:
    """The size of the smallest set that works, by trying all of them."""
    whatif = Whatif(state)
    targets = add_target(target, whatif)
    search = MoveSearch(whatif.cluster_state, targets, DefragLimits(), SchedulerProfile.default())
    for size in range(most + 1):
        for chosen in combinations(range(len(search.movable)), size):
            if search.attempt(frozenset(chosen)) is not None:
                return size
    return None


def check_against_naive(state: ClusterState, target: DefragTarget) -> DefragResult:
    found = find_moves(state, target, DefragLimits(moves=3))
    expected = naive(state, target, 3)
    assert found.exact
    assert (len(found.moves) if found.fits else None) == expected
    return found


#: Nodes by their cpu, and pods by node and cpu.
NODES = st.lists(st.integers(1, 6), min_size=1, max_size=3)
PODS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=5)


@settings(max_examples=examples(60), deadline=None)
@given(NODES, PODS, st.integers(1, 6))
def test_no_smaller_set_of_pods_works(sizes: list[int], placed: list[tuple[int, int]], wanted: int) -> None:
    things: list[Any] = [node(f"n{number}", cpu=str(cpu)) for number, cpu in enumerate(sizes)]
    left = list(sizes)
    for number, (where, cpu) in enumerate(placed):
        where %= len(sizes)
        if cpu <= left[where]:
            left[where] -= cpu
            things.append(worker(f"p{number}", f"n{where}", str(cpu)))
    check_against_naive(state_of(*things, pod("big", cpu=str(wanted))), DefragTarget(pod="big"))


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.sets(st.integers(0, 8), max_size=6),
    st.integers(1, 3),
)
def test_no_smaller_set_of_pods_frees_devices(sizes: list[int], taken: set[int], count: int) -> None:
    things: list[Any] = [device_class()]
    number = 0
    for place, size in enumerate(sizes):
        name = f"n{place}"
        things += [node(name), resource_slice([device(f"d{index}") for index in range(size)], name)]
        for index in range(size):
            if number in taken:
                result = {"request": "r", "driver": DRIVER, "pool": name, "device": f"d{index}"}
                user = f"p{number}"
                things.append(claim(f"c{number}", exactly(), results=[result], node=name, reserved=[user]))
                things.append(worker(user, name, "1", claims=[f"c{number}"]))
            number += 1
    check_against_naive(state_of(*things), DefragTarget(device_class="gpu", count=count))


def test_a_chain_of_moves_is_found() -> None:
    """The big pod needs n0; its pod fits only where another one is, which fits on n2."""
    state = state_of(
        node("n0", cpu="6"),
        node("n1", cpu="4"),
        node("n2", cpu="2"),
        worker("a", "n0", "4"),
        worker("b", "n1", "2"),
        pod("big", cpu="6"),
    )
    found = check_against_naive(state, DefragTarget(pod="big"))
    assert [(each.pod[1], each.source, each.node) for each in found.moves] == [
        ("a", "n0", "n1"), ("b", "n1", "n2"),
    ]  # fmt: skip
    assert found.placements == ((("default", "big"), "n0", ()),)


def test_nothing_moves_if_it_fits() -> None:
    found = find_moves(state_of(node("n"), pod("p", cpu="1")), DefragTarget(pod="p"))
    assert (found.fits, found.moves, found.tried) == (True, (), 1)


def test_pods_that_must_stay_are_not_moved() -> None:
    stays = [
        pod("bare", cpu="1", node="n0"),
        pod("daemon", cpu="1", node="n0", metadata=owned("DaemonSet")),
        pod("leaving", cpu="1", node="n0", metadata=owned(deletionTimestamp="2026-01-01T00:00:00Z")),
    ]
    state = state_of(node("n0", cpu="3"), node("n1", cpu="2"), *stays, pod("big", cpu="3"))
    found = find_moves(state, DefragTarget(pod="big"))
    assert (found.fits, found.movable, found.exact) == (False, 0, True)
    assert "Insufficient cpu" in found.why
    one = state_of(node("n0", cpu="2"), node("n1", cpu="1"), stays[0], pod("big", cpu="2"))
    assert not find_moves(one, DefragTarget(pod="big")).fits
    (move,) = find_moves(one, DefragTarget(pod="big"), DefragLimits(bare=True)).moves
    assert (move.pod, move.bare) == (("default", "bare"), True)


def test_disruption_budgets_are_kept() -> None:
    budget = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 1},
    }
    things = [
        node("n0", cpu="2"),
        node("n1", cpu="2"),
        *(worker(f"w{number}", "n0", "1", labels={"app": "web"}) for number in range(2)),
        pod("big", cpu="2"),
    ]
    assert len(find_moves(state_of(*things, node("n2", cpu="1")), DefragTarget(pod="big")).moves) == 0
    full = worker("x", "n1", "1")
    things = [*things, full, node("n2", cpu="1")]
    assert [each.pod[1] for each in find_moves(state_of(*things), DefragTarget(pod="big")).moves] == ["x"]
    protected = state_of(
        *things[:1], *things[2:-2], convert(budget, PodDisruptionBudget), node("n2", cpu="1")
    )
    assert not find_moves(protected, DefragTarget(pod="big")).fits


def test_a_gang_fits_after_moves() -> None:
    state = state_of(
        node("n0", cpu="4"),
        node("n1", cpu="2"),
        worker("a", "n0", "2"),
        pod_group("gang", 2),
        member("g-0", cpu="2"),
        member("g-1", cpu="2"),
    )
    found = find_moves(state, DefragTarget(group="gang"))
    assert found.fits
    assert (len(found.moves), len(found.placements)) in ((0, 2), (1, 2))


def test_the_cluster_state_is_not_changed() -> None:
    state = state_of(node("n0", cpu="2"), node("n1", cpu="1"), worker("a", "n0", "1"), pod("big", cpu="2"))
    before = list(state.objects)
    assert len(find_moves(state, DefragTarget(pod="big")).moves) == 1
    assert list(state.objects) == before


def test_a_search_that_ends_at_its_limit_is_not_called_exact() -> None:
    workers = [worker(f"w{number}", "n0", f"{100 + number}m") for number in range(6)]
    state = state_of(node("n0", cpu="800m"), node("n1", cpu="700m"), *workers, pod("big", cpu="800m"))
    found = find_moves(state, DefragTarget(pod="big"), DefragLimits(moves=6, steps=10))
    assert (found.fits, found.exact, len(found.moves)) == (True, False, 6)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (DefragTarget(pod="nothing"), "pod nothing not found"),
        (DefragTarget(pod="a"), "pod default/a is on node n0 already"),
        (DefragTarget(group="ml/none"), "PodGroup ml/none not found"),
        (DefragTarget(device_class="none"), "DeviceClass none not found"),
        (DefragTarget(add=(device_class(),)), "no pods among the added objects"),
    ],
)
def test_targets_that_cannot_be_found(target: DefragTarget, words: str) -> None:
    state = state_of(node("n0"), worker("a", "n0", "1"))
    with pytest.raises(InputError, match=words):
        find_moves(state, target)
