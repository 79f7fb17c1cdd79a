"""Objects of a simulated cluster, and what its users do: there are always more pods than room for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any

from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Endpoint,
)
from plimsoll.client.transport import Reply, Request
from tests.chaos.scheduler_faults.objects import CLASS_ANNOTATION
from tests.chaos.scheduler_faults.small_cluster import (
    ALLOCATABLE,
    CORE,
    DRIVERS,
    NAMED,
    NODE_COUNT,
    NS,
    URGENT,
    claim_spec,
    pod_tree,
    slices,
)
from tests.simulation.api.server import ApiServer
from tests.simulation.faults import Dice

Tree = dict[str, Any]

#: What pods want, and how often.
KINDS = (
    ("none", 12),
    ("plain", 14),
    ("fabric", 14),
    ("share", 10),
    ("cores", 12),
    ("part", 8),
    ("either", 8),
    ("both", 8),
    ("named", 16),
    ("extended", 10),
)
#: Where nodes are simulated, no driver prepares the devices that all nodes share.
_WITHOUT_FABRIC = tuple(each for each in KINDS if each[0] not in ("fabric", "both"))
#: On stock servers, what the checker of placeholders can judge.
_STOCK = (("none", 30), ("plain", 8), ("cores", 30), ("share", 8), ("named", 16))
#: Names of pods are few, so that a new pod often has the name of one that is being forgotten.
_NAMES = 40
#: Label of all nodes, by which the checker of placeholders knows them.
LANE = "a"
#: Charge of each device of the class `cores`, as its slices have it.
CORES_CHARGE = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}


class Mode(Enum):
    """Part of a cluster that a case simulates."""

    CONTROL_PLANE = "control plane"  #: the case acts as kubelets and drivers
    NODES = "nodes"  #: with kubelets and drivers
    STOCK = "stock"  #: with kubelets, drivers and kube-scheduler, on a server that drops charges


def kinds_of(mode: Mode) -> list[str]:
    """Return the kinds of pods, each as often as its weight."""
    table = {Mode.CONTROL_PLANE: KINDS, Mode.NODES: _WITHOUT_FABRIC, Mode.STOCK: _STOCK}[mode]
    return [kind for kind, weight in table for _ in range(weight)]


class Admin:
    """Requests of people, which reach the server at once and never fail on the way."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self._mode = Mode.CONTROL_PLANE
        self._kinds = kinds_of(self._mode)
        self._claims = list(NAMED)

    def send(
        self,
        method: str,
        path: str,
        tree: Tree | None = None,
        content_type: str = "application/merge-patch+json",
    ) -> Reply:
        body = None if tree is None else json.dumps(tree).encode()
        headers = {"Accept": "application/json", "Content-Type": content_type}
        if method != "PATCH":
            headers["Content-Type"] = "application/json"
        return self.api.handle(Request(method, path, (), headers, body), "admin")

    def create(self, endpoint: Endpoint, tree: Tree, namespace: str = "") -> Reply:
        tree = {"apiVersion": endpoint.api_version, "kind": endpoint.kind, **tree}
        return self.send("POST", endpoint.path(namespace or None), tree)

    def create_all(self, endpoint: Endpoint, tree: Tree, namespace: str = "") -> None:
        """Create an object that the case cannot do without."""
        reply = self.create(endpoint, tree, namespace)
        assert reply.status < 300, reply.body

    def patch(self, endpoint: Endpoint, name: str, tree: Tree, namespace: str = "", sub: str = "") -> Reply:
        return self.send("PATCH", endpoint.path(namespace or None, name, sub), tree)

    def delete(self, endpoint: Endpoint, tree: Tree, grace: int | None = None) -> Reply:
        meta = tree["metadata"]
        options: Tree = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": meta["uid"]}}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        return self.send("DELETE", endpoint.path(meta.get("namespace"), meta["name"]), options)

    # -- the cluster

    def create_cluster(self, mode: Mode) -> None:
        """Create nodes, devices, classes, templates and the named claims."""
        self._mode, self._kinds = mode, kinds_of(mode)
        if mode is not Mode.CONTROL_PLANE:
            self._claims = [name for name, kind in NAMED.items() if kind != "fabric"]
        self.create_all(NAMESPACES, {"metadata": {"name": "plimsoll-placeholders"}})
        urgent = {"metadata": {"name": URGENT}, "value": 1000, "preemptionPolicy": "Never"}
        self.create_all(PRIORITY_CLASSES, urgent)
        placeholder = {
            "metadata": {"name": "plimsoll-placeholder"},
            "value": 10**9,
            "preemptionPolicy": "Never",
        }
        self.create_all(PRIORITY_CLASSES, placeholder)
        for name in DRIVERS:
            spec: Tree = {"selectors": [{"cel": {"expression": f'device.driver == "{name}.example.com"'}}]}
            meta: Tree = {"name": name}
            if name == "cores" and mode is Mode.STOCK:
                meta["annotations"] = {CLASS_ANNOTATION: json.dumps(CORES_CHARGE)}
            elif name == "cores":
                spec["extendedResourceName"] = CORE
            self.create_all(DEVICE_CLASSES, {"metadata": meta, "spec": spec})
        for kind in (*DRIVERS, "either", "both"):
            template = {"metadata": {"name": kind}, "spec": {"spec": claim_spec(kind)}}
            self.create_all(RESOURCE_CLAIM_TEMPLATES, template, NS)
        for number in range(NODE_COUNT):
            self.create_node(f"node-{number}")
        for each in slices() if mode is Mode.CONTROL_PLANE else ():
            self.create_all(RESOURCE_SLICES, each)
        for name in self._claims:
            self.create_named(name)

    def create_node(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "lane": LANE}
        self.create(NODES, {"metadata": {"name": name, "labels": labels}, "spec": {}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"allocatable": ALLOCATABLE, "capacity": ALLOCATABLE, "conditions": [ready]}
        self.patch(NODES, name, {"status": status}, sub="status")

    def create_named(self, name: str) -> Reply:
        return self.create(RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": claim_spec(NAMED[name])}, NS)

    # -- pods

    def create_pod(self, dice: Dice) -> str:
        """Create a random pod; return what was done."""
        kind = dice.choice(self._kinds)
        name = f"p-{int(dice.random() * _NAMES)}-{kind}"
        claim = dice.choice(self._claims) if kind == "named" else ""
        cpu = dice.choice(("250m", "500m", "1", "2"))
        tree = pod_tree(
            name, kind, claim=claim, cpu=cpu, widget=dice.random() < 0.15, urgent=dice.random() < 0.4
        )
        if self._mode is Mode.STOCK:
            tree["spec"]["nodeSelector"] = {"lane": LANE}
            if kind == "none" and dice.random() < 0.8:
                tree["spec"]["schedulerName"] = "default-scheduler"
        reply = self.create(PODS, tree, NS)
        return f"create pod {name}: {reply.status}"

    def pods(self) -> list[Tree]:
        return [tree for tree in self.api.list_trees("pods") if tree["metadata"]["namespace"] == NS]

    def remove_pod(self, dice: Dice, *, force: bool) -> str:
        """Delete a pod, mostly one with a node: what it held is contended for at once."""
        trees = self.pods()
        bound = [tree for tree in trees if tree["spec"].get("nodeName")]
        chosen = bound if bound and dice.random() < 0.75 else trees
        if not chosen:
            return ""
        tree = dice.choice(chosen)
        reply = self.delete(PODS, tree, 0 if force else None)
        return f"{'force ' if force else ''}delete pod {tree['metadata']['name']}: {reply.status}"

    def finish_deletions(self) -> Iterator[str]:
        """Remove pods that are being deleted, as kubelets do where none is simulated."""
        for tree in self.pods():
            if tree["metadata"].get("deletionTimestamp"):
                self.delete(PODS, tree, 0)
                yield f"pod {tree['metadata']['name']} has ended"
