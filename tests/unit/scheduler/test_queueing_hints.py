"""Events and queueing hints, case by case."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.api.core import Namespace
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.policy import PodDisruptionBudget
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
from plimsoll.scheduler.devices import needs_capacity
from plimsoll.scheduler.events import (
    ClusterEvent,
    EventKind,
    NodeCapacity,
    NodeUpdate,
    PodUpdate,
    classify_change,
    make_release_event,
    node_capacity,
)
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queue import SchedulingQueue
from plimsoll.scheduler.queueing_hints import (
    affected_rules,
    any_event_helps,
    make_waiting_pod,
)
from plimsoll.scheduler.reasons import Rule
from plimsoll.scheduler.result import FitError
from tests.build import (
    CLASS,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
)
from tests.unit.scheduler.filters.volume_objects import csi_driver, storage_capacity, storage_class
from tests.unit.scheduler.queue.naive_queue import can_help
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

VOLUMES = frozenset({Rule.VOLUME_RESTRICTIONS, Rule.VOLUME_LIMITS, Rule.VOLUME_BINDING, Rule.VOLUME_ZONE})
ZONE = "topology.kubernetes.io/zone"
_MUST = "requiredDuringSchedulingIgnoredDuringExecution"
_RESULT = {"request": "r", "driver": "d", "pool": "n", "device": "x"}


def near(kind: str, app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
    return {kind: {_MUST: [term]}}


def happened(old: Any, new: Any, room: NodeCapacity | None = None) -> ClusterEvent:
    found = classify_change(old, new, room)
    assert found is not None
    return found


# -- relevant and irrelevant changes

_SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }
]


def _beating(ready: str) -> Any:
    conditions = [{"type": "Ready", "status": "True", "lastHeartbeatTime": ready}]
    status = msgspec.convert({"conditions": conditions}, type(node("n").status))
    return msgspec.structs.replace(
        node("n"), status=msgspec.structs.replace(node("n").status, conditions=status.conditions)
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (_beating("2026-01-01T00:00:00Z"), _beating("2026-01-01T00:00:10Z")),
        (node("n", cpu="8"), node("n", cpu="4")),
        (node("n"), node("n", unschedulable=True)),
        (None, pod("p")),
        (pod("p"), None),
        (pod("p"), pod("p", labels={"a": "b"})),
        (pod("p", node="n"), pod("p", node="n", status={"phase": "Running"})),
        (pod("p", node="n", cpu="1"), pod("p", node="n", cpu="2")),
        (pod("p", node="n", status={"phase": "Failed"}), None),
        (claim("c"), claim("c", metadata={"finalizers": ["resource.kubernetes.io/delete-protection"]})),
        (claim("c"), None),
        (device_class("k"), device_class("k")),
        (device_class("k"), None),
        (resource_slice([device("d")], "n"), resource_slice([device("d")], "n")),
        (None, PodDisruptionBudget()),
        (None, VolumeAttachment()),
        (Namespace(), None),
        (None, None),
    ],
)
def test_changes_that_are_not_events(old: Any, new: Any) -> None:
    assert classify_change(old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "kind", "updates"),
    [
        (None, node("n"), EventKind.NODE_ADDED, ""),
        (node("n"), None, EventKind.NODE_REMOVED, ""),
        (node("n"), node("n", labels={"a": "b"}), EventKind.NODE_CHANGED, "labels"),
        (node("n", taints=["t:NoSchedule"]), node("n"), EventKind.NODE_CHANGED, "taints"),
        (node("n", unschedulable=True), node("n"), EventKind.NODE_CHANGED, "schedulable"),
        (node("n", cpu="4"), node("n", cpu="8", memory="1Gi"), EventKind.NODE_CHANGED, "allocatable"),
        (pod("p"), pod("p", node="n"), EventKind.POD_ASSIGNED, ""),
        (None, pod("p", node="n"), EventKind.POD_ASSIGNED, ""),
        (pod("p", node="n"), None, EventKind.POD_DELETED, ""),
        (pod("p", node="n"), pod("p", node="n", status={"phase": "Succeeded"}), EventKind.POD_DELETED, ""),
        (pod("p", status={"nominatedNodeName": "n"}), pod("p"), EventKind.POD_DELETED, ""),
        (pod("p", status={"nominatedNodeName": "n"}), pod("p", node="m"), EventKind.POD_DELETED, ""),
        (pod("p", status={"nominatedNodeName": "n"}), pod("p", node="n"), EventKind.POD_ASSIGNED, ""),
        (pod("p", node="n"), pod("p", node="n", labels={"a": "b"}), EventKind.POD_UPDATED, "labels"),
        (pod("p", node="n", cpu="2"), pod("p", node="n", cpu="1"), EventKind.POD_UPDATED, "scaled down"),
        (pod("p", node="n"), pod("p", node="n", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
         EventKind.POD_UPDATED, "terminating"),
        (None, claim("c"), EventKind.CLAIM_CHANGED, ""),
        (claim("c"), claim("c", results=[_RESULT]), EventKind.CLAIM_CHANGED, ""),
        (claim("c", results=[_RESULT], reserved=["p"]), claim("c", results=[_RESULT]),
         EventKind.CLAIM_CHANGED, ""),
        (claim("c", results=[_RESULT]), claim("c"), EventKind.CLAIM_FREED, ""),
        (claim("c", results=[_RESULT]), None, EventKind.CLAIM_FREED, ""),
        (None, device_class("k"), EventKind.CLASS_CHANGED, ""),
        (None, resource_slice([device("d")], "n"), EventKind.SLICE_CHANGED, ""),
        (resource_slice([device("d")], "n"), resource_slice([device("e")], "n"), EventKind.SLICE_CHANGED, ""),
        (resource_slice([device("d")], "n"), None, EventKind.SLICE_CHANGED, ""),
        (DeviceTaintRule(), None, EventKind.TAINT_RULE_CHANGED, ""),
        (Namespace(), Namespace(metadata=ObjectMeta(labels={"a": "b"})), EventKind.NAMESPACE_CHANGED, ""),
        (None, PersistentVolumeClaim(), EventKind.VOLUME_CLAIM_CHANGED, ""),
        (None, PersistentVolume(), EventKind.VOLUME_CHANGED, ""),
        (None, StorageClass(), EventKind.STORAGE_CLASS_CHANGED, ""),
        (None, CSINode(), EventKind.CSI_NODE_CHANGED, ""),
        (CSIDriver(), CSIDriver(spec=CSIDriverSpec(storage_capacity=True)), EventKind.CSI_DRIVER_CHANGED, ""),
        (None, CSIStorageCapacity(), EventKind.STORAGE_CAPACITY_CHANGED, ""),
        (VolumeAttachment(), None, EventKind.VOLUME_DETACHED, ""),
    ],
)  # fmt: skip
def test_classify_change(old: Any, new: Any, kind: EventKind, updates: str) -> None:
    found = happened(old, new)
    assert found.kind is kind
    assert {each.value for each in found.updates} == ({updates} if updates else set())


# -- hints

ALL = frozenset(Rule)


def helped(event: ClusterEvent, **fields: Any) -> set[str]:
    """Return the rules (without volume rules) for which an event helps a pod, each rule alone."""
    waiting = pod("waiting", **fields)
    return {rule.name for rule in ALL - VOLUMES if can_help(event, rule, waiting)}


def test_node_added() -> None:
    added = happened(None, node("n", cpu="4", taints=["t:NoSchedule"], unschedulable=True))
    everything = {each.name for each in ALL - VOLUMES} - {
        "SCHEDULING_GATES",
        "UNSUPPORTED",
        "GANG",
        "MIXED_ADVERTISERS",  # only for pods with extended resources
    }
    assert helped(added) == everything - {"TAINTS", "UNSCHEDULABLE"}
    assert helped(added, cpu="5") == everything - {"TAINTS", "UNSCHEDULABLE", "RESOURCES"}
    assert helped(added, cpu="5", claims=["c"]) == everything - {"TAINTS", "UNSCHEDULABLE"}
    assert "NODE_AFFINITY" not in helped(added, node_selector={"a": "b"})
    assert {"TAINTS", "UNSCHEDULABLE"} <= helped(added, tolerations=[{"operator": "Exists"}])


def test_all_rules_that_rejected_the_pod_are_consulted() -> None:
    added = happened(None, node("n", taints=["t:NoSchedule"]))
    assert can_help(added, Rule.RESOURCES, pod("p"))
    assert not can_help(added, Rule.RESOURCES, pod("p"), frozenset({Rule.TAINTS}))
    assert any_event_helps([added], make_waiting_pod(pod("p"), frozenset({Rule.RESOURCES})))
    assert not any_event_helps([added], make_waiting_pod(pod("p"), frozenset({Rule.RESOURCES, Rule.TAINTS})))


@pytest.mark.parametrize(
    ("old", "new", "rules"),
    [
        ({}, {"labels": {"a": "b"}}, {"DEVICES", "SPREAD", "INTER_POD", "NODE_AFFINITY"}),
        ({"taints": ["t:NoSchedule"]}, {}, {"TAINTS", "SPREAD"}),
        ({"taints": ["t:NoSchedule"]}, {"taints": ["u:NoSchedule"]}, {"SPREAD"}),
        ({"unschedulable": True}, {}, {"UNSCHEDULABLE"}),
        ({"cpu": "1"}, {"cpu": "2"}, {"RESOURCES", "DEVICES"}),
        ({"cpu": "1"}, {"cpu": "1500m"}, {"DEVICES"}),
        ({"memory": "1Gi"}, {"memory": "2Gi"}, {"DEVICES"}),
        ({"pods": "1"}, {"pods": "2"}, {"RESOURCES", "DEVICES"}),
    ],
)
def test_node_updates(old: dict[str, Any], new: dict[str, Any], rules: set[str]) -> None:
    event = happened(node("n", **old), node("n", **new))
    found = helped(event, requests={"cpu": "2"}, node_selector={"a": "b"})
    assert found == rules


def test_pods_bound_to_one_node_ignore_others() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["mine"]}]
    own = {"nodeAffinity": {_MUST: {"nodeSelectorTerms": [{"matchFields": fields}]}}}
    assert helped(happened(None, node("else")), affinity=own) == {"INTER_POD", "SPREAD"}
    assert "RESOURCES" in helped(happened(None, node("mine")), affinity=own)
    assert "RESOURCES" not in helped(happened(pod("p", node="else"), None), affinity=own)
    assert "DEVICES" not in helped(happened(pod("p", node="else", claims=["c"]), None), affinity=own)
    assert "DEVICES" in helped(make_release_event(pod("p", claims=["c"])), affinity=own), (
        "devices are given back"
    )
    assert "DEVICES" not in helped(happened(None, resource_slice([device("d")], "else")), affinity=own)


def test_node_removed() -> None:
    assert helped(happened(node("n"), None)) == {"INTER_POD", "SPREAD"}


def test_deleting_a_pod_without_claims_wakes_pods_that_need_devices() -> None:
    """The charge of a claim may fit now, although no claim has changed."""
    queue = SchedulingQueue()
    queue.add(pod("p", claims=["c"]), 0)
    queue.pop(0)
    queue.mark_unschedulable("uid-p", frozenset({Rule.DEVICES}), 0)
    assert queue.on_event(happened(pod("plain", node="n", cpu="1"), None), 1) == 1


def test_a_deleted_pod_frees_capacity_but_no_devices() -> None:
    """Its devices are held until its claims are deallocated; pods that lack only devices keep waiting."""
    waiting, gone = pod("p", claims=["c"]), happened(pod("g", node="n", claims=["d"]), None)
    assert can_help(gone, Rule.DEVICES, waiting)
    assert not can_help(gone, Rule.DEVICES, waiting, needs_capacity=False)
    assert can_help(make_release_event(pod("g", claims=["d"])), Rule.DEVICES, waiting, needs_capacity=False)
    more = happened(node("n", cpu="1"), node("n", cpu="2"))
    assert can_help(more, Rule.DEVICES, waiting)
    assert not can_help(more, Rule.DEVICES, waiting, needs_capacity=False)
    label = happened(node("n"), node("n", labels={"a": "b"}))
    assert can_help(label, Rule.DEVICES, waiting, needs_capacity=False), (
        "devices may be for nodes with that label"
    )


def test_needs_capacity() -> None:
    snapshot = snapshot_of(
        node("n", cpu="1"),
        device_class(CLASS),
        resource_slice([charging_device("d", cpu="2")], "n"),
        claim("c", exactly("r")),
        claim("many", exactly("r", count=3)),
    )
    for name, short in (("c", True), ("many", False)):
        pod_info = pod_info_of(pod("p", claims=[name]), snapshot)
        fit_error = schedule_one(pod_info, snapshot, SchedulerProfile.default(), lambda: "id")
        assert isinstance(fit_error, FitError)
        assert needs_capacity(fit_error) is short


def test_pod_deleted() -> None:
    assert helped(happened(pod("g", node="n"), None)) == {"RESOURCES", "DEVICES"}
    assert "PORTS" in helped(happened(pod("g", node="n", host_ports=[80, 90]), None), host_ports=[70, 80])
    assert "PORTS" not in helped(happened(pod("g", node="n", host_ports=[90]), None), host_ports=[80])
    gone = happened(pod("g", node="n", labels={"app": "x"}), None)
    assert "INTER_POD" in helped(gone, affinity=near("podAntiAffinity", "x"))
    assert "INTER_POD" not in helped(gone, affinity=near("podAntiAffinity", "y"))
    assert "INTER_POD" in helped(gone, affinity=near("podAffinity", "x")), (
        "it may be the first of its kind now"
    )
    assert "SPREAD" in helped(gone, topology_spread_constraints=_SPREAD)
    assert "SPREAD" not in helped(gone, topology_spread_constraints=_SPREAD, namespace="else")
    hating = happened(pod("g", node="n", affinity=near("podAntiAffinity", "x")), None)
    assert "INTER_POD" in helped(hating, labels={"app": "x"})
    assert "INTER_POD" not in helped(hating, labels={"app": "y"})


def test_pod_assigned() -> None:
    came = happened(pod("g"), pod("g", node="n", labels={"app": "x"}))
    assert helped(came, affinity=near("podAffinity", "x")) == {"INTER_POD"}
    assert helped(came, affinity=near("podAffinity", "y")) == set()
    assert helped(came, topology_spread_constraints=_SPREAD) == {"SPREAD"}


def test_pod_updated() -> None:
    label = happened(pod("g", node="n"), pod("g", node="n", labels={"app": "x"}))
    assert helped(label, affinity=near("podAffinity", "x")) == {"INTER_POD"}
    less = happened(pod("g", node="n", cpu="2"), pod("g", node="n", cpu="1"))
    assert helped(less) == {"RESOURCES", "DEVICES"}
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    labels = {"app": "x"}
    going = happened(pod("g", node="n", labels=labels), pod("g", node="n", labels=labels, metadata=ending))
    assert helped(going, topology_spread_constraints=_SPREAD) == {"SPREAD"}, "those are not counted"


def test_freed_capacity_must_fit_the_requests() -> None:
    line, gone = {"cpu": 4000, "memory": 1 << 30, "pods": 3}, pod("g", node="n")

    def room(least: int | None = 0, **free: int) -> NodeCapacity:
        return NodeCapacity(node("n", cpu="4"), line, line | free, least)

    def helps(event: ClusterEvent, **fields: Any) -> bool:
        return "RESOURCES" in helped(event, **fields)

    assert helps(happened(gone, None, room(cpu=1000)), cpu="1")
    assert not helps(happened(gone, None, room(cpu=999)), cpu="1")
    assert not helps(happened(gone, None, room(pods=0)))
    assert helps(happened(gone, None, room(cpu=-5))), "it asks for nothing"
    assert helps(happened(gone, None, room(cpu=0)), cpu="1", priority=1), "others may have to go"
    assert not helps(happened(gone, None, room(cpu=0, least=1)), cpu="1", priority=1)
    assert not helps(happened(gone, None, room(cpu=0)), cpu="5", priority=1), "the node is too small"
    assert helps(happened(gone, None, room(cpu=0)), cpu="1", claims=["c"]), "its claim may bring it"
    assert helps(happened(gone, None, room()), requests={"example.com/gpu": "1"}), "may come from a class"
    assert not helps(make_release_event(pod("g"), room(cpu=0)), cpu="1")


def test_node_capacity() -> None:
    snapshot = snapshot_of(node("n", cpu="4", pods="9"), pod("a", node="n", cpu="1", priority=3))
    room = node_capacity(snapshot, "n")
    assert room is not None
    assert (room.allocatable["cpu"], room.free["cpu"], room.free["pods"], room.lowest_priority) == (
        4000,
        3000,
        8,
        3,
    )
    assert node_capacity(snapshot, "else") is None


def test_a_changed_claim_helps_its_users() -> None:
    changed = happened(claim("c"), claim("c", results=[_RESULT]))
    assert helped(changed, claims=["c"]) == {"DEVICES"}
    assert helped(changed, claims=["d"]) == set()
    assert helped(changed, claims=["c"], namespace="else") == set()


def test_freed_devices_help_all_pods_that_need_devices() -> None:
    for new in (claim("c", exactly("r")), None):
        freed = happened(claim("c", exactly("r"), results=[_RESULT]), new)
        assert helped(freed, claims=["other"]) == {"DEVICES"}


def test_classes_and_slices() -> None:
    changed = happened(None, device_class("k", extendedResourceName="example.com/gpu"))
    assert helped(changed) == {"DEVICES"}
    assert helped(changed, requests={"example.com/gpu": "1"}) == {"DEVICES", "MIXED_ADVERTISERS", "RESOURCES"}
    implied = {"deviceclass.resource.kubernetes.io/k": "1"}
    assert helped(changed, requests=implied) == {"DEVICES", "RESOURCES"}
    assert helped(happened(None, resource_slice([device("d")], "n"))) == {"DEVICES"}
    assert helped(ClusterEvent(EventKind.TAINT_RULE_CHANGED)) == {"DEVICES"}
    assert helped(ClusterEvent(EventKind.NAMESPACE_CHANGED)) == {"INTER_POD"}


def test_volumes() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}}]
    waiting = pod("p", volumes=volumes)

    def asked(event: ClusterEvent) -> set[Rule]:
        return {rule for rule in VOLUMES if can_help(event, rule, waiting)}

    for name, expected in (("data", VOLUMES), ("p-e", VOLUMES), ("else", set())):
        new = PersistentVolumeClaim(metadata=ObjectMeta(name=name, namespace="default"))
        assert asked(happened(None, new)) == expected
    for other in (PersistentVolume(), StorageClass(), CSINode()):
        assert asked(happened(None, other)) == VOLUMES
    assert asked(happened(VolumeAttachment(), None)) == {Rule.VOLUME_LIMITS}
    assert asked(happened(pod("g", node="n"), None)) == set()
    assert asked(happened(pod("g", node="n", volumes=volumes), None)) == VOLUMES - {Rule.VOLUME_ZONE}


def test_volume_binding_waits_for_changes_that_matter() -> None:
    waiting = pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])

    def helps_binding(old: Any, new: Any) -> bool:
        event = happened(old, new)
        return can_help(event, Rule.VOLUME_BINDING, waiting)

    east = storage_class("k", "WaitForFirstConsumer", zone=("east",))
    assert helps_binding(storage_class("k", "WaitForFirstConsumer"), east)
    assert not helps_binding(east, storage_class("k", "WaitForFirstConsumer", "other", zone=("east",)))
    before = storage_capacity("c", "k", "10Gi", topology={})
    assert helps_binding(None, before)
    assert helps_binding(before, storage_capacity("c", "k", "11Gi", topology={}))
    assert helps_binding(storage_capacity("c", "k", None, topology={}), before)
    assert not helps_binding(before, storage_capacity("c", "k", "9Gi", topology={}))
    assert not helps_binding(before, storage_capacity("c", "k", "11Gi", largest="9Gi", topology={}))
    plugins = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"}
    migrated = CSINode(metadata=ObjectMeta(name="n", annotations=plugins))
    assert helps_binding(CSINode(metadata=ObjectMeta(name="n")), migrated)
    assert not helps_binding(
        migrated, CSINode(metadata=ObjectMeta(name="n", annotations=plugins, labels={"a": "b"}))
    )


def test_a_driver_that_no_longer_publishes_capacity_wakes_pods() -> None:
    waiting = pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    for old, new, expected in ((True, None, True), (True, False, True), (None, True, False)):
        event = happened(csi_driver(capacity=old), csi_driver(capacity=new))
        assert can_help(event, Rule.VOLUME_BINDING, waiting) is expected
    assert not can_help(happened(None, csi_driver()), Rule.VOLUME_BINDING, waiting)


def test_every_event_kind_is_declared_by_a_rule() -> None:
    for kind in EventKind:
        rules = affected_rules(ClusterEvent(kind, updates=frozenset({*NodeUpdate, *PodUpdate})))
        assert rules
        assert Rule.SCHEDULING_GATES not in rules
