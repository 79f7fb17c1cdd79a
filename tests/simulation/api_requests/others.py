"""Requests for namespaces, leases, events, disruption budgets and pod groups."""

from __future__ import annotations

from typing import Any

from plimsoll.client.transport import Request
from tests.simulation.api_requests.dice import ENDPOINTS, MERGE, STRATEGIC, TIME, Dice

Tree = dict[str, Any]


def write_namespace(dice: Dice) -> Request | None:
    namespace = dice.object("namespaces")
    if dice.maybe(0.4) or namespace is None:
        return dice.create("namespaces", {"metadata": dice.metadata(dice.one(("extra", "default")))})
    if namespace["metadata"]["name"] != "extra" and dice.maybe(0.7):
        return None
    path = dice.path_of("namespaces", namespace)
    if dice.maybe(0.4):
        return dice.write("DELETE", path, None)
    if dice.maybe(0.6):
        return dice.write("PUT", f"{path}/finalize", {**namespace, "spec": {"finalizers": []}})
    return dice.write("PATCH", path, {"metadata": {"labels": {"app": "a"}}}, MERGE)


def write_lease(dice: Dice) -> Request | None:
    lease = dice.object("leases")
    spec = {"holderIdentity": dice.one(("a", "b")), "leaseDurationSeconds": dice.one((15, 15, 15, 0))}
    spec["renewTime"] = "2026-01-01T00:00:00.000000Z"
    if lease is None or dice.maybe(0.3):
        tree = {"metadata": {"name": dice.one(("l0", "l1"))}, "spec": spec}
        root = dice.collection("leases")
        if dice.maybe(0.2):
            return dice.write("PUT", f"{root}/{tree['metadata']['name']}", tree)
        return dice.write("POST", root, tree)
    tree = {**lease, "spec": {**lease.get("spec", {}), **spec}}
    return dice.write("PUT", dice.path_of("leases", lease), dice.update_body(tree))


def write_event(dice: Dice) -> Request | None:
    namespace = dice.namespace()
    event = dice.object("events")
    if event is not None and dice.maybe(0.5):
        patch = {"count": dice.rng.randrange(1, 4), "lastTimestamp": TIME}
        return dice.write("PATCH", dice.path_of("events", event), patch, MERGE)
    tree = {
        "metadata": {"name": dice.one(("e0", "e1"))},
        "involvedObject": {"kind": "Pod", "name": "p0", "namespace": namespace},
        "reason": "Scheduled",
        "message": "text",
        "type": "Normal",
        "source": {"component": "test"},
        "firstTimestamp": TIME,
        "lastTimestamp": TIME,
        "count": 1,
        "reportingComponent": "test",
        "reportingInstance": "here",
    }
    return dice.write("POST", ENDPOINTS["events"].path(namespace), tree)


def write_budget(dice: Dice) -> Request | None:
    budget = dice.object("poddisruptionbudgets")
    if budget is None or dice.maybe(0.1):
        selector: Tree = dice.one(({}, {}, {"matchLabels": {"app": "a"}}))
        tree = {"metadata": {"name": dice.one(("b", "b", "b", "c"))}}
        return dice.create(
            "poddisruptionbudgets", {**tree, "spec": {"minAvailable": 1, "selector": selector}}
        )
    allowed = dice.one((0, 1, 1, 2))
    status = {
        "observedGeneration": dice.one((0, 1, 1)),
        "disruptionsAllowed": allowed,
        "currentHealthy": 1 + allowed,
        "desiredHealthy": 1,
        "expectedPods": 3,
    }
    tree = {**budget, "status": status}
    return dice.write("PUT", dice.path_of("poddisruptionbudgets", budget, "status"), tree)


def write_group(dice: Dice) -> Request | None:
    group = dice.object("podgroups")
    if group is None or dice.maybe(0.3):
        spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        tree = {"metadata": {"name": "g"}, "spec": spec}
        return dice.create("podgroups", tree)
    condition = {"type": "PodGroupScheduled", "status": "False", "reason": dice.one(("A", "B"))}
    condition |= {"message": "text", "lastTransitionTime": TIME}
    body = {"status": {"conditions": [condition]}}
    return dice.write("PATCH", dice.path_of("podgroups", group, "status"), body, STRATEGIC)
