"""Requests for ResourceClaims and their templates."""

from __future__ import annotations

from typing import Any

from plimsoll.client.transport import Request
from tests import manifests
from tests.manifests import DRIVER
from tests.simulation.api_requests.dice import APPLY, LABELS, MERGE, STRATEGIC, TIME, Dice
from tests.simulation.api_requests.pods import make_condition

Tree = dict[str, Any]

FINALIZER = "resource.kubernetes.io/delete-protection"


def create_claim(dice: Dice) -> Request:
    tree = manifests.claim(dice.one(("c0", "c1")))
    tree["metadata"] = dice.metadata(tree["metadata"]["name"])
    if dice.maybe(0.5):
        tree["metadata"]["finalizers"] = [FINALIZER]
    if dice.maybe(0.1):
        tree["metadata"] = {
            "generateName": "p0-gpu-",
            "annotations": {"resource.kubernetes.io/pod": "gpu"},
        }
    if dice.maybe(0.1):
        tree["status"] = {"reservedFor": [{"resource": "pods", "name": "x", "uid": "x"}]}
    (request,) = tree["spec"]["devices"]["requests"]
    if dice.maybe(0.2):
        request["exactly"] |= {"allocationMode": "All"}
    elif dice.maybe(0.1):
        request["exactly"]["deviceClassName"] = ""
    elif dice.maybe(0.2):
        alternative = {"name": "big", "deviceClassName": DRIVER}
        tree["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": [alternative]}]
    elif dice.maybe(0.2):
        request["exactly"]["tolerations"] = [{"key": "k", "effect": "NoExecute"}]
    return dice.create("resourceclaims", tree)


def _make_allocation(dice: Dice) -> Tree:
    request = dice.one((*["gpu"] * 6, "gpu/big", "other"))
    result = {"request": request, "driver": DRIVER, "pool": "n0", "device": dice.one(("gpu-0", "gpu-1"))}
    if dice.maybe(0.05):
        del result[dice.one(("driver", "pool", "device"))]
    found: Tree = {"devices": {"results": [result]}}
    if dice.maybe(0.5):
        expression = {"key": "metadata.name", "operator": "In", "values": ["n0"]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [expression]}]}
    if dice.maybe(0.3):
        found["allocationTimestamp"] = TIME
    return found


def _make_consumer(dice: Dice) -> Tree:
    found: Tree = {"resource": "pods", "name": "p0", "uid": dice.one(("u0", "u1", "u2"))}
    if dice.maybe(0.04):
        found[dice.one(("resource", "name", "uid"))] = ""
    return found


def write_claim_status(dice: Dice) -> Request | None:
    claim = dice.object("resourceclaims")
    if claim is None:
        return None
    meta, known = claim["metadata"], claim["status"]
    path = dice.path_of("resourceclaims", claim, "status")
    many = [{"resource": "pods", "name": f"p{n}", "uid": f"many-{n}"} for n in range(dice.one((256, 257)))]
    device = {"driver": DRIVER, "pool": "n0", "device": dice.one(("gpu-0", "gpu-1", "gpu-9"))}
    status, kind = dice.one(
        (
            ({"allocation": _make_allocation(dice), "reservedFor": [_make_consumer(dice)]}, STRATEGIC),
            ({"allocation": _make_allocation(dice), "reservedFor": [_make_consumer(dice)]}, STRATEGIC),
            ({"allocation": _make_allocation(dice)}, STRATEGIC),
            ({"allocation": known.get("allocation")}, STRATEGIC),
            ({"reservedFor": [_make_consumer(dice)]}, STRATEGIC),
            ({"reservedFor": [_make_consumer(dice), _make_consumer(dice)]}, STRATEGIC),
            ({"reservedFor": [_make_consumer(dice), _make_consumer(dice)]}, MERGE),
            ({"reservedFor": [*known.get("reservedFor", ()), _make_consumer(dice)]}, MERGE),
            ({"reservedFor": [{"$patch": "delete", "uid": dice.one(("u0", "u1"))}]}, STRATEGIC),
            ({"reservedFor": []}, MERGE),
            ({"allocation": None}, MERGE),
            ({"allocation": None, "reservedFor": None, "devices": None}, MERGE),
            ({"devices": [device]}, MERGE),
            ({"reservedFor": many}, MERGE if dice.maybe(0.5) else STRATEGIC),
        )
    )
    if "deletionTimestamp" in meta and "allocation" in known and dice.maybe(0.5):
        status, kind = {"reservedFor": [_make_consumer(dice)]}, STRATEGIC
    if dice.maybe(0.1):
        tree = {**claim, "status": {**known, **{k: v for k, v in status.items() if v is not None}}}
        if "$patch" not in str(tree):
            return dice.write("PUT", path, dice.update_body(tree))
    head = dice.preconditions(meta)
    if dice.maybe(0.05):
        head["labels"] = {"app": "ignored"}
    return dice.write("PATCH", path, {"status": status, **({"metadata": head} if head else {})}, kind)


def change_claim(dice: Dice) -> Request | None:
    claim = dice.object("resourceclaims")
    if claim is None:
        return None
    meta = claim["metadata"]
    change = dice.one(
        (
            {"metadata": {"finalizers": [FINALIZER]}},
            {"metadata": {"finalizers": None}},
            {"metadata": {"annotations": {"plimsoll.dev/write-fence": str(dice.rng.randrange(3))}}},
            {"metadata": {"labels": dict(dice.one(LABELS))}},
            {"spec": {"devices": {"requests": []}}},
            {"status": {"allocation": _make_allocation(dice)}},
            {"metadata": {"ownerReferences": []}},
        )
    )
    if dice.maybe(0.2):
        tree = {**claim, **{name: {**claim[name], **value} for name, value in change.items()}}
        return dice.write("PUT", dice.path_of("resourceclaims", claim), dice.update_body(tree))
    change = {**change, "metadata": {**change.get("metadata", {}), **dice.preconditions(meta)}}
    kind = STRATEGIC if dice.maybe(0.5) else MERGE
    return dice.write("PATCH", dice.path_of("resourceclaims", claim), change, kind)


def apply_claim_status(dice: Dice) -> Request | None:
    claim = dice.object("resourceclaims")
    if claim is None:
        return None
    meta, allocation = claim["metadata"], claim["status"].get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or []
    conditions = [{**make_condition(dice), "reason": "R", "lastTransitionTime": TIME}]
    devices = [
        {**{name: each[name] for name in ("driver", "pool", "device")}, "conditions": conditions}
        for each in results
        if dice.maybe(0.8)
    ]
    body: Tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "status": {"devices": devices} if devices else {},
    }
    for each in devices:
        each["conditions"][0].setdefault("message", "")
    if dice.maybe(0.7):
        body["metadata"]["resourceVersion"] = meta["resourceVersion"]
    path = dice.path_of("resourceclaims", claim, "status")
    return dice.write("PATCH", path, body, APPLY, [("fieldManager", DRIVER), ("force", "true")])


def write_template(dice: Dice) -> Request | None:
    if dice.maybe(0.6) or (template := dice.object("resourceclaimtemplates")) is None:
        tree = manifests.claim_template("t", dice.one((DRIVER, "other")))
        return dice.create("resourceclaimtemplates", tree)
    spec: Tree = {"spec": {"devices": {"requests": []}}}
    return dice.write("PATCH", dice.path_of("resourceclaimtemplates", template), {"spec": spec}, MERGE)
