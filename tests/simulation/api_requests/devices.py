"""Requests for nodes, their devices, and what devices need: slices, classes and taint rules."""

from __future__ import annotations

from typing import Any

from plimsoll.client.transport import Request
from tests import manifests
from tests.manifests import DRIVER
from tests.simulation.api_requests.dice import APPLY, MERGE, STRATEGIC, TIME, Dice
from tests.simulation.api_requests.pods import make_condition

Tree = dict[str, Any]


def write_slice(dice: Dice) -> Request | None:
    if dice.maybe(0.4) or (known := dice.object("resourceslices")) is None:
        node = dice.one(("n0", "n1"))
        tree = manifests.resource_slice(f"s-{node}", node, 2)
        if dice.maybe(0.5):
            tree["metadata"] = {"generateName": f"{node}-"}
        if dice.maybe(0.3):
            tree["spec"]["devices"][0]["taints"] = [{"key": "example.org/t", "effect": "NoExecute"}]
        if dice.maybe(0.3):
            form = {"cpu": {"quantity": "1"}}
            tree["spec"]["devices"][0]["nodeAllocatableResourceMappings"] = form
        return dice.create("resourceslices", tree)
    spec = known["spec"]
    pool = {**spec["pool"], "generation": spec["pool"]["generation"] + dice.one((0, 1))}
    devices = dice.one((spec["devices"], spec["devices"][:1]))
    tree = {**known, "spec": {**spec, "pool": pool, "devices": devices}}
    if dice.maybe(0.1):
        tree["spec"]["driver"] = "other.example.com"
    return dice.write("PUT", dice.path_of("resourceslices", known), dice.update_body(tree))


def write_class(dice: Dice) -> Request | None:
    if dice.maybe(0.3):
        value = dice.one((5, 2_000_000_000))
        return dice.create("priorityclasses", make_priority_class("low", value))
    if dice.maybe(0.6) or (known := dice.object("deviceclasses")) is None:
        return dice.create("deviceclasses", manifests.device_class(DRIVER))
    spec = {"selectors": dice.one((None, known["spec"].get("selectors")))}
    return dice.write("PATCH", dice.path_of("deviceclasses", known), {"spec": spec}, MERGE)


def make_priority_class(name: str, value: int) -> Tree:
    return {"metadata": {"name": name}, "value": value}


def write_taint_rule(dice: Dice) -> Request | None:
    if dice.maybe(0.4) or (known := dice.object("devicetaintrules")) is None:
        taint = {"key": "example.org/t", "effect": dice.one(("NoExecute", "NoSchedule"))}
        spec = {"deviceSelector": {"driver": DRIVER}, "taint": taint}
        return dice.create("devicetaintrules", {"metadata": {"name": "r"}, "spec": spec})
    if dice.maybe(0.4):
        effect = dice.one(("NoExecute", "NoSchedule"))
        return dice.write(
            "PATCH",
            dice.path_of("devicetaintrules", known),
            {"spec": {"taint": {"effect": effect}}},
            MERGE,
        )
    condition = {"type": "EvictionInProgress", "status": "True", "reason": dice.one(("A", "B"))}
    condition |= {"message": "text", "lastTransitionTime": TIME}
    body = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r", "uid": known["metadata"]["uid"]},
        "status": {"conditions": [condition]},
    }
    query = [("fieldManager", "eviction"), ("force", "true")]
    return dice.write("PATCH", dice.path_of("devicetaintrules", known, "status"), body, APPLY, query)


def make_node(name: str) -> Tree:
    line = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    labels = {"topology.kubernetes.io/zone": "z"} if name == "n0" else {}
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": line}}


def write_node(dice: Dice) -> Request | None:
    node = dice.object("nodes")
    if dice.maybe(0.3) or node is None:
        return dice.create("nodes", make_node(dice.one(("n0", "n1", "n2"))))
    if dice.maybe(0.4):
        status = {"conditions": [make_condition(dice)], "allocatable": {"cpu": dice.one(("3", "4"))}}
        return dice.write("PATCH", dice.path_of("nodes", node, "status"), {"status": status}, STRATEGIC)
    taints = dice.one((None, [], [{"key": "example.org/t", "effect": "NoSchedule"}]))
    body: Tree = {"spec": dice.one(({"taints": taints}, {"unschedulable": dice.one((True, None))}))}
    if dice.maybe(0.5):
        body["metadata"] = dice.preconditions(node["metadata"])
    return dice.write("PATCH", dice.path_of("nodes", node), body, MERGE)
