"""Dice: chances, objects as clients know them, and the request around a body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from plimsoll.api import codec
from plimsoll.client import endpoints
from plimsoll.client.transport import Request

Tree = dict[str, Any]

JSON, MERGE, STRATEGIC, JSON_PATCH, APPLY = (
    "application/json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
NAMESPACES = ("default", "extra-one")
TIME = "2026-01-01T00:00:00Z"
NO_UID = "00000000-0000-4000-8000-999999999999"
ENDPOINTS = {
    each.plural: each
    for each in (
        endpoints.PODS,
        endpoints.RESOURCE_CLAIMS,
        endpoints.NODES,
        endpoints.LEASES,
        endpoints.RESOURCE_SLICES,
        endpoints.NAMESPACES,
        endpoints.EVENTS,
        endpoints.RESOURCE_CLAIM_TEMPLATES,
        endpoints.DEVICE_CLASSES,
        endpoints.DEVICE_TAINT_RULES,
        endpoints.POD_DISRUPTION_BUDGETS,
        endpoints.PRIORITY_CLASSES,
        endpoints.POD_GROUPS,
        endpoints.SERVICE_ACCOUNTS,
    )
}
LABELS: tuple[Tree, ...] = ({}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "x"})


class Dice:
    """Random choices; `find` returns the stored trees of a kind, by its plural."""

    def __init__(self, rng: Random, find: Callable[[str], Sequence[Tree]]) -> None:
        self.rng = rng
        self.find = find
        self._stale: dict[str, list[Tree]] = {}

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def one(self, options: Sequence[Any]) -> Any:
        return self.rng.choice(options)

    # -- names and objects

    def namespace(self) -> str:
        return str(self.one((*NAMESPACES, *NAMESPACES, "absent" if self.maybe(0.2) else "default")))

    def object(self, plural: str) -> Tree | None:
        """Return an object as a client has it, which may be out of date or gone."""
        known = self._stale.setdefault(plural, [])
        current = self.find(plural)
        if current:
            known.append(self.one(current))
            del known[:-6]
        if not known:
            return None
        found: Tree = known[-1] if current and self.maybe(0.85) else self.one(known)
        meta = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
        return {**found, "metadata": meta}

    def path_of(self, plural: str, tree: Tree, subresource: str = "") -> str:
        meta = tree["metadata"]
        return ENDPOINTS[plural].path(meta.get("namespace"), meta["name"], subresource)

    def collection(self, plural: str, *, every_namespace: bool = False) -> str:
        """Return the path of a collection, in some namespace."""
        return ENDPOINTS[plural].path(None if every_namespace else self.namespace())

    # -- metadata

    def metadata(self, name: str) -> Tree:
        """Return the metadata of a new object."""
        meta: Tree = {"name": name}
        if labels := self.one(LABELS):
            meta["labels"] = dict(labels)
        if self.maybe(0.1):
            meta["finalizers"] = self.one((["example.org/a"], [], ["example.org/a", "example.org/b"]))
        if self.maybe(0.1) and (owner := self.object("nodes")):
            reference = {"apiVersion": "v1", "kind": "Node", "name": owner["metadata"]["name"]}
            meta["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"], "controller": True}]
        return meta

    def preconditions(self, meta: Tree) -> Tree:
        """Return the metadata of a patch: UID and version as known, wrong ones, or none."""
        found: Tree = {}
        if self.maybe(0.6):
            found["uid"] = meta["uid"] if self.maybe(0.9) else NO_UID
        if self.maybe(0.5):
            found["resourceVersion"] = meta["resourceVersion"] if self.maybe(0.9) else "3"
        return found

    def update_body(self, tree: Tree) -> Tree:
        """Return the body of an update with the version that the client knows, another one, or none."""
        version = self.one((None, None, None, None, "", "0", "2", "abc"))
        meta = dict(tree["metadata"])
        if version is not None:
            meta["resourceVersion"] = version
        if self.maybe(0.1):
            meta["uid"] = self.one(("", NO_UID))
        if self.maybe(0.03):
            del meta["name"]
        return {**tree, "metadata": meta}

    # -- requests

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        content: str = JSON,
        query: Sequence[tuple[str, str]] = (),
    ) -> Request:
        raw = codec.encode(body) if body is not None else None
        headers = {"Accept": JSON, "User-Agent": self.one(("one", "two")), "Content-Type": content}
        return Request(method, path, tuple(query), headers, raw)

    def create(self, plural: str, tree: Tree) -> Request:
        return self.write("POST", self.collection(plural), tree)

    def write(
        self, method: str, path: str, body: Any, content: str = JSON, query: Sequence[tuple[str, str]] = ()
    ) -> Request:
        """Return a write, sometimes a dry run or one that is refused."""
        query = list(query)
        if self.maybe(0.06):
            query.append(("dryRun", self.one(("All", "All", "Some"))))
        if isinstance(body, dict) and method != "DELETE" and content != APPLY and self.maybe(0.04):
            body = self._spoil(body)
        return self.send(method, path, body, content, query)

    def _spoil(self, body: Tree) -> Any:
        meta = body.get("metadata") or {}
        return self.one(
            [
                {**body, "kind": "Secret"},
                {**body, "apiVersion": "v7"},
                {**body, "metadata": {**meta, "namespace": "elsewhere"}},
                {**body, "metadata": {**meta, "name": "another"}},
                {**body, "metadata": {**meta, "finalizers": ["unqualified"]}},
                {**body, "metadata": {**meta, "deletionTimestamp": TIME}},
                [body],
            ]
        )
