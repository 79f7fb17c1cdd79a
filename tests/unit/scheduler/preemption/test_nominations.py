"""Nominated nodes: capacity kept for nominated pods."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.core import Pod
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption import Nominations, NoPreemption, Preemption, plan_preemption
from plimsoll.scheduler.reasons import render
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
from tests.unit.scheduler.preemption.clusters import SETTINGS, ids, names_of
from tests.unit.scheduler.snapshots import snapshot_of


def waiting(name: str, nominated: str = "", **more: Any) -> Pod:
    return pod(name, status={"nominatedNodeName": nominated}, **more)


def at(nominations: Nominations, node: str, priority: int = 0, exclude: str = "") -> list[str]:
    return names_of(nominations.at(node, priority, exclude))


# -- nominations


def test_a_nominated_node_in_the_status_counts() -> None:
    nominations = Nominations()
    nominations.update(waiting("p", "a", priority=2))
    assert at(nominations, "a") == ["p"]
    assert at(nominations, "a", priority=2) == ["p"]
    assert at(nominations, "a", priority=3) == []
    assert at(nominations, "a", exclude="uid-p") == []
    assert at(nominations, "b") == []
    assert names_of(nominations.lower_at("a", 3)) == ["p"]
    assert names_of(nominations.lower_at("a", 2)) == []


def test_nominations_follow_the_status() -> None:
    nominations = Nominations()
    nominations.update(waiting("p", "a"))
    nominations.update(waiting("p", "b"))
    assert (at(nominations, "a"), at(nominations, "b")) == ([], ["p"])
    nominations.update(waiting("p"))
    assert at(nominations, "b") == []
    assert len(nominations) == 0


def test_own_nominations_count_before_they_are_written() -> None:
    nominations = Nominations()
    nominations.update(waiting("p", "old"))
    nominations.nominate(waiting("p", "old"), "new")
    nominations.update(waiting("p", "old"))  # an old state is delivered late
    nominations.update(waiting("p"))
    assert (at(nominations, "old"), at(nominations, "new")) == ([], ["p"])
    nominations.update(waiting("p", "new"))
    nominations.update(waiting("p"))  # now it was taken back
    assert at(nominations, "new") == []


def test_bound_finished_and_deleted_pods_have_no_nomination() -> None:
    nominations = Nominations()
    for over in (pod("p", node="a"), pod("p", status={"phase": "Failed"})):
        nominations.update(waiting("p", "a"))
        nominations.update(over)
        assert len(nominations) == 0
    nominations.update(waiting("p", "a"))
    nominations.drop("uid-p")
    nominations.drop("uid-p")
    assert len(nominations) == 0


def test_nominations_are_ordered_by_priority() -> None:
    nominations = Nominations()
    for name, priority in (("low", 1), ("high", 3), ("mid", 2)):
        nominations.update(waiting(name, "a", priority=priority))
    assert at(nominations, "a") == ["high", "mid", "low"]


def test_every_change_increases_the_generation() -> None:
    nominations = Nominations()
    before = nominations.version
    nominations.update(waiting("p"))
    assert nominations.version == before
    nominations.update(waiting("p", "a"))
    assert nominations.version > before


# -- nominated capacity


def attempt(new: Pod, snapshot: Snapshot, nominations: Nominations) -> Placement | FitError:
    pod_info = read_pod_info(new, snapshot)
    assert isinstance(pod_info, PodInfo)
    found = schedule_one(pod_info, snapshot, SETTINGS, ids(), nominations)
    assert not verify(snapshot)
    return found


def promised(*pods: Pod) -> Nominations:
    nominations = Nominations()
    for each in pods:
        nominations.update(each)
    return nominations


def test_pods_of_equal_or_lower_priority_leave_nominated_capacity() -> None:
    snapshot = snapshot_of(node("a", cpu="4"), pod("p", cpu="1", node="a"))
    nominations = promised(waiting("first", "a", cpu="2", priority=5))
    for priority in (4, 5):
        found = attempt(pod("new", cpu="2", priority=priority), snapshot, nominations)
        assert isinstance(found, FitError)
        assert [render(reason) for reason, _ in found.reasons] == ["Insufficient cpu"]
    assert isinstance(attempt(pod("small", cpu="1", priority=5), snapshot, nominations), Placement)
    assert isinstance(attempt(pod("new", cpu="2", priority=6), snapshot, nominations), Placement)


def test_a_pod_may_use_its_own_nominated_capacity() -> None:
    snapshot = snapshot_of(node("a", cpu="2"))
    first = waiting("first", "a", cpu="2")
    assert isinstance(attempt(first, snapshot, promised(first)), Placement)


def test_host_ports_of_nominated_pods_are_kept() -> None:
    snapshot = snapshot_of(node("a"))
    nominations = promised(waiting("first", "a", host_ports=[80]))
    found = attempt(pod("new", host_ports=[80]), snapshot, nominations)
    assert isinstance(found, FitError)
    assert isinstance(attempt(pod("new", host_ports=[81]), snapshot, nominations), Placement)


def together(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "host"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_affinity_does_not_rely_on_nominated_pods() -> None:
    """A pod with affinity to a nominated pod waits until that pod is bound."""
    snapshot = snapshot_of(node("a", labels={"host": "a"}))
    nominations = promised(waiting("first", "a", labels={"app": "x"}))
    found = attempt(pod("new", affinity=together("x")), snapshot, nominations)
    assert isinstance(found, FitError)


def gpu(*objects: Any, devices: int = 1) -> Snapshot:
    slices = resource_slice([device(f"d{number}") for number in range(devices)], "a")
    return snapshot_of(device_class(), node("a"), slices, *objects)


def holding(name: str, number: int, **metadata: Any) -> list[Any]:
    """Return a pod that holds a device, and its claim."""
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": f"d{number}"}]
    return [
        claim(f"c-{name}", exactly("r"), results=results, node="a", reserved=[name]),
        pod(name, node="a", claims=[f"c-{name}"], metadata=metadata),
    ]


def test_devices_are_kept_for_a_nominated_pod() -> None:
    """Its victim is deleted, its device is free, and a pod of the same priority is tried first."""
    snapshot = gpu(claim("c-first", exactly("r")), claim("c-new", exactly("r")))
    first = waiting("first", "a", claims=["c-first"], priority=1)
    found = attempt(pod("new", claims=["c-new"], priority=1), snapshot, promised(first))
    assert isinstance(found, FitError)
    assert [render(reason) for reason, _ in found.reasons] == ["cannot allocate all claims"]
    assert isinstance(attempt(first, snapshot, promised(first)), Placement)
    more = gpu(claim("c-first", exactly("r")), claim("c-new", exactly("r")), devices=2)
    assert isinstance(attempt(pod("new", claims=["c-new"], priority=1), more, promised(first)), Placement)


@pytest.mark.parametrize(("pods", "fits"), [("2", False), ("3", True)])
def test_a_nominated_pod_keeps_room_for_its_placeholder(pods: str, fits: bool) -> None:
    """Without charges in the API, it and its placeholder count as two pods of the node."""
    devices = resource_slice([charging_device("d0", cpu="2")], "a")
    snapshot = snapshot_of(device_class(), node("a", pods=pods), devices, claim("c-first", exactly("r")))
    first, new = waiting("first", "a", claims=["c-first"], priority=1), pod("new", priority=1)
    assert isinstance(attempt(new, snapshot, promised(first)), Placement), "the server stores charges"
    snapshot.set_placeholders(True)
    assert isinstance(attempt(new, snapshot, promised(first)), Placement) == fits


def test_devices_are_kept_while_victims_leave_one_by_one() -> None:
    """Of two nominated devices one is free, the other still held by a terminating pod."""
    leaving = holding("victim", 0, deletionTimestamp="2026-01-01T00:00:00Z")
    snapshot = gpu(*leaving, claim("c-first", exactly("r", count=2)), claim("c-new", exactly("r")), devices=2)
    first = waiting("first", "a", claims=["c-first"], priority=1)
    found = attempt(pod("new", claims=["c-new"], priority=1), snapshot, promised(first))
    assert isinstance(found, FitError)


def test_a_nomination_with_a_missing_claim_keeps_its_requests() -> None:
    snapshot = snapshot_of(node("a", cpu="2"))
    first = waiting("first", "a", cpu="2", claims=["missing"], priority=1)
    assert isinstance(attempt(pod("new", cpu="1", priority=1), snapshot, promised(first)), FitError)


def test_a_bound_nominated_pod_is_counted_once() -> None:
    snapshot = snapshot_of(node("a", cpu="3"), pod("first", cpu="2", node="a"))
    nominations = promised(waiting("first", "a", cpu="2"))
    assert isinstance(attempt(pod("new", cpu="1"), snapshot, nominations), Placement)


# -- preemption and nominations


def preempt(new: Pod, snapshot: Snapshot, nominations: Nominations) -> Preemption | NoPreemption:
    found = attempt(new, snapshot, nominations)
    assert isinstance(found, FitError)
    plan = plan_preemption(found, snapshot, SETTINGS, nominations=nominations)
    assert not verify(snapshot)
    return plan


def test_nominated_capacity_is_not_used_by_preemption() -> None:
    snapshot = snapshot_of(node("a", cpu="4"), pod("one", cpu="2", node="a"), pod("two", cpu="2", node="a"))
    equal = promised(waiting("first", "a", cpu="2", priority=5))
    plan = preempt(pod("new", cpu="2", priority=5), snapshot, equal)
    assert isinstance(plan, Preemption)
    assert sorted(names_of(plan.victims)) == ["one", "two"]
    assert plan.lower_nominated == ()
    big = promised(waiting("first", "a", cpu="4", priority=5))
    assert isinstance(preempt(pod("new", cpu="2", priority=5), snapshot, big), NoPreemption)


def test_lower_priority_nominations_are_withdrawn() -> None:
    snapshot = snapshot_of(node("a", cpu="2"), pod("one", cpu="2", node="a"))
    lesser = promised(waiting("first", "a", cpu="2", priority=4))
    plan = preempt(pod("new", cpu="2", priority=5), snapshot, lesser)
    assert isinstance(plan, Preemption)
    assert names_of(plan.lower_nominated) == ["first"]
