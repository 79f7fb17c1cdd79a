"""Cluster with a scheduler for ledger scenarios: the state of a pod and the amounts its node is charged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plimsoll.ledger.units import from_units
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import wait_until

Tree = dict[str, Any]
NS = "default"
DRIVER = "dra.example.com"
RESOURCE = "resource.k8s.io/v1"


class LedgerCluster(LocalCluster):
    """Cluster with short methods to create objects and to wait for pods and ledger amounts."""

    def __init__(self) -> None:
        super().__init__(scheduler=True)

    # -- creating objects

    def node(self, name: str, **allocatable: str) -> None:
        line = {"pods": "110", **{key.replace("_", "-"): amount for key, amount in allocatable.items()}}
        status = {"capacity": line, "allocatable": line}
        self.client.create(
            "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        )

    def device_class(self, name: str, driver: str = DRIVER, **spec: Any) -> None:
        selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
        tree = {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
        self.client.create("deviceclasses", {"apiVersion": RESOURCE, "kind": "DeviceClass", **tree})

    def slice(self, name: str, node: str, driver: str = DRIVER, count: int = 1, **body: Any) -> None:
        pool = {"name": f"{node}-pool", "generation": 1, "resourceSliceCount": count}
        spec = {"driver": driver, "nodeName": node, "pool": pool, **body}
        tree = {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        self.client.create("resourceslices", tree)

    def claim(self, name: str, *requests: Tree) -> None:
        tree = {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests)}}}
        self.client.create("resourceclaims", {"apiVersion": RESOURCE, "kind": "ResourceClaim", **tree}, NS)

    def template(self, name: str, *requests: Tree) -> None:
        spec = {"spec": {"devices": {"requests": list(requests)}}}
        tree = {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": {"name": name}}
        self.client.create("resourceclaimtemplates", {**tree, "spec": spec}, NS)

    def pod(self, name: str, containers: Sequence[Tree], claims: Mapping[str, str], **spec: Any) -> None:
        """`claims`: reference -> claim, or template after a colon."""
        entries = [
            {"name": ref, "resourceClaimTemplateName": source[1:]}
            if source.startswith(":")
            else {"name": ref, "resourceClaimName": source}
            for ref, source in claims.items()
        ]
        full = {"containers": list(containers), "resourceClaims": entries, **spec}
        full["terminationGracePeriodSeconds"] = 0
        self.client.create(
            "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": full}, NS
        )

    # -- waiting for results

    def bound(self, name: str) -> tuple[str, list[Tree]]:
        """Wait for the node of a pod; return it and the charges in the status."""
        tree = self.wait_for("pods", name, NS, lambda pod: bool(pod["spec"]["nodeName"]))
        return tree["spec"]["nodeName"], tree["status"].get("nodeAllocatableResourceClaimStatuses", [])

    def refused(self, name: str) -> str:
        """Return the scheduler's message for an unschedulable pod."""

        def has_condition(pod: Tree) -> bool:
            return any(
                c["type"] == "PodScheduled" and c["status"] == "False" for c in pod["status"]["conditions"]
            )

        tree = self.wait_for("pods", name, NS, has_condition)
        assert "nodeName" not in tree["spec"]
        return next(str(c["message"]) for c in tree["status"]["conditions"] if c["type"] == "PodScheduled")

    def remove(self, name: str) -> None:
        self.client.delete("pods", name, NS, grace=0)

    def devices(self, claim: str) -> list[str]:
        """Return the requests of a claim and their devices."""
        tree = self.wait_for("resourceclaims", claim, NS, lambda claim: bool(claim["status"]["allocation"]))
        return [f"{r['request']}: {r['device']}" for r in tree["status"]["allocation"]["devices"]["results"]]

    # -- ledgers

    def assert_requested(self, node: str, **amounts: str) -> None:
        """Wait until the ledger of a node has exactly these amounts and equals the objects."""
        wanted = {name.replace("_", "-"): amount for name, amount in amounts.items()}
        self._until(lambda scheduler: _requested(scheduler, node), wanted)
        assert self.ask(lambda scheduler: verify(scheduler.context.snapshot)) == []

    def pooled(self, node: str, claim: str, wanted: tuple[str, str, int] | None) -> None:
        """Wait until a claim has this CPU capacity, consumption and number of consumers."""

        def look(scheduler: SchedulerProcess) -> tuple[str, str, int] | None:
            state = scheduler.context.snapshot.ledger(_place(scheduler, node)).claim_state(NS, claim)
            if state is None:
                return None
            return str(state.allocated["cpu"]), str(state.consumed["cpu"]), len(state.consumers)

        self._until(look, wanted)

    def _until(self, look: Callable[[SchedulerProcess], object], wanted: object) -> None:
        wait_until(lambda: self.ask(look), lambda found: found == wanted, context=f"expected {wanted}")


def container(name: str, *claims: str, **requests: str) -> Tree:
    resources: Tree = {"claims": [{"name": claim} for claim in claims], "requests": requests}
    return {
        "name": name,
        "image": "app",
        "resources": {key: value for key, value in resources.items() if value},
    }


def exactly(
    name: str, device_class: str, *, capacity: Mapping[str, str] | None = None, **fields: Any
) -> Tree:
    """Return a request; capacities are those of the driver."""
    request: Tree = {"deviceClassName": device_class, **fields}
    if capacity:
        request["capacity"] = {"requests": {f"{DRIVER}/{key}": amount for key, amount in capacity.items()}}
    return {"name": name, "exactly": request}


def socket(name: str, **capacity: str) -> Tree:
    """Return a device shared by capacity, mapped to the node resources of the same names."""
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "capacity": {f"{DRIVER}/{key}": {"value": amount} for key, amount in capacity.items()},
        "nodeAllocatableResourceMappings": {key: {"capacityKey": f"{DRIVER}/{key}"} for key in capacity},
    }


def _place(scheduler: SchedulerProcess, node: str) -> int:
    place = scheduler.context.snapshot.row_of(node)
    assert place is not None, f"the scheduler does not know {node}"
    return place


def _requested(scheduler: SchedulerProcess, node: str) -> dict[str, str]:
    if scheduler.context.snapshot.row_of(node) is None:
        return {}
    ledger = scheduler.context.snapshot.ledger(_place(scheduler, node))
    return {
        name: str(from_units(name, amount)) for name, amount in sorted(ledger.requested.items()) if amount
    }
