"""What happens, and whom it helps: the table, case by case."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plimsoll.api.core import Namespace
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import DeviceTaintRule
from plimsoll.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.profile import Settings
from plimsoll.scheduler.queue import PodQueue
from plimsoll.scheduler.queue.events import Aspect, Happening, Kind, Room, classify, released, room_at
from plimsoll.scheduler.queue.queueing_hints import VOLUMES, any_helps, can_help, rules_of, wants_room
from plimsoll.scheduler.reasons import Rule
from plimsoll.scheduler.result import Unplaced
from tests.unit.scheduler.build import (
    CLASS,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
    snapshot_of,
    task_of,
)

ZONE = "topology.kubernetes.io/zone"
_MUST = "requiredDuringSchedulingIgnoredDuringExecution"
_RESULT = {"request": "r", "driver": "d", "pool": "n", "device": "x"}


def near(kind: str, app: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE}
    return {kind: {_MUST: [term]}}


def happened(old: Any, new: Any, room: Room | None = None) -> Happening:
    found = classify(old, new, room)
    assert found is not None
    return found


# -- what is a happening, and what is none

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
        (resource_slice("n", [device("d")]), resource_slice("n", [device("d")])),
        (None, PodDisruptionBudget()),
        (None, VolumeAttachment()),
        (Namespace(), None),
        (None, None),
    ],
)
def test_what_helps_nobody(old: Any, new: Any) -> None:
    assert classify(old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "kind", "aspects"),
    [
        (None, node("n"), Kind.NODE_ADDED, ""),
        (node("n"), None, Kind.NODE_REMOVED, ""),
        (node("n"), node("n", labels={"a": "b"}), Kind.NODE_CHANGED, "labels"),
        (node("n", taints=["t:NoSchedule"]), node("n"), Kind.NODE_CHANGED, "taints"),
        (node("n", unschedulable=True), node("n"), Kind.NODE_CHANGED, "schedulable"),
        (node("n", cpu="4"), node("n", cpu="8", memory="1Gi"), Kind.NODE_CHANGED, "allocatable"),
        (pod("p"), pod("p", node="n"), Kind.POD_ASSIGNED, ""),
        (None, pod("p", node="n"), Kind.POD_ASSIGNED, ""),
        (pod("p", node="n"), None, Kind.POD_DELETED, ""),
        (pod("p", node="n"), pod("p", node="n", status={"phase": "Succeeded"}), Kind.POD_DELETED, ""),
        (pod("p", status={"nominatedNodeName": "n"}), pod("p"), Kind.POD_DELETED, ""),
        (pod("p", status={"nominatedNodeName": "n"}), pod("p", node="m"), Kind.POD_DELETED, ""),
        (pod("p", status={"nominatedNodeName": "n"}), pod("p", node="n"), Kind.POD_ASSIGNED, ""),
        (pod("p", node="n"), pod("p", node="n", labels={"a": "b"}), Kind.POD_UPDATED, "labels"),
        (pod("p", node="n", cpu="2"), pod("p", node="n", cpu="1"), Kind.POD_UPDATED, "scaled down"),
        (pod("p", node="n"), pod("p", node="n", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
         Kind.POD_UPDATED, "terminating"),
        (None, claim("c"), Kind.CLAIM_CHANGED, ""),
        (claim("c"), claim("c", results=[_RESULT]), Kind.CLAIM_CHANGED, ""),
        (claim("c", results=[_RESULT], reserved=["p"]), claim("c", results=[_RESULT]),
         Kind.CLAIM_CHANGED, ""),
        (claim("c", results=[_RESULT]), claim("c"), Kind.CLAIM_FREED, ""),
        (claim("c", results=[_RESULT]), None, Kind.CLAIM_FREED, ""),
        (None, device_class("k"), Kind.CLASS_CHANGED, ""),
        (None, resource_slice("n", [device("d")]), Kind.SLICE_CHANGED, ""),
        (resource_slice("n", [device("d")]), resource_slice("n", [device("e")]), Kind.SLICE_CHANGED, ""),
        (resource_slice("n", [device("d")]), None, Kind.SLICE_CHANGED, ""),
        (DeviceTaintRule(), None, Kind.TAINT_RULE_CHANGED, ""),
        (Namespace(), Namespace(metadata=ObjectMeta(labels={"a": "b"})), Kind.NAMESPACE_CHANGED, ""),
        (None, PersistentVolumeClaim(), Kind.VOLUME_CLAIM_CHANGED, ""),
        (None, PersistentVolume(), Kind.VOLUME_CHANGED, ""),
        (None, StorageClass(), Kind.STORAGE_CLASS_CHANGED, ""),
        (None, CSINode(), Kind.CSI_NODE_CHANGED, ""),
        (VolumeAttachment(), None, Kind.VOLUME_DETACHED, ""),
    ],
)  # fmt: skip
def test_what_a_change_comes_to(old: Any, new: Any, kind: Kind, aspects: str) -> None:
    found = happened(old, new)
    assert found.kind is kind
    assert {each.value for each in found.aspects} == ({aspects} if aspects else set())


# -- whom it helps

ALL = frozenset(Rule)


def helped(happening: Happening, **fields: Any) -> set[str]:
    """The rules (but those of volumes) a pod with these fields may wait for and be helped, each alone."""
    waiting = pod("waiting", **fields)
    return {rule.name for rule in ALL - VOLUMES if can_help(happening, rule, waiting)}


def test_a_node_that_comes_helps_pods_it_suits() -> None:
    added = happened(None, node("n", cpu="4", taints=["t:NoSchedule"], unschedulable=True))
    everything = {each.name for each in ALL - VOLUMES} - {"SCHEDULING_GATES", "UNSUPPORTED"}
    assert helped(added) == everything - {"TAINTS", "UNSCHEDULABLE"}
    assert helped(added, cpu="5") == everything - {"TAINTS", "UNSCHEDULABLE", "RESOURCES"}
    assert helped(added, cpu="5", claims=["c"]) == everything - {"TAINTS", "UNSCHEDULABLE"}
    assert "NODE_AFFINITY" not in helped(added, node_selector={"a": "b"})
    assert {"TAINTS", "UNSCHEDULABLE"} <= helped(added, tolerations=[{"operator": "Exists"}])


def test_other_rules_that_it_waits_for_speak_too() -> None:
    added = happened(None, node("n", taints=["t:NoSchedule"]))
    assert can_help(added, Rule.RESOURCES, pod("p"))
    assert not can_help(added, Rule.RESOURCES, pod("p"), frozenset({Rule.TAINTS}))
    assert any_helps([added], frozenset({Rule.RESOURCES}), pod("p"))
    assert not any_helps([added], frozenset({Rule.RESOURCES, Rule.TAINTS}), pod("p"))


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
def test_a_change_of_a_node_helps_rules_that_look_at_it(
    old: dict[str, Any], new: dict[str, Any], rules: set[str]
) -> None:
    happening = happened(node("n", **old), node("n", **new))
    found = helped(happening, requests={"cpu": "2"}, node_selector={"a": "b"})
    assert found == rules


def test_pods_of_a_node_of_their_own_are_not_interested_in_others() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["mine"]}]
    own = {"nodeAffinity": {_MUST: {"nodeSelectorTerms": [{"matchFields": fields}]}}}
    assert helped(happened(None, node("else")), affinity=own) == {"INTER_POD", "SPREAD"}
    assert "RESOURCES" in helped(happened(None, node("mine")), affinity=own)
    assert "RESOURCES" not in helped(happened(pod("p", node="else"), None), affinity=own)
    assert "DEVICES" not in helped(happened(pod("p", node="else", claims=["c"]), None), affinity=own)
    assert "DEVICES" in helped(released(pod("p", claims=["c"])), affinity=own), "devices are given back"
    assert "DEVICES" not in helped(happened(None, resource_slice("else", [device("d")])), affinity=own)


def test_a_node_that_goes() -> None:
    assert helped(happened(node("n"), None)) == {"INTER_POD", "SPREAD"}


def test_a_plain_pod_that_goes_wakes_pods_that_wait_for_devices() -> None:
    """What a claim charges may fit now, although no claim has changed."""
    queue = PodQueue()
    queue.add(pod("p", claims=["c"]), 0)
    queue.pop(0)
    queue.fail("uid-p", frozenset({Rule.DEVICES}), 0)
    assert queue.happen(happened(pod("plain", node="n", cpu="1"), None), 1) == 1


def test_a_pod_that_goes_brings_room_and_no_devices() -> None:
    """Its devices are held until its claims say otherwise; whoever lacks devices alone goes on waiting."""
    waiting, gone = pod("p", claims=["c"]), happened(pod("g", node="n", claims=["d"]), None)
    assert can_help(gone, Rule.DEVICES, waiting)
    assert not can_help(gone, Rule.DEVICES, waiting, room=False)
    assert can_help(released(pod("g", claims=["d"])), Rule.DEVICES, waiting, room=False)
    more = happened(node("n", cpu="1"), node("n", cpu="2"))
    assert can_help(more, Rule.DEVICES, waiting)
    assert not can_help(more, Rule.DEVICES, waiting, room=False)
    label = happened(node("n"), node("n", labels={"a": "b"}))
    assert can_help(label, Rule.DEVICES, waiting, room=False), "devices may be for nodes with that label"


def test_whether_room_was_short() -> None:
    snapshot = snapshot_of(
        node("n", cpu="1"),
        device_class(CLASS),
        resource_slice("n", [charging_device("d", cpu="2")]),
        claim("c", exactly("r")),
        claim("many", exactly("r", count=3)),
    )
    for name, short in (("c", True), ("many", False)):
        task = task_of(pod("p", claims=[name]), snapshot)
        unplaced = schedule_one(task, snapshot, Settings.default(), lambda: "id")
        assert isinstance(unplaced, Unplaced)
        assert wants_room(unplaced) is short


def test_a_pod_that_goes() -> None:
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


def test_a_pod_that_comes() -> None:
    came = happened(pod("g"), pod("g", node="n", labels={"app": "x"}))
    assert helped(came, affinity=near("podAffinity", "x")) == {"INTER_POD"}
    assert helped(came, affinity=near("podAffinity", "y")) == set()
    assert helped(came, topology_spread_constraints=_SPREAD) == {"SPREAD"}


def test_a_pod_that_changes() -> None:
    label = happened(pod("g", node="n"), pod("g", node="n", labels={"app": "x"}))
    assert helped(label, affinity=near("podAffinity", "x")) == {"INTER_POD"}
    less = happened(pod("g", node="n", cpu="2"), pod("g", node="n", cpu="1"))
    assert helped(less) == {"RESOURCES", "DEVICES"}
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    labels = {"app": "x"}
    going = happened(pod("g", node="n", labels=labels), pod("g", node="n", labels=labels, metadata=ending))
    assert helped(going, topology_spread_constraints=_SPREAD) == {"SPREAD"}, "those are not counted"


def test_how_much_room_there_is() -> None:
    line, gone = {"cpu": 4000, "memory": 1 << 30, "pods": 3}, pod("g", node="n")

    def room(least: int | None = 0, **free: int) -> Room:
        return Room(node("n", cpu="4"), line, line | free, least)

    def helps(happening: Happening, **fields: Any) -> bool:
        return "RESOURCES" in helped(happening, **fields)

    assert helps(happened(gone, None, room(cpu=1000)), cpu="1")
    assert not helps(happened(gone, None, room(cpu=999)), cpu="1")
    assert not helps(happened(gone, None, room(pods=0)))
    assert helps(happened(gone, None, room(cpu=-5))), "it asks for nothing"
    assert helps(happened(gone, None, room(cpu=0)), cpu="1", priority=1), "others may have to go"
    assert not helps(happened(gone, None, room(cpu=0, least=1)), cpu="1", priority=1)
    assert not helps(happened(gone, None, room(cpu=0)), cpu="5", priority=1), "the node is too small"
    assert helps(happened(gone, None, room(cpu=0)), cpu="1", claims=["c"]), "its claim may bring it"
    assert helps(happened(gone, None, room()), requests={"example.com/gpu": "1"}), "may come from a class"
    assert not helps(released(pod("g"), room(cpu=0)), cpu="1")


def test_the_room_on_a_node() -> None:
    snapshot = snapshot_of(node("n", cpu="4", pods="9"), pod("a", node="n", cpu="1", priority=3))
    room = room_at(snapshot, "n")
    assert room is not None
    assert (room.line["cpu"], room.free["cpu"], room.free["pods"], room.least) == (4000, 3000, 8, 3)
    assert room_at(snapshot, "else") is None


def test_a_claim_that_changes_helps_its_users() -> None:
    changed = happened(claim("c"), claim("c", results=[_RESULT]))
    assert helped(changed, claims=["c"]) == {"DEVICES"}
    assert helped(changed, claims=["d"]) == set()
    assert helped(changed, claims=["c"], namespace="else") == set()


def test_devices_that_come_free_help_all_that_wait_for_devices() -> None:
    for new in (claim("c", exactly("r")), None):
        freed = happened(claim("c", exactly("r"), results=[_RESULT]), new)
        assert helped(freed, claims=["other"]) == {"DEVICES"}


def test_classes_and_slices() -> None:
    changed = happened(None, device_class("k", extendedResourceName="example.com/gpu"))
    assert helped(changed) == {"DEVICES"}
    assert helped(changed, requests={"example.com/gpu": "1"}) == {"DEVICES", "RESOURCES"}
    implied = {"deviceclass.resource.kubernetes.io/k": "1"}
    assert helped(changed, requests=implied) == {"DEVICES", "RESOURCES"}
    assert helped(happened(None, resource_slice("n", [device("d")]))) == {"DEVICES"}
    assert helped(Happening(Kind.TAINT_RULE_CHANGED)) == {"DEVICES"}
    assert helped(Happening(Kind.NAMESPACE_CHANGED)) == {"INTER_POD"}


def test_volumes() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "ephemeral": {}}]
    waiting = pod("p", volumes=volumes)

    def asked(happening: Happening) -> set[Rule]:
        return {rule for rule in VOLUMES if can_help(happening, rule, waiting)}

    for name, expected in (("data", VOLUMES), ("p-e", VOLUMES), ("else", set())):
        new = PersistentVolumeClaim(metadata=ObjectMeta(name=name, namespace="default"))
        assert asked(happened(None, new)) == expected
    for other in (PersistentVolume(), StorageClass(), CSINode()):
        assert asked(happened(None, other)) == VOLUMES
    assert asked(happened(VolumeAttachment(), None)) == {Rule.VOLUME_LIMITS}
    assert asked(happened(pod("g", node="n"), None)) == set()
    assert asked(happened(pod("g", node="n", volumes=volumes), None)) == VOLUMES - {Rule.VOLUME_ZONE}


def test_every_kind_of_happening_helps_some_rule() -> None:
    for kind in Kind:
        rules = rules_of(Happening(kind, aspects=frozenset(Aspect)))
        assert rules
        assert Rule.SCHEDULING_GATES not in rules
