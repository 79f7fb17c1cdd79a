"""Reads, watches and deletions of objects of any kind, and requests that make no sense."""

from __future__ import annotations

from typing import Any

from plimsoll.client.transport import Request
from tests.simulation.api_requests.dice import ENDPOINTS, MERGE, Dice

Tree = dict[str, Any]

_PLURALS = ("pods", "resourceclaims", "nodes", "leases", "resourceslices", "namespaces", "events")
_SELECTORS = ("app=a", "app!=a", "app in (a,b)", "tier", "!app", "app=", "app==b,tier", "app notin (b)", "=x")
_FIELDS = (
    "metadata.name=p0",
    "metadata.namespace!=default",
    "spec.nodeName=n0",
    "spec.nodeName=",
    "status.phase!=Succeeded,status.phase!=Failed",
    "spec.schedulerName=default-scheduler",
    "spec.driver=gpu.example.com,spec.nodeName=n0",
    "metadata.uid=x",
)


def watch_objects(dice: Dice) -> Request:
    """Return a request for a watch."""
    plural = dice.one(_PLURALS[:5])
    query: list[tuple[str, str]] = [("watch", "true"), ("timeoutSeconds", "1")]
    if dice.maybe(0.3):
        query.append(("labelSelector", dice.one(_SELECTORS[:-1])))
    if dice.maybe(0.3) and plural == "pods":
        query.append(("fieldSelector", dice.one(_FIELDS[:-2])))
    how = dice.rng.randrange(6)
    if how == 0:
        query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        query += [("allowWatchBookmarks", dice.one(("true", "true", "true", "false")))]
    elif how == 1:
        query.append(("resourceVersion", "0"))
    elif how < 5:
        versions = [int(each["metadata"]["resourceVersion"]) for each in dice.find(plural)]
        since = dice.rng.choice(versions or [1]) + dice.one((0, 0, 0, 1, 10_000))
        query.append(("resourceVersion", str(since)))
    path = dice.collection(plural, every_namespace=dice.maybe(0.6))
    return dice.send("GET", path, query=query)


def delete_object(dice: Dice) -> Request | None:
    """Return a deletion, mostly of a pod or a claim."""
    plural = dice.one((*["pods"] * 4, *["resourceclaims"] * 4, *ENDPOINTS))
    if plural in ("namespaces", "serviceaccounts") or (tree := dice.object(plural)) is None:
        return None
    body: Tree = {"kind": "DeleteOptions", "apiVersion": "v1"}
    conditions = dice.preconditions(tree["metadata"])
    if conditions and dice.maybe(0.7):
        body["preconditions"] = conditions
    if dice.maybe(0.5):
        body["gracePeriodSeconds"] = dice.one((0, 0, 0, 5, 60, -1))
    if dice.maybe(0.3):
        body["propagationPolicy"] = dice.one(("Background", "Foreground", "Orphan", "Wrong"))
    if dice.maybe(0.1):
        body["dryRun"] = ["All"]
    return dice.write("DELETE", dice.path_of(plural, tree), body if dice.maybe(0.9) else None)


def remove_finalizers(dice: Dice) -> Request | None:
    """Return a patch without some or all finalizers, mostly of an object that is being deleted."""
    found = [(plural, each) for plural in ("pods", "resourceclaims") for each in dice.find(plural)]
    held = [pair for pair in found if "finalizers" in pair[1]["metadata"]]
    deleted = [pair for pair in held if "deletionTimestamp" in pair[1]["metadata"]]
    if not held:
        return None
    plural, tree = dice.one(deleted if deleted and dice.maybe(0.9) else held)
    meta = tree["metadata"]
    kept = dice.one((None, None, [], meta["finalizers"][1:]))
    body = {"metadata": {"finalizers": kept, **dice.preconditions(meta)}}
    return dice.write("PATCH", dice.path_of(plural, tree), body, MERGE)


def delete_collection(dice: Dice) -> Request:
    plural, query = dice.one((("resourceslices", _FIELDS[6]), ("pods", _FIELDS[2]), ("pods", _FIELDS[4])))
    return dice.send("DELETE", dice.collection(plural), query=[("fieldSelector", query)])


def get_object(dice: Dice) -> Request | None:
    plural = dice.one(tuple(ENDPOINTS))
    tree = dice.object(plural)
    if tree is None:
        return None
    query = [("resourceVersion", dice.one(("0", "1", "99999", "x")))] if dice.maybe(0.1) else []
    subresource = "status" if dice.maybe(0.1) and plural in ("pods", "nodes") else ""
    return dice.send("GET", dice.path_of(plural, tree, subresource), query=query)


def list_objects(dice: Dice) -> Request:
    plural = dice.one(_PLURALS)
    query: list[tuple[str, str]] = []
    if dice.maybe(0.4):
        query.append(("labelSelector", dice.one(_SELECTORS)))
    if dice.maybe(0.4):
        query.append(("fieldSelector", dice.one(_FIELDS)))
    if dice.maybe(0.5):
        query.append(("limit", dice.one(("1", "2", "3", "0"))))
    if dice.maybe(0.15):
        query.append(("resourceVersion", dice.one(("0", "1", "8", "99999", "x"))))
    if dice.maybe(0.05):
        query.append(("resourceVersionMatch", dice.one(("Exact", "NotOlderThan", "Other"))))
    return dice.send("GET", dice.collection(plural, every_namespace=dice.maybe(0.6)), query=query)


def send_nonsense(dice: Dice) -> Request:
    path = dice.one(
        (
            "/api/v1/unknowns",
            "/apis/unknown.k8s.io/v1/things",
            "/api/v1/pods/p0",
            "/api/v1/namespaces/default/nodes",
            "/api/v1/namespaces/default/pods/p0/nothing",
            "/api/v1/namespaces/default/pods/absent",
            "/nothing",
        )
    )
    if dice.maybe(0.5):
        return dice.send("GET", path)
    request = dice.send("POST", ENDPOINTS["pods"].path("default"), {})
    return request._replace(body=dice.one((b"{", b"", b"[]", b"null", b'{"spec":{}}')))
