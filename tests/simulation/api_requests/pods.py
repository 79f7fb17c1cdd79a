"""Requests for pods, their statuses, bindings and evictions."""

from __future__ import annotations

from typing import Any

from plimsoll.client.transport import Request
from tests.simulation.api_requests.dice import APPLY, JSON_PATCH, LABELS, MERGE, NO_UID, STRATEGIC, TIME, Dice

Tree = dict[str, Any]

_CONDITION_TYPES = ("PodScheduled", "Ready", "DisruptionTarget", "ContainersReady")


def create_pod(dice: Dice) -> Request:
    spec: Tree = {"automountServiceAccountToken": False}
    resources = dice.one(
        (
            {},
            {"requests": {"cpu": "100m"}},
            {"limits": {"cpu": "1", "memory": "1Gi"}},
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
        )
    )
    container: Tree = {
        "name": "main",
        "image": dice.one(("i:1", "i", "i:latest")),
        "resources": resources,
    }
    if dice.maybe(0.5):
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        container["resources"] = {**resources, "claims": [{"name": "gpu"}]}
    spec["containers"] = [container]
    for chance, name, value in (
        (0.2, "nodeName", "n0"),
        (0.15, "schedulingGates", [{"name": "example.org/gate"}]),
        (0.2, "terminationGracePeriodSeconds", dice.one((0, 10))),
        (0.1, "priorityClassName", dice.one(("high", "missing", "system-node-critical"))),
        (0.05, "priority", 7),
        (0.1, "tolerations", [{"operator": "Exists"}]),
        (0.1, "tolerations", [{"key": "k", "effect": "NoExecute", "tolerationSeconds": 5}]),
        (0.1, "schedulerName", "other"),
        (0.4, "restartPolicy", dice.one(("Never", "OnFailure"))),
        (0.05, "activeDeadlineSeconds", 100),
    ):
        if dice.maybe(chance):
            spec[name] = value
    meta = dice.metadata(f"p{dice.rng.randrange(5)}")
    if dice.maybe(0.1):
        meta = {"generateName": "made-"}
    if dice.maybe(0.03):
        meta["resourceVersion"] = "5"
    tree: Tree = {"metadata": meta, "spec": spec}
    if dice.maybe(0.7):
        tree = {"apiVersion": "v1", "kind": "Pod", **tree}
    return dice.create("pods", tree)


def bind_pod(dice: Dice) -> Request | None:
    unbound = [each for each in dice.find("pods") if "nodeName" not in each["spec"]]
    pod = dice.one(unbound) if unbound and dice.maybe(0.7) else dice.object("pods")
    if pod is None:
        return None
    head: Tree = {"name": pod["metadata"]["name"], **dice.preconditions(pod["metadata"])}
    if dice.maybe(0.2):
        head["annotations"] = {"example.org/a": "1"}
    target: Tree = {"kind": "Node", "name": dice.one(("n0", "n1", "n9"))}
    if dice.maybe(0.05):
        target = dice.one(({"kind": "Node"}, {"kind": "Pod", "name": "n0"}, {"name": "n0"}))
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": head, "target": target}
    query = [("dryRun", "All")] if dice.maybe(0.05) else []
    return dice.send("POST", dice.path_of("pods", pod, "binding"), body, query=query)


def make_condition(dice: Dice) -> Tree:
    found: Tree = {"type": dice.one(_CONDITION_TYPES), "status": dice.one(("True", "False"))}
    if dice.maybe(0.5):
        found |= {"reason": dice.one(("A", "B")), "lastTransitionTime": TIME}
    return found


def _make_container_status(dice: Dice) -> Tree:
    at = TIME
    state = dice.one(
        (
            {"terminated": {"exitCode": 0, "startedAt": at, "finishedAt": at}},
            {"terminated": {"exitCode": 1, "startedAt": at, "finishedAt": at}},
            {"running": {"startedAt": at}},
        )
    )
    ready = "running" in state
    found = {"name": "main", "image": "i", "imageID": "x", "ready": ready, "restartCount": 0}
    return {**found, "started": ready, "state": state}


