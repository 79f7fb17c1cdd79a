"""Preemption plan: eligibility, choice of the node, and messages without victims."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plimsoll.api.core import Pod
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption import (
    CandidateLimits,
    Nominations,
    NoPreemption,
    Preemption,
    plan_preemption,
)
from plimsoll.scheduler.preemption.plan import choose_victims
from plimsoll.scheduler.preemption.result import PreemptionMessage
from plimsoll.scheduler.preemption.victims import Victims
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
)
from tests.unit.scheduler.preemption.clusters import SETTINGS, attempt, budget, names_of
from tests.unit.scheduler.snapshots import snapshot_of

LEAVING = {
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
}


def fail(new: Pod, snapshot: Snapshot) -> FitError:
    pod_info = read_pod_info(new, snapshot)
    assert isinstance(pod_info, PodInfo), pod_info
    found = attempt(pod_info, snapshot)
    assert isinstance(found, FitError)
    return found


def plan(new: Pod, snapshot: Snapshot, **more: Any) -> Preemption | NoPreemption:
    found = plan_preemption(fail(new, snapshot), snapshot, SETTINGS, **more)
    assert not verify(snapshot)
    return found


def victims_of(new: Pod, snapshot: Snapshot, **more: Any) -> tuple[str, list[str]]:
    found = plan(new, snapshot, **more)
    assert isinstance(found, Preemption), found
    return found.node, names_of(found.victims)


# -- requests and claims


def held(name: str, on: str, *devices: str, reserved: str) -> Any:
    results = [{"request": "r", "driver": DRIVER, "pool": on, "device": each} for each in devices]
    return claim(name, exactly("r", count=len(devices)), results=results, node=on, reserved=[reserved])


def test_devices_of_victims_are_freed() -> None:
    """The only device is held by a pod of lower priority, which is preempted."""
    snapshot = snapshot_of(
        device_class(),
        node("a"),
        resource_slice([device("d1")], "a"),
        held("c-low", "a", "d1", reserved="low"),
        pod("low", node="a", claims=["c-low"]),
        pod("other", node="a"),
        claim("c-new", exactly("r")),
    )
    assert victims_of(pod("new", claims=["c-new"], priority=1), snapshot) == ("a", ["low"])


def test_charges_of_victims_claims_are_freed() -> None:
    """Six of eight CPUs are charged for a device: a pod that requests four gets them."""
    snapshot = snapshot_of(
        device_class(),
        node("a", cpu="8"),
        resource_slice([charging_device("d1", cpu="6")], "a"),
        held("c-low", "a", "d1", reserved="low"),
        pod("low", node="a", claims=["c-low"]),
    )
    assert victims_of(pod("new", cpu="4", priority=1), snapshot) == ("a", ["low"])


def test_a_victim_without_claims_frees_capacity_for_device_charges() -> None:
    snapshot = snapshot_of(
        device_class(),
        node("a", cpu="8"),
        resource_slice([charging_device("d1", cpu="6")], "a"),
        pod("low", cpu="4", node="a"),
        claim("c-new", exactly("r")),
    )
    assert victims_of(pod("new", claims=["c-new"], priority=1), snapshot) == ("a", ["low"])


def test_a_claim_shared_with_a_remaining_pod_keeps_its_devices() -> None:
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": "d1"}]
    snapshot = snapshot_of(
        device_class(),
        node("a"),
        resource_slice([device("d1")], "a"),
        claim("c", exactly("r"), results=results, node="a", reserved=["low", "high"]),
        pod("low", node="a", claims=["c"]),
        pod("high", node="a", claims=["c"], priority=9),
        claim("c-new", exactly("r")),
    )
    found = plan(pod("new", claims=["c-new"], priority=1), snapshot)
    assert isinstance(found, NoPreemption)
    assert found.text == "preemption: 0/1 nodes are available: 1 cannot allocate all claims."


def test_devices_of_a_claim_shared_by_the_new_pod_are_kept() -> None:
    """Its own claim is in use by a lower-priority pod; the device must not be allocated again."""
    snapshot = snapshot_of(
        device_class(),
        node("a"),
        resource_slice([device("d1")], "a"),
        held("mine", "a", "d1", reserved="low"),
        pod("low", node="a", claims=["mine"]),
        claim("more", exactly("r")),
    )
    found = plan(pod("new", claims=["mine", "more"], priority=1), snapshot)
    assert isinstance(found, NoPreemption)


def test_a_pool_is_removed_with_the_last_pod_drawing_from_it() -> None:
    """Six CPUs belong to a claim that two pods draw from: both must be preempted."""
    mapping = {"cpu": {"capacityKey": f"{DRIVER}/cpu", "accountingPolicy": "ConsumeFrom"}}
    pool = device("d1", capacity={f"{DRIVER}/cpu": "6"}, fields={"nodeAllocatableResourceMappings": mapping})
    result = {"request": "r", "driver": DRIVER, "pool": "a", "device": "d1"}
    snapshot = snapshot_of(
        device_class(),
        node("a", cpu="8"),
        resource_slice([pool], "a"),
        claim("c", exactly("r"), results=[result], node="a", reserved=["one", "two"]),
        pod("one", cpu="2", node="a", claims=["c"], priority=1),
        pod("two", cpu="2", node="a", claims=["c"]),
        pod("plain", cpu="1", node="a"),
    )
    assert snapshot.ledger(0).headroom()["cpu"] == 1000
    assert victims_of(pod("small", cpu="2", priority=5), snapshot) == ("a", ["plain"])
    assert sorted(victims_of(pod("large", cpu="4", priority=5), snapshot)[1]) == ["one", "two"]


# -- eligibility


def test_a_pod_that_never_preempts() -> None:
    snapshot = snapshot_of(node("a", cpu="1"), pod("low", cpu="1", node="a"))
    found = plan(pod("new", cpu="1", priority=1, preemption_policy="Never"), snapshot)
    assert isinstance(found, NoPreemption)
    assert found.text == "preemption: not eligible due to preemptionPolicy=Never."
    assert not found.clears_nomination


def leaving_snapshot(**metadata: Any) -> Snapshot:
    gone = pod("low", cpu="1", node="a", metadata=metadata, status=LEAVING if metadata else {})
    return snapshot_of(node("a", cpu="1"), gone, node("b", cpu="1"), pod("other", cpu="1", node="b"))


def test_a_pod_waits_for_terminating_victims() -> None:
    new = pod("new", cpu="1", priority=1, status={"nominatedNodeName": "a"})
    found = plan(new, leaving_snapshot(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert isinstance(found, NoPreemption)
    assert found.text == "preemption: not eligible due to a terminating pod on the nominated node."
    assert not found.clears_nomination


def test_a_pod_waits_for_victims_about_to_be_deleted() -> None:
    """The watch has not delivered the deletion yet, but the plan is known here."""
    new, nominations = pod("new", cpu="1", priority=1), Nominations()
    snapshot = leaving_snapshot()
    nominations.nominate(new, "a", snapshot.pods_at(0))
    found = plan(new, snapshot, nominations=nominations)
    assert isinstance(found, NoPreemption)
    assert found.reasons[0][0].message is PreemptionMessage.VICTIMS_TERMINATING
    nominations.update(pod("new", cpu="1", priority=1, status={"nominatedNodeName": "a"}))
    assert isinstance(plan(new, snapshot, nominations=nominations), NoPreemption)
    snapshot.remove(snapshot.pods_at(0)[0])
    snapshot.set(pod("thief", cpu="1", node="a"))
    assert isinstance(plan(new, snapshot, nominations=nominations), Preemption)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]},
        {"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "PreemptionByScheduler"}]},
    ],
    ids=["deleted by another client", "evicted", "not any more"],
)
def test_other_terminating_pods_are_not_waited_for(status: dict[str, Any]) -> None:
    gone = pod(
        "low", cpu="1", node="a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, status=status
    )
    snapshot = snapshot_of(node("a", cpu="1"), gone)
    new = pod("new", cpu="1", priority=1, status={"nominatedNodeName": "a"})
    assert isinstance(plan(new, snapshot), Preemption)


def test_a_useless_nomination_is_not_waited_for() -> None:
    snapshot = snapshot_of(
        node("a", cpu="1", unschedulable=True),
        pod("low", cpu="1", node="a", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, status=LEAVING),
        node("b", cpu="1"),
        pod("other", cpu="1", node="b"),
    )
    new = pod("new", cpu="1", priority=1, status={"nominatedNodeName": "a"})
    assert victims_of(new, snapshot) == ("b", ["other"])
    elsewhere = pod("new", cpu="1", priority=1, status={"nominatedNodeName": "gone"})
    assert victims_of(elsewhere, snapshot) == ("b", ["other"])


# -- choice of the node


def started(name: str, start: str | None, priority: int = 0, **more: Any) -> Pod:
    return pod(name, priority=priority, status={"startTime": start} if start else {}, **more)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(
            Victims(1, (started("x", None, 9),), 0), Victims(0, (started("y", None, 1),), 1), id="budgets"
        ),
        pytest.param(
            Victims(1, (started("x", None, 1), started("x2", None, 1))),
            Victims(0, (started("y", None, 2),)),
            id="highest priority",
        ),
        pytest.param(
            Victims(1, (started("x", None, 2), started("x2", None, 0))),
            Victims(0, (started("y", None, 2), started("y2", None, 1))),
            id="sum of priorities",
        ),
        pytest.param(
            Victims(1, (started("x", None, -5),)),
            Victims(0, (started("y", None, -5), started("y2", None, -5))),
            id="negative priorities do not make many cheap",
        ),
        pytest.param(
            Victims(1, (started("x", "2026-01-01T00:00:05Z"),)),
            Victims(0, (started("y", "2026-01-01T00:00:04Z"),)),
            id="latest start",
        ),
        pytest.param(
            Victims(1, (started("x", None),)),
            Victims(0, (started("y", "2026-01-01T00:00:04Z"),)),
            id="not started yet",
        ),
        pytest.param(
            Victims(1, (started("x", "2026-01-01T00:00:05Z", 1), started("x2", "2026-01-01T00:00:01Z"))),
            Victims(0, (started("y", "2026-01-01T00:00:04Z", 1), started("y2", "2026-01-01T00:00:09Z"))),
            id="start of the most important",
        ),
    ],
)
def test_the_node_with_the_fewest_victims_is_chosen(better: Victims, worse: Victims) -> None:
    assert choose_victims([worse, better]) is better
    assert choose_victims([better, worse]) is better


def test_the_first_of_equal_nodes_is_chosen() -> None:
    one, two = Victims(0, (started("x", None),)), Victims(1, (started("y", None),))
    assert choose_victims([one, two]) is one
    assert choose_victims([two, one]) is two


def test_the_node_with_the_lowest_priority_victims_is_chosen() -> None:
    snapshot = snapshot_of(
        node("a", cpu="1"), pod("mid", cpu="1", node="a", priority=2),
        node("b", cpu="1"), pod("low", cpu="1", node="b", priority=1),
        node("c", cpu="1"), pod("high", cpu="1", node="c", priority=7),
    )  # fmt: skip
    assert victims_of(pod("new", cpu="1", priority=5), snapshot) == ("b", ["low"])


def test_a_node_without_budget_violations_is_preferred() -> None:
    snapshot = snapshot_of(
        node("a", cpu="1"), pod("covered", cpu="1", node="a", labels={"app": "x"}),
        node("b", cpu="1"), pod("plain", cpu="1", node="b", priority=1),
    )  # fmt: skip
    new = pod("new", cpu="1", priority=5)
    assert victims_of(new, snapshot) == ("a", ["covered"])
    assert victims_of(new, snapshot, budgets=[budget(app="x")]) == ("b", ["plain"])
    assert victims_of(new, snapshot, budgets=[budget(app="x", allowed=1)]) == ("a", ["covered"])


# -- candidate limits


@pytest.mark.parametrize(
    ("rows", "enough"), [(0, 0), (7, 7), (100, 100), (500, 100), (1000, 100), (1500, 150), (5000, 500)]
)
def test_candidate_limits_of_kube_scheduler(rows: int, enough: int) -> None:
    assert CandidateLimits().count(rows) == enough


def cluster_of_rows(count: int) -> Snapshot:
    objects: list[Any] = []
    for number in range(count):
        low = pod(f"low{number}", cpu="1", node=f"n{number}", labels={"app": f"x{number}"})
        objects += [node(f"n{number}", cpu="1"), low]
    return snapshot_of(*objects)


def test_the_walk_starts_at_the_offset_and_wraps_around() -> None:
    snapshot, new = cluster_of_rows(4), pod("new", cpu="1", priority=1)
    few = CandidateLimits(percentage=0, absolute=1)
    found = [victims_of(new, snapshot, offset=offset, limits=few)[0] for offset in range(6)]
    assert found == ["n0", "n1", "n2", "n3", "n0", "n1"]


def test_the_walk_continues_while_every_budget_is_violated() -> None:
    snapshot, new = cluster_of_rows(4), pod("new", cpu="1", priority=1)
    few = CandidateLimits(percentage=0, absolute=1)
    budgets = [budget(f"b{number}", app=f"x{number}") for number in (0, 1, 3)]
    assert victims_of(new, snapshot, limits=few, budgets=budgets) == ("n2", ["low2"])


# -- messages


def test_reasons_are_counted_and_sorted() -> None:
    snapshot = snapshot_of(
        node("a", cpu="2"), pod("a1", cpu="2", node="a", priority=9),
        node("b", cpu="2"), pod("b1", cpu="2", node="b", priority=9),
        node("c", cpu="1"),
        node("d", cpu="2"), pod("d1", cpu="1", node="d", priority=9), pod("d2", cpu="1", node="d"),
        node("e", cpu="2"), pod("e1", cpu="2", node="e", priority=9), pod("e2", node="e"),
    )  # fmt: skip
    found = plan(pod("new", cpu="2", priority=1), snapshot)
    assert isinstance(found, NoPreemption)
    assert found.text == (
        "preemption: 0/5 nodes are available: 1 Preemption is not helpful for scheduling, "
        "2 Insufficient cpu, 2 No preemption victims found for incoming pod."
    )
    assert found.clears_nomination


def test_preemption_does_not_help_where_every_node_is_too_small() -> None:
    snapshot = snapshot_of(node("a", cpu="1"), node("b", cpu="1"), pod("p", cpu="1", node="b"))
    found = plan(pod("new", cpu="2", priority=1), snapshot)
    assert isinstance(found, NoPreemption)
    assert found.text == "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."


def test_preemption_does_not_help_a_pod_with_a_missing_claim() -> None:
    snapshot = snapshot_of(node("a"), node("b"), node("c"))
    pod_info = PodInfo(pod("new"), (), snapshot.options)
    found = plan_preemption(FitError(pod_info, 3, (), None), snapshot, SETTINGS)
    assert isinstance(found, NoPreemption)
    assert found.text == "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


def test_device_shortage_without_lower_priority_holders() -> None:
    """Upstream's message for a device shortage without possible victims."""
    snapshot = snapshot_of(
        device_class(), node("a"), resource_slice([device("d1")], "a"), claim("c", exactly("r", count=2))
    )
    found = plan(pod("new", claims=["c"], priority=1), snapshot)
    assert isinstance(found, NoPreemption)
    assert found.text == "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def test_without_nodes_there_is_no_message() -> None:
    snapshot = snapshot_of()
    pod_info = PodInfo(pod("new"), (), snapshot.options)
    found = plan_preemption(
        FitError(pod_info, 0, (), np.zeros(snapshot.size, dtype=np.bool_)), snapshot, SETTINGS
    )
    assert isinstance(found, NoPreemption)
    assert found.text == ""


def test_pods_in_flight_can_be_victims() -> None:
    snapshot = snapshot_of(node("a", cpu="1"))
    pod_info = read_pod_info(pod("low", cpu="1"), snapshot)
    assert isinstance(pod_info, PodInfo)
    placed = attempt(pod_info, snapshot)
    assert isinstance(placed, Placement)
    snapshot.assume(placed)
    assert victims_of(pod("new", cpu="1", priority=1), snapshot) == ("a", ["low"])
