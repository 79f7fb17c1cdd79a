"""The negative cache keeps a result until an event that a queueing hint declares can help the pod."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.core import Namespace, Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import DeviceTaintRule
from plimsoll.api.storage import (
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.events import EventKind, classify_change
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityFilter
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queueing_hints import HINTS, NAMED_EVENTS
from plimsoll.scheduler.result import FitError
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.unschedulable_cache import UNCOUNTED_EVENTS, UnschedulableCache
from tests.build import claim, device, device_class, node, pod, pod_group, resource_slice
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

ENDING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
RESULT = {"request": "r", "driver": "d", "pool": "n", "device": "x"}
CHANGES: list[tuple[Any, Any]] = [
    (None, node("m")),
    (node("n"), node("n", labels={"a": "b"})),
    (node("n", taints=["t:NoSchedule"]), node("n")),
    (node("n", unschedulable=True), node("n")),
    (node("n", cpu="4"), node("n", cpu="8")),
    (pod("p", node="n"), None),
    (pod("p", node="n"), pod("p", node="n", status={"phase": "Succeeded"})),
    (pod("p", node="n"), pod("p", node="n", labels={"a": "b"})),
    (pod("p", node="n", cpu="2"), pod("p", node="n", cpu="1")),
    (claim("c", results=[RESULT]), claim("c")),
    (claim("c", results=[RESULT]), None),
    (None, device_class("k")),
    (None, resource_slice([device("d")], "n")),
    (resource_slice([device("d")], "n"), resource_slice([device("e")], "n")),
    (resource_slice([device("d")], "n"), None),
    (DeviceTaintRule(), None),
    (Namespace(), Namespace(metadata=ObjectMeta(labels={"a": "b"}))),
    (None, PersistentVolumeClaim()),
    (None, PersistentVolume()),
    (None, StorageClass()),
    (None, CSINode()),
    (CSIDriver(spec=CSIDriverSpec(storage_capacity=True)), CSIDriver()),
    (None, CSIStorageCapacity()),
    (VolumeAttachment(), None),
    (None, pod_group()),
]


def apply(snapshot: Snapshot, old: Any, new: Any) -> None:
    if new is None:
        snapshot.remove(old)
    else:
        snapshot.set(new)


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_declared_events_count_for_the_generation(old: Any, new: Any) -> None:
    """Events declared by a queueing hint invalidate cached results, on one node or on all nodes."""
    event = classify_change(old, new)
    assert event is not None
    snapshot = snapshot_of(node("n"), *(() if old is None else (old,)))
    before, row = snapshot.generations.last, snapshot.row_of("n")
    generations = snapshot.generations.rows.copy()
    apply(snapshot, old, new)
    assert snapshot.generations.last > before
    assert row is not None
    if event.node_name in ("", "n"):
        assert snapshot.generations.rows[row] > generations[row]


def test_every_declared_event_is_covered() -> None:
    """Other events are either kept by the cache itself or part of a pod's signature."""
    changes = [classify_change(old, new) for old, new in CHANGES]
    tried = {event.kind for event in changes if event is not None}
    declared = {each for hint in HINTS.values() for each in hint.events if isinstance(each, EventKind)}
    assert declared - tried <= {event.kind for event in UNCOUNTED_EVENTS} | NAMED_EVENTS | {EventKind.OTHER}


def affinity_to(app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "host"}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_assigned_pods_are_given_to_the_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = snapshot_of(node("n", labels={"host": "n"}))
    waiting = pod("p", affinity=affinity_to("x"))

    def attempt() -> object:
        return schedule_one(
            pod_info_of(waiting, snapshot), snapshot, SchedulerProfile.default(), lambda: "id"
        )

    def is_cached() -> bool:
        return snapshot.index(UnschedulableCache).get(pod_info_of(waiting, snapshot), snapshot) is not None

    assert isinstance(attempt(), FitError)
    snapshot.set(pod("other", node="n", labels={"app": "y"}))
    assert is_cached(), "the affinity does not match"
    asked: list[object] = []
    real = InterPodAffinityFilter.queueing_hint

    def count(event: Any, waiting_pod: Any) -> bool:
        asked.append(event)
        return real(event, waiting_pod)

    monkeypatch.setattr(InterPodAffinityFilter, "queueing_hint", count)
    assert is_cached()
    assert not asked, "events are checked once"
    snapshot.set(pod("friend", node="n", labels={"app": "x"}))
    assert not is_cached()
    assert not isinstance(attempt(), FitError)


def test_pods_with_token_volumes_share_results() -> None:
    snapshot = snapshot_of(node("n", cpu="1"))

    def waiting(name: str) -> Pod:
        token = {"name": f"kube-api-access-{name}", "projected": {"sources": []}}
        return pod(name, cpu="2", volumes=[token])

    def is_cached(name: str) -> bool:
        return (
            snapshot.index(UnschedulableCache).get(pod_info_of(waiting(name), snapshot), snapshot) is not None
        )

    assert not is_cached("b")
    info = pod_info_of(waiting("a"), snapshot)
    assert isinstance(schedule_one(info, snapshot, SchedulerProfile.default(), lambda: "id"), FitError)
    assert is_cached("b")
