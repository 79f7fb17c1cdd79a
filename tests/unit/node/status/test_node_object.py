"""Node and Lease objects of an agent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api.core import NodeAddress, Taint
from plimsoll.api.quantity import Quantity
from plimsoll.node.machine.machine import Machine
from plimsoll.node.status.node_object import (
    CONDITIONS,
    ConditionState,
    NodeDescription,
    condition_event,
    desired_status,
    has_changed,
    label_patch,
    labels_of,
    new_lease,
    new_node,
    renewed_lease,
    status_patch,
)

NOW = 1_700_000_000.5
MACHINE = Machine(
    capacity={"cpu": Quantity.parse("4"), "memory": Quantity.parse("8Gi"), "hugepages-2Mi": Quantity.of(0)},
    boot_id="b",
    hostname="metal",
    labels={"topology.kubernetes.io/zone": "a", "rack": "1"},
    taints=(Taint(key="t", effect="NoSchedule"),),
)
FACTS = NodeDescription(
    name="n",
    machine=MACHINE,
    allocatable_amounts={
        "cpu": Quantity.parse("3"),
        "memory": Quantity.parse("7Gi"),
        "hugepages-2Mi": Quantity.of(0),
    },
    labels={"rack": "2"},
    addresses=(NodeAddress(type="InternalIP", address="10.0.0.1"),),
    version="v1.36.0",
    features=("B", "A"),
)
FINE = {type: ConditionState(type == "Ready") for type in CONDITIONS}


def test_a_new_node_is_complete() -> None:
    node = new_node(FACTS, FINE, NOW)
    assert node["metadata"]["name"] == "n"
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "n",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": "a",
        "rack": "2",
    }
    assert node["spec"]["taints"] == [{"key": "t", "effect": "NoSchedule"}]
    status = node["status"]
    assert (status["capacity"]["cpu"], status["allocatable"]["cpu"]) == ("4", "3")
    assert status["addresses"][-1] == {"type": "Hostname", "address": "n"}
    assert status["declaredFeatures"] == ["A", "B"]
    assert status["nodeInfo"]["kubeletVersion"] == "v1.36.0"
    shown = [(c["type"], c["status"], c["reason"], c["message"]) for c in status["conditions"]]
    memory = "kubelet has sufficient memory available"
    assert shown[0] == ("MemoryPressure", "False", "KubeletHasSufficientMemory", memory)
    assert [each[0] for each in shown] == ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
    assert shown[-1] == ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    assert {c["lastHeartbeatTime"] for c in status["conditions"]} == {"2023-11-14T22:13:20Z"}


def test_a_too_long_name_is_not_a_label() -> None:
    labels = labels_of(replace(FACTS, name="a" * 64))
    assert labels["kubernetes.io/hostname"] == "metal"


def test_timestamps_alone_are_not_a_change() -> None:
    known = desired_status(FACTS, FINE, {}, NOW)
    assert not has_changed(desired_status(FACTS, FINE, known, NOW + 999), known)
    respelt = {**known, "allocatable": {**known["allocatable"], "memory": "7168Mi"}}
    assert not has_changed(desired_status(FACTS, FINE, respelt, NOW), respelt)


def change(known: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**known, **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"capacity": {"cpu": "5", "memory": "8Gi", "hugepages-2Mi": "0"}},
        {"capacity": {"cpu": "4", "memory": "8Gi", "hugepages-2Mi": "0", "hugepages-1Gi": "0"}},
        {"allocatable": {}},
        {"conditions": []},
        {"addresses": []},
        {"declaredFeatures": ["A"]},
        {"nodeInfo": {}},
        {"nodeInfo": None, "capacity": None},
    ],
)
def test_any_other_field_is_a_change(fields: dict[str, Any]) -> None:
    known = desired_status(FACTS, FINE, {}, NOW)
    assert has_changed(desired_status(FACTS, FINE, known, NOW), {**known, **fields})


def test_a_condition_keeps_its_transition_time() -> None:
    known = desired_status(FACTS, FINE, {}, NOW)
    later = desired_status(FACTS, {**FINE, "MemoryPressure": ConditionState(True)}, known, NOW + 60)
    times = {c["type"]: (c["status"], c["lastTransitionTime"]) for c in later["conditions"]}
    assert times["MemoryPressure"] == ("True", "2023-11-14T22:14:20Z")
    assert times["Ready"] == ("True", "2023-11-14T22:13:20Z")
    assert {c["lastHeartbeatTime"] for c in later["conditions"]} == {"2023-11-14T22:14:20Z"}


def test_foreign_labels_and_fields_are_kept() -> None:
    known = desired_status(FACTS, FINE, {}, NOW)
    known["capacity"] |= {"example.com/gpu": "4", "hugepages-1Gi": "1Gi"}
    known["allocatable"] |= {"example.com/gpu": "1", "hugepages-1Gi": "1Gi"}
    desired = desired_status(FACTS, FINE, known, NOW)
    assert desired["allocatable"]["example.com/gpu"] == "4"
    patch = status_patch(desired, known)["status"]
    assert "example.com/gpu" not in patch["capacity"]
    assert patch["capacity"]["hugepages-1Gi"] is None
    assert patch["allocatable"]["hugepages-1Gi"] is None
    assert patch["addresses"][0] == {"$patch": "replace"}


def test_removed_features_are_withdrawn() -> None:
    known = desired_status(FACTS, FINE, {}, NOW)
    plain = replace(FACTS, features=())
    desired = desired_status(plain, FINE, known, NOW)
    assert has_changed(desired, known)
    assert status_patch(desired, known)["status"]["declaredFeatures"] is None


def test_labels_of_an_existing_node_are_updated() -> None:
    right = {"metadata": {"labels": {**labels_of(FACTS), "rack": "mine", "other": "x"}}}
    assert label_patch(FACTS, right) is None
    wrong = {"metadata": {"labels": {"kubernetes.io/os": "windows", "rack": "mine"}}}
    patch = label_patch(FACTS, wrong)
    assert patch is not None
    assert "rack" not in patch["metadata"]["labels"]
    assert patch["metadata"]["labels"]["kubernetes.io/os"] == "linux"
    assert label_patch(FACTS, {}) is not None


def test_a_lease_belongs_to_its_node() -> None:
    lease = new_lease("n", "u1", NOW, 40)
    assert lease["spec"] == {
        "holderIdentity": "n",
        "leaseDurationSeconds": 40,
        "renewTime": "2023-11-14T22:13:20.500000Z",
    }
    kept = {**lease, "metadata": {**lease["metadata"], "resourceVersion": "7", "labels": {"a": "b"}}}
    again = renewed_lease(kept, "n", "u2", NOW + 1, 40)
    assert again["metadata"]["resourceVersion"] == "7"
    assert again["metadata"]["labels"] == {"a": "b"}
    assert [owner["uid"] for owner in again["metadata"]["ownerReferences"]] == ["u2"]
    assert again["spec"]["renewTime"] == "2023-11-14T22:13:21.500000Z"


def test_event_messages() -> None:
    assert condition_event("Ready", True) == "NodeReady"
    assert condition_event("Ready", False) == "NodeNotReady"
    assert condition_event("MemoryPressure", True) == "NodeHasInsufficientMemory"
    assert condition_event("DiskPressure", False) == "NodeHasNoDiskPressure"
    assert condition_event("PIDPressure", False) == "NodeHasSufficientPID"
    assert condition_event("Other", True) == ""
