"""Predictions of kube-scheduler 1.36: exact differences from our scheduling."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.gates import Gates
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import try_node
from plimsoll.scheduler.devices.scores import count_points, score_points
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption import Preemption, plan_preemption
from plimsoll.scheduler.profile import SAMPLED_FROM, DeviceOrder, SchedulerProfile, Scoring
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.scores.node_resources import BalancedAllocationScorer, NodeResourcesFitScorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)
from tests.unit.scheduler.scores.node_resource_scores import doubles, scores
from tests.unit.scheduler.snapshots import snapshot_of

OURS = SchedulerProfile.default()
STOCK = SchedulerProfile(device_order=DeviceOrder.FIRST, scoring=Scoring.STOCK, explore=SAMPLED_FROM)


def make_snapshot(*objects: Any) -> Snapshot:
    return snapshot_of(*objects, gates=Gates.default(), profile=AccountingProfile.upstream_1_36())


def decide(wanting: Any, snapshot: Snapshot, settings: SchedulerProfile = STOCK) -> str:
    """Return the node of a pod, or its FailedScheduling message."""
    pod_info = read_pod_info(wanting, snapshot)
    assert not isinstance(pod_info, NodeReason)
    ids = count()
    found = schedule_one(pod_info, snapshot, settings, lambda: f"share-{next(ids)}")
    assert isinstance(found, (Placement, FitError))
    return found.node if isinstance(found, Placement) else render_fit_error(found)


def kinds(*names: str) -> str:
    return f'device.attributes["{DRIVER}"].kind in {list(names)}'.replace("'", '"')


# -- scores


def test_pod_level_requests_are_scored() -> None:
    snapshot = snapshot_of(node("n", cpu="10", memory="10000"))
    wanting = pod("w", cpu="1", memory="1000", resources={"requests": {"cpu": "5", "memory": "5000"}})
    assert scores(NodeResourcesFitScorer, wanting, snapshot) == {"n": 50}
    assert scores(NodeResourcesFitScorer, wanting, snapshot, STOCK) == {"n": 90}
    assert SchedulerProfile.read({"scoring": "as-kube-scheduler"}).scoring is Scoring.STOCK


@given(data=st.data())
@pytest.mark.parametrize("number", [2, 3])
def test_balance_is_kube_schedulers_to_the_last_bit(number: int, data: st.DataObject) -> None:
    names = ("memory", "ephemeral-storage", "example.com/gpu")[:number]
    amounts = st.lists(st.integers(1, 5000), min_size=number, max_size=number)
    lines, used, wanted = data.draw(amounts), data.draw(amounts), data.draw(amounts)
    line, held, asked = (dict(zip(names, map(str, each), strict=True)) for each in (lines, used, wanted))
    snapshot = snapshot_of(node("n", extended=line), pod("other", node="n", requests=held))
    settings = SchedulerProfile(balanced=names, scoring=Scoring.STOCK)
    found = scores(BalancedAllocationScorer, pod("w", requests=asked), snapshot, settings)["n"]
    assert found == doubles(lines, used, wanted)


def test_alternatives_score_relative_to_the_length_of_their_list() -> None:
    ways = first_available("r", exactly("dear", select=kinds("a")), exactly("cheap", select=kinds("b")))
    snapshot = make_snapshot(
        *(node("a", cpu="1"), node("b", cpu="100"), device_class(), claim("c", ways)),
        *(resource_slice([device("d", kind="a")], "a"), resource_slice([device("d", kind="b")], "b")),
    )
    pod_info = read_pod_info(pod("p", cpu="1", claims=["c"]), snapshot)
    assert isinstance(pod_info, PodInfo)
    fits = [try_node(pod_info, row, snapshot, lambda: "") for row in (0, 1)]
    assert [fit.rank for fit in fits] == [100, 50]  # type: ignore[union-attr]
    points = [count_points(pod_info.claims, fit.allocations) for fit in fits]  # type: ignore[union-attr]
    assert (points, score_points(points)) == ([8, 7], [100, 87])
    # 100 more for the better device, or 26; about 50 less for a node that is then full
    wanting = pod("p", cpu="1", claims=["c"])
    assert (decide(wanting, snapshot, OURS), decide(wanting, snapshot)) == ("a", "b")


# -- order of the rules


def test_an_error_on_one_node_ends_the_attempt() -> None:
    everything = exactly("r", mode="All")
    snapshot = make_snapshot(
        *(node("a"), node("b"), device_class(), claim("c", everything)),
        resource_slice([device("d")], "a"),
        resource_slice([device("d")], "b", count=2),
    )
    wanting = pod("p", claims=["c"])
    assert decide(wanting, snapshot, OURS) == "a"
    assert decide(wanting, snapshot).endswith(f"resource pool {DRIVER}/b is currently being updated")


def test_a_device_that_is_taken_makes_way_for_a_cheaper_one() -> None:
    """Refusals by the ledger are not cached if devices are chosen first."""
    offered = [charging_device("a-dear", cpu="3"), charging_device("b-cheap", cpu="1")]
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": "a-dear"}]
    snapshot = make_snapshot(
        *(node("n", cpu="4"), resource_slice(offered, "n"), device_class()),
        *(claim("c", exactly()), claim("d", exactly())),
    )
    wanting = pod("p", cpu="2", claims=["c"])
    assert decide(wanting, snapshot) == "0/1 nodes are available: 1 Insufficient cpu."
    assert decide(wanting, snapshot) == "0/1 nodes are available: 1 Insufficient cpu."
    snapshot.set(claim("d", exactly(), results=results, node="n"))
    assert decide(wanting, snapshot) == "n"


def test_a_claim_allocated_elsewhere_is_reported_last() -> None:
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": "d"}]
    snapshot = make_snapshot(
        *(node("a"), node("b"), device_class()),
        *(resource_slice([device("d")], "a"), resource_slice([], "b")),
        *(claim("there", exactly(), results=results, node="a"), claim("c", exactly())),
    )
    both = pod("p", claims=["there", "c"])
    ours = "0/2 nodes are available: 1 cannot allocate all claims, 1 resourceclaim not available on the node."
    assert decide(both, snapshot, OURS) == ours
    assert decide(both, snapshot) == "0/2 nodes are available: 2 cannot allocate all claims."
    assert decide(pod("q", claims=["there"]), snapshot) == "a"


def test_a_claim_in_use_is_reported_first() -> None:
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": "d"}]
    charges = [{"resourceClaimName": "there", "containers": ["main"], "resources": {"cpu": "1"}}]
    snapshot = make_snapshot(
        *(node("n"), device_class(), resource_slice([charging_device("d", cpu="1")], "n")),
        *(claim("there", exactly(), results=results, node="n"), claim("c", exactly())),
        pod("holder", node="n", claims=["there"], status={"nodeAllocatableResourceClaimStatuses": charges}),
    )
    both = pod("p", claims=["there", "c"])
    taken = "node allocatable resource claim there is already used by another pod"
    assert decide(both, snapshot, OURS) == "0/1 nodes are available: 1 cannot allocate all claims."
    assert decide(both, snapshot) == f"0/1 nodes are available: 1 {taken}."


def test_devices_of_victims_stay_held_in_dry_runs() -> None:
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": "d"}]
    snapshot = make_snapshot(
        *(node("n", cpu="4"), device_class(), resource_slice([device("d")], "n")),
        *(claim("held", exactly(), results=results, node="n", reserved=["low"]), claim("c", exactly())),
        pod("low", node="n", cpu="4", claims=["held"]),
    )
    pod_info = read_pod_info(pod("p", cpu="4", claims=["c"], priority=1), snapshot)
    assert isinstance(pod_info, PodInfo)
    for settings, helps in ((OURS, True), (STOCK, False)):
        found = schedule_one(pod_info, snapshot, settings, lambda: "")
        assert isinstance(found, FitError)
        plan = plan_preemption(found, snapshot, settings)
        assert isinstance(plan, Preemption) is helps


def test_many_nodes_are_searched_in_score_order() -> None:
    """From 100 nodes on, kube-scheduler samples an unknown subset of nodes."""
    assert STOCK.searches_all_nodes(SAMPLED_FROM - 1)
    assert not STOCK.searches_all_nodes(SAMPLED_FROM)
    assert not OURS.searches_all_nodes(1)
