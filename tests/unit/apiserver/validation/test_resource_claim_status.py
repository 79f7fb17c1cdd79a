"""Status of claims: reservations, allocations, device status and authorization."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.validation import Caller, Permission
from tests.unit.apiserver.validation.objects import (
    ADMIN,
    GONE,
    SHARE,
    allocated,
    claim,
    edit,
    field_errors,
    result,
    run,
    stored,
)

USER = {"resource": "pods", "name": "train", "uid": "u1"}
RESULT = "status.allocation.devices.results[0]"
DEVICE = "status.devices[0]"
IDENTITY = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}


def _status(tree: Any, old: Any | None = None, **options: Any) -> list[str]:
    return field_errors(tree, stored(claim()) if old is None else old, "status", **options)


@pytest.mark.parametrize(
    ("users", "errors"),
    [
        ([USER], []),
        ([{}], ["[0].name Required", "[0].resource Required", "[0].uid Required"]),
        ([USER, {**USER, "name": "other"}], ["[1] Duplicate"]),
        ([{**USER, "uid": f"u{i}"} for i in range(256)], []),
        ([{}] * 257, [" TooMany"]),
    ],
)
def test_reservations(users: list[Any], errors: list[str]) -> None:
    tree = allocated(reservedFor=users)
    assert _status(tree) == [f"status.reservedFor{error}" for error in errors]


def test_only_an_allocated_claim_can_be_reserved() -> None:
    tree = edit(allocated(reservedFor=[USER]), {"status.allocation": GONE})
    assert _status(tree) == ["status.reservedFor Forbidden"]
    assert _status(edit(tree, {"status.reservedFor": []})) == []


def test_no_new_users_while_deleting() -> None:
    old = edit(allocated(reservedFor=[USER]), {"metadata.deletionTimestamp": "2025-01-01T00:00:00Z"})
    more = edit(old, {"status.reservedFor": [USER, {**USER, "uid": "u2"}]})
    assert _status(more, old) == ["status.reservedFor Forbidden"]
    assert _status(edit(old, {"status.reservedFor": [{**USER, "name": "x"}]}), old) == [
        "status.reservedFor Forbidden"
    ]
    assert _status(edit(old, {"status.reservedFor": []}), old) == []
    assert _status(edit(more, {"metadata.deletionTimestamp": GONE}), allocated()) == []


def test_a_status_write_cannot_touch_spec_or_metadata() -> None:
    old = stored(claim(), labels={"a": "b"}, finalizers=["a.io/x"])
    tree = edit(
        old,
        {
            "spec.devices.requests": [],
            "metadata.labels": {"a b": ""},
            "metadata.finalizers": ["bad"],
            "metadata.generation": 0,
            "metadata.ownerReferences": [{}],
            "metadata.annotations": {"x": "y"},
            "metadata.deletionTimestamp": "2025-01-01T00:00:00Z",
        },
    )
    prepared = run(tree, old, "status")
    assert prepared.errors == ()
    assert prepared.tree["metadata"] == old["metadata"]
    assert [request["name"] for request in prepared.tree["spec"]["devices"]["requests"]] == ["gpus", "nic"]
    assert _status(edit(old, {"metadata.uid": "x"}), old) == ["metadata.uid Invalid"]


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"request": "nic"}, []),
        ({"request": "nic/slow"}, []),
        ({"request": "none"}, [".request Invalid"]),
        ({"driver": ""}, [".driver Required"]),
        ({"pool": ""}, [".pool Required"]),
        ({"pool": "A/b"}, [".pool Invalid"]),
        ({"device": "A"}, [".device Invalid"]),
        ({"shareID": SHARE}, []),
        ({"shareID": SHARE.upper()}, [".shareID Invalid"]),
        ({"shareID": ""}, [".shareID Invalid"]),
        ({"bindingConditions": ["a"]}, [".bindingFailureConditions Invalid"]),
        ({"consumedCapacity": {"any thing": "-1"}, "tolerations": [{"operator": "?"}]}, []),
    ],
)
def test_results(changes: dict[str, Any], errors: list[str]) -> None:
    tree = allocated({**result(), **changes})
    assert _status(tree) == [f"{RESULT}{error}" for error in errors]


def test_numbers_of_results_and_configurations() -> None:
    assert _status(allocated(*[result()] * 32)) == []
    assert _status(allocated(*[{}] * 33)) == ["status.allocation.devices.results TooMany"]
    config = {"source": "FromClaim", "opaque": {"driver": "d", "parameters": {}}}
    assert _status(edit(allocated(), {"status.allocation.devices.config": [config] * 64})) == []
    assert _status(edit(allocated(), {"status.allocation.devices.config": [config] * 65})) == [
        "status.allocation.devices.config TooMany"
    ]


@pytest.mark.parametrize(
    ("config", "errors"),
    [
        ({"source": "FromClass"}, []),
        ({}, [".source Required"]),
        ({"source": "FromAbove"}, [".source NotSupported"]),
        ({"source": "FromClaim", "requests": ["gpus", "x"]}, [".requests[1] Invalid"]),
        ({"source": "FromClaim", "opaque": None}, [".opaque Required"]),
    ],
)
def test_allocated_configuration(config: dict[str, Any], errors: list[str]) -> None:
    entry = {"opaque": {"driver": "d", "parameters": {}}, **config}
    tree = edit(allocated(), {"status.allocation.devices.config": [entry]})
    assert _status(tree) == [f"status.allocation.devices.config[0]{error}" for error in errors]


def test_node_selector_of_an_allocation() -> None:
    at = "status.allocation.nodeSelector.nodeSelectorTerms"
    assert _status(edit(allocated(), {"status.allocation.nodeSelector": {}})) == [f"{at} Required"]
    terms = [{"matchFields": [{"key": "x", "operator": "In", "values": ["n"]}]}, {}]
    tree = edit(allocated(), {"status.allocation.nodeSelector": {"nodeSelectorTerms": terms}})
    assert _status(tree) == [f"{at}[0].matchFields[0].key Invalid"]


def test_an_allocation_is_set_and_cleared_atomically() -> None:
    old = allocated(result(driver="BAD NAME"))
    assert _status(old, old) == []  # not held to the rules again
    assert _status(edit(old, {"status.allocation.devices.results.0.device": "gpu-1"}), old) == [
        "status.allocation Invalid"
    ]
    assert _status(edit(old, {"status.allocation": GONE}), old) == []
    spelled = allocated(result(consumedCapacity={"m": "1024Mi"}))
    assert _status(allocated(result(consumedCapacity={"m": "1Gi"})), spelled) == []


def test_admin_access_in_a_new_allocation() -> None:
    tree = allocated(result(), result("gpu-1", adminAccess=True))
    at = "status.allocation.devices.results[1].adminAccess"
    assert _status(tree) == [f"{at} Forbidden"]
    assert _status(tree, namespace_labels=None) == [f"{at} InternalError"]
    assert _status(tree, namespace_labels=ADMIN) == []
    assert _status(tree, tree) == []


# -- device status


def _reported(**fields: Any) -> dict[str, Any]:
    return allocated(devices=[{**IDENTITY, **fields}])


CONDITION = {
    "type": "a.io/Ready",
    "status": "True",
    "reason": "Fine",
    "message": "",
    "lastTransitionTime": "2025-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({}, []),
        ({"driver": ""}, [" Invalid", ".driver Required"]),
        ({"pool": "other"}, [" Invalid"]),
        ({"shareID": SHARE}, [" Invalid"]),
        ({"shareID": ""}, [".shareID Invalid"]),  # means the same device, but is no UUID
        ({"data": {"a": [1, None]}}, []),
        ({"data": None}, []),
        ({"data": []}, [".data Invalid"]),
        ({"data": "x" * 10240}, [".data TooLong"]),
        ({"networkData": {}}, []),
        ({"networkData": {"interfaceName": "x" * 257}}, [".networkData.interfaceName TooLong"]),
        ({"networkData": {"hardwareAddress": "x" * 129}}, [".networkData.hardwareAddress TooLong"]),
        ({"networkData": {"ips": ["10.0.0.5/24", "fd00::1/64"]}}, []),
        ({"networkData": {"ips": ["10.0.0.5"]}}, [".networkData.ips[0] Invalid"]),
        ({"networkData": {"ips": ["10.0.0.5/24"] * 2}}, [".networkData.ips[1] Duplicate"]),
        ({"networkData": {"ips": ["x"] * 17}}, [".networkData.ips TooMany"]),
        ({"conditions": [CONDITION]}, []),
        ({"conditions": [CONDITION, CONDITION]}, [".conditions[1].type Duplicate"]),
        ({"conditions": [{**CONDITION, "type": f"t{i}"} for i in range(9)]}, [".conditions TooMany"]),
        ({"conditions": [{**CONDITION, "type": ""}]}, [".conditions[0].type Invalid"] * 2),
        ({"conditions": [{**CONDITION, "status": "Yes"}]}, [".conditions[0].status NotSupported"]),
        ({"conditions": [{**CONDITION, "reason": ""}]}, [".conditions[0].reason Required"]),
        ({"conditions": [{**CONDITION, "reason": "a b"}]}, [".conditions[0].reason Invalid"]),
        ({"conditions": [{**CONDITION, "reason": "a" * 1025}]}, [".conditions[0].reason TooLong"]),
        ({"conditions": [{**CONDITION, "message": "a" * 32769}]}, [".conditions[0].message TooLong"]),
        (
            {"conditions": [{**CONDITION, "observedGeneration": -1}]},
            [".conditions[0].observedGeneration Invalid"],
        ),
        (
            {"conditions": [{**CONDITION, "lastTransitionTime": None}]},
            [".conditions[0].lastTransitionTime Required"],
        ),
        (
            {"conditions": [{**CONDITION, "lastTransitionTime": "0001-01-01T00:00:00Z"}]},
            [".conditions[0].lastTransitionTime Required"],
        ),
    ],
)
def test_device_status(fields: dict[str, Any], errors: list[str]) -> None:
    assert _status(_reported(**fields)) == [f"{DEVICE}{error}" for error in errors]


def test_one_report_for_each_device_and_share() -> None:
    shares = [result(), result(shareID=SHARE)]
    assert _status(allocated(*shares, devices=[IDENTITY, {**IDENTITY, "shareID": SHARE}])) == []
    assert _status(allocated(*shares, devices=[IDENTITY, IDENTITY])) == ["status.devices[1] Duplicate"]
    assert _status(allocated(devices=[{**IDENTITY, "device": "gpu-7"}])) == ["status.devices[0] Invalid"]


def test_status_of_deallocated_devices_is_dropped() -> None:
    devices = [IDENTITY, {**IDENTITY, "device": "gpu-1"}]
    old = allocated(result(), result("gpu-1"), devices=devices)
    released = run(edit(old, {"status.allocation": GONE}), old, "status")
    assert released.errors == ()
    assert "devices" not in released.tree["status"]
    # What was never allocated is not forgotten but refused.
    never = edit(old, {"status.devices.0.device": "gpu-7"})
    assert _status(never, old) == ["status.devices[0] Invalid"]


# -- permissions


LOCAL = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
}


def _ask(
    tree: Any, old: Any, allowed: set[Permission] | None = None, node: str = "", **gates: bool
) -> tuple[list[str], list[Permission]]:
    asked: list[Permission] = []

    def permits(permission: Permission) -> bool:
        asked.append(permission)
        return permission in (allowed or set())

    caller = Caller(permits, "patch", node)
    return _status(tree, old, caller=caller, gates=gates), asked


def test_allocating_needs_the_right_to_bind() -> None:
    tree, old = allocated(), stored(claim())
    right = Permission("patch", "binding")
    assert _ask(tree, old) == (["status.allocation Forbidden"], [right])
    assert _ask(tree, old, {right})[0] == []
    assert _ask(old, old) == ([], [])
    reserved = edit(tree, {"status.reservedFor": [USER]})
    assert _ask(reserved, tree)[0] == ["status.allocation Forbidden"]
    assert _ask(tree, old, DRAResourceClaimGranularStatusAuthorization=False) == ([], [])


def test_reporting_needs_the_right_of_the_driver() -> None:
    old = edit(allocated(), {"status.allocation.nodeSelector": LOCAL})
    tree = edit(old, {"status.devices": [IDENTITY]})
    near = Permission("associated-node:patch", "driver", "lab", "gpu.example.com")
    far = Permission("arbitrary-node:patch", "driver", "lab", "gpu.example.com")
    assert _ask(tree, old) == (["status.devices Forbidden"], [far])
    assert _ask(tree, old, {near}) == (["status.devices Forbidden"], [far])
    assert _ask(tree, old, {near}, node="n1") == ([], [near])
    assert _ask(tree, old, {far}, node="n1") == ([], [near, far])
    assert _ask(tree, old, {near}, node="n2")[0] == ["status.devices Forbidden"]
    assert _ask(tree, tree) == ([], [])
    assert _ask(edit(tree, {"status.devices.0.data": {"a": 1}}), tree)[0] == ["status.devices Forbidden"]
    assert _ask(old, tree)[0] == ["status.devices Forbidden"]