def write_pod_status(dice: Dice) -> Request | None:
    pod = dice.object("pods")
    if pod is None:
        return None
    claim = dice.one(("c0", "c1"))
    charge = {"resourceClaimName": dice.one((claim, "unknown")), "containers": ["main"]}
    status = dice.one(
        (
            {"conditions": [make_condition(dice)]},
            {"conditions": [make_condition(dice), {"type": "Initialized", "status": "True"}]},
            {"conditions": [{"type": "Ready", "$patch": "delete"}]},
            {"nominatedNodeName": dice.one(("n0", None))},
            {"phase": dice.one(("Running", "Failed", "Succeeded", "Pending"))},
            {"phase": "Running", "podIP": "10.0.0.1", "startTime": TIME},
            *[{"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}] * 5,
            {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": claim}]},
            {"resourceClaimStatuses": [{"name": "wrong", "resourceClaimName": claim}]},
            {"nodeAllocatableResourceClaimStatuses": [{**charge, "resources": {"cpu": "1"}}]},
            {"nodeAllocatableResourceClaimStatuses": None},
            {"nodeAllocatableResourceClaimStatuses": [{**charge, "mapping": []}]},
            {"qosClass": "Guaranteed"},
            {"containerStatuses": [_make_container_status(dice)]},
            {"containerStatuses": [_make_container_status(dice)]},
            {"message": "text", "reason": "Reason"},
        )
    )
    meta = dice.preconditions(pod["metadata"])
    if dice.maybe(0.15):
        meta["annotations"] = {"plimsoll.dev/write-fence": str(dice.rng.randrange(3))}
    if dice.maybe(0.1):
        meta["ownerReferences"] = []
    if dice.maybe(0.1):
        tree = {**pod, "status": {**pod["status"], "phase": "Running"}}
        return dice.write("PUT", dice.path_of("pods", pod, "status"), dice.update_body(tree))
    kind = MERGE if "$patch" not in str(status) and dice.maybe(0.3) else STRATEGIC
    body: Tree = {"status": status, **({"metadata": meta} if meta else {})}
    if dice.maybe(0.05):
        body["spec"] = {"nodeName": "n1"}
    return dice.write("PATCH", dice.path_of("pods", pod, "status"), body, kind)


def apply_pod_status(dice: Dice) -> Request | None:
    pod = dice.object("pods")
    if pod is None:
        return None
    entry = {"name": dice.one(("gpu", "gpu", "gpu", "wrong"))}
    if dice.maybe(0.7):
        entry["resourceClaimName"] = dice.one(("c0", "c1"))
    entries = dice.one(([entry], [entry], []))
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
        "status": {"resourceClaimStatuses": entries} if entries else {},
    }
    query = [("fieldManager", dice.one(("claims", "claims", "other"))), ("force", "true")]
    return dice.write("PATCH", dice.path_of("pods", pod, "status"), body, APPLY, query)


def change_pod(dice: Dice) -> Request | None:
    pod = dice.object("pods")
    if pod is None:
        return None
    spec, meta = pod["spec"], pod["metadata"]
    container = spec["containers"][0]
    toleration = {"key": "new", "operator": "Exists"}
    changes = dice.one(
        (
            {"nodeName": "n1"},
            {"containers": [{**container, "image": "i:2"}]},
            {"containers": [{**container, "name": "other"}]},
            {"containers": [container, {**container, "name": "more"}]},
            {"tolerations": [*spec.get("tolerations", ()), toleration]},
            {"tolerations": [toleration]},
            {"schedulingGates": None},
            {"schedulingGates": [{"name": "example.org/other"}]},
            {"activeDeadlineSeconds": dice.one((50, 200, None))},
            {"priority": 9},
            {"nodeSelector": {"a": "b"}},
            {},
        )
    )
    if dice.maybe(0.4):
        tree = {**pod, "spec": {**spec, **changes}, "metadata": {**meta, **_make_metadata(dice, meta)}}
        return dice.write("PUT", dice.path_of("pods", pod), dice.update_body(tree))
    if dice.maybe(0.15):
        operations = dice.one(
            (
                [{"op": "add", "path": "/metadata/labels", "value": {"app": "b"}}],
                [{"op": "test", "path": "/metadata/uid", "value": meta["uid"]}],
                [{"op": "test", "path": "/metadata/uid", "value": "x"}],
                [{"op": "remove", "path": "/metadata/finalizers/0"}],
                [{"op": "replace", "path": "/spec/nodeName", "value": "n1"}],
                {"op": "add"},
            )
        )
        return dice.write("PATCH", dice.path_of("pods", pod), operations, JSON_PATCH)
    body = {"metadata": {**_make_metadata(dice, meta), **dice.preconditions(meta)}}
    if dice.maybe(0.3):
        body["spec"] = changes
    kind = STRATEGIC if dice.maybe(0.4) else MERGE
    return dice.write("PATCH", dice.path_of("pods", pod), body, kind)


def _make_metadata(dice: Dice, meta: Tree) -> Tree:
    return dict(
        dice.one(
            (
                {},
                {"labels": dict(dice.one(LABELS))},
                {"labels": None},
                {"annotations": {"a": str(dice.rng.randrange(2))}},
                {"finalizers": [*meta.get("finalizers", ())][1:]},
                {"finalizers": [*meta.get("finalizers", ()), "example.org/late"]},
                {"finalizers": None},
                {"ownerReferences": None},
            )
        )
    )


def evict_pod(dice: Dice) -> Request | None:
    running = [each for each in dice.find("pods") if each["status"]["phase"] == "Running"]
    pod = dice.one(running) if running and dice.maybe(0.8) else dice.object("pods")
    if pod is None:
        return None
    meta = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    body: Tree = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
    if dice.maybe(0.4):
        uid = pod["metadata"]["uid"] if dice.maybe(0.7) else NO_UID
        body["deleteOptions"] = {"preconditions": {"uid": uid}}
    if dice.maybe(0.1):
        body["deleteOptions"] = {"dryRun": ["All"]}
    return dice.send("POST", dice.path_of("pods", pod, "eviction"), body)
