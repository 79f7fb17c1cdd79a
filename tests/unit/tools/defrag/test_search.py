"""The fewest moves, compared with trying all sets of pods."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.codec import convert
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.defrag import DefragLimits, DefragTarget, find_moves
from tests.build import (
    device_class,
    member,
    node,
    pod,
    pod_group,
)


def owned(kind: str = "ReplicaSet", **fields: Any) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "rs", "controller": True}
    return {"ownerReferences": [owner], **fields}


def worker(name: str, where: str, cpu: str, **fields: Any) -> Any:
    return pod(name, cpu=cpu, node=where, metadata=owned(), **fields)


def state_of(*things: Any) -> ClusterState:
    return ClusterState(ClusterObjects(things))


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
    found = find_moves(state, DefragTarget(pod="big"))
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
