"""Scripted scheduler and controllers for the test of the simulated nodes alone.

They write to the API server at once and without faults: pods get claims of free devices, devices are free
once no claim is allocated them, and claims without users are deallocated or deleted.
"""

from __future__ import annotations

import json
from typing import Any

from plimsoll.client.transport import Request
from tests.simulation.api import ApiServer
from tests.simulation.history import History
from tests.simulation.node.amounts import amount_of
from tests.simulation.node.hardware import Hold, Inventory, capacity_of, exceeded_counters, used_capacity
from tests.simulation.node.violations import results_of

Tree = dict[str, Any]

_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
_PODS = "/api/v1/namespaces/default/pods"
_FINISHED = ("Succeeded", "Failed")


class ScriptedCluster:
    """Client that needs no time."""

    def __init__(self, api: ApiServer, history: History) -> None:
        self._api = api
        self._history = history
        self.created = 0

    def call(self, method: str, path: str, tree: Tree | None = None, type: str = "application/json") -> Tree:
        body = None if tree is None else json.dumps(tree).encode()
        self._history.request = None
        reply = self._api.handle(Request(method, path, headers={"Content-Type": type}, body=body), "admin")
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {reply.body.decode()}")
        found: Tree = json.loads(reply.body)
        return found

    # -- reading

    def pods(self) -> list[Tree]:
        return self._api.list_trees("pods")

    def claims(self) -> list[Tree]:
        return self._api.list_trees("resourceclaims")

    # -- setup

    def create_node(self, name: str, allocatable: dict[str, str]) -> None:
        tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self.call("POST", "/api/v1/nodes", tree)
        status = {"status": {"allocatable": allocatable, "capacity": allocatable}}
        self.call("PATCH", f"/api/v1/nodes/{name}/status", status, "application/merge-patch+json")

    # -- scheduler

    def find_device(self, node: str, inventory: Inventory, amount: str) -> Tree | None:
        """Return the allocation of a free device; a shared one gives an amount of its capacity."""
        holds = [
            Hold(result["driver"], result["pool"], result["device"], result.get("shareID", ""), consumed)
            for claim in self.claims()
            for result in results_of(claim)
            for consumed in [tuple((result.get("consumedCapacity") or {}).items())]
            if (result["driver"], result["pool"]) == (inventory.driver, inventory.pool)
        ]
        taken = {hold.device for hold in holds}
        for name, tree in inventory.devices.items():
            place = {"driver": inventory.driver, "pool": inventory.pool, "device": name}
            result: Tree = {"request": "r", **place}
            if inventory.taints.get(name):
                continue
            if tree.get("allowMultipleAllocations"):
                used = used_capacity(holds, inventory.pool, name)
                if amount and used["slots"] + amount_of(amount) <= capacity_of(tree)["slots"]:
                    self.created += 1
                    share = f"00000000-0000-4000-8000-{self.created:012d}"
                    return result | {"shareID": share, "consumedCapacity": {"slots": amount}}
            elif not amount and name not in taken:
                wanted = Hold(inventory.driver, inventory.pool, name)
                if not exceeded_counters(inventory, [*holds, wanted]):
                    return result
        return None

    def create_claim(self, name: str) -> Tree:
        exactly = {"deviceClassName": "any"}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        tree = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
        return self.call("POST", _CLAIMS, {**tree, "spec": spec})

    def create_pod(self, name: str, cpu: str, claims: list[str], node: str) -> None:
        """Create a pod whose claims are allocated, reserve them and bind it."""
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
        named = [{"name": f"c{number}", "resourceClaimName": claim} for number, claim in enumerate(claims)]
        if named:
            container["resources"]["claims"] = [{"name": each["name"]} for each in named]  # type: ignore[index]
        spec = {"containers": [container], "resourceClaims": named, "terminationGracePeriodSeconds": 10}
        tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        pod = self.call("POST", _PODS, tree)
        for claim in claims:
            self.reserve(claim, pod)
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        binding |= {"target": {"name": node}}
        self.call("POST", f"{_PODS}/{name}/binding", binding)

    def allocate(self, claim: str, result: Tree) -> None:
        tree = self.call("GET", f"{_CLAIMS}/{claim}")
        tree["status"] = {"allocation": {"devices": {"results": [result]}}}
        self.call("PUT", f"{_CLAIMS}/{claim}/status", tree)

    def reserve(self, claim: str, pod: Tree) -> None:
        tree = self.call("GET", f"{_CLAIMS}/{claim}")
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        tree["status"].setdefault("reservedFor", []).append(user)
        self.call("PUT", f"{_CLAIMS}/{claim}/status", tree)

    # -- users and controllers

    def delete_pod(self, name: str, *, force: bool) -> None:
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions"}
        self.call("DELETE", f"{_PODS}/{name}", options | ({"gracePeriodSeconds": 0} if force else {}))

    def release_claims(self) -> None:
        """Deallocate the claims that no living pod uses, and delete those that are for one pod."""
        living = {
            pod["metadata"]["uid"] for pod in self.pods() if pod["status"].get("phase") not in _FINISHED
        }
        for claim in list(self.claims()):
            users = (claim.get("status") or {}).get("reservedFor") or []
            if not users or all(each["uid"] in living for each in users):
                continue
            path, tree = f"{_CLAIMS}/{claim['metadata']['name']}", json.loads(json.dumps(claim))
            left = [each for each in users if each["uid"] in living]
            if left:
                tree["status"]["reservedFor"] = left
            else:
                tree["status"].pop("reservedFor")
                tree["status"].pop("allocation")
                tree["status"].pop("devices", None)
            self.call("PUT", f"{path}/status", tree)
            if not left and claim["metadata"]["name"].startswith("own-"):
                self.call("DELETE", path)
