"""Small cluster with every kind of device, for pods that compete for all of it."""

from __future__ import annotations

from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NODES,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Endpoint,
)
from tests.chaos.scheduler_faults.objects import Tree
from tests.chaos.scheduler_load import insist

NS = "default"
NODE_COUNT = 3
ALLOCATABLE = {"cpu": "8", "memory": "8Gi", "pods": "12", "example.com/widget": "3"}
#: Extended resource that devices of the class `cores` serve.
CORE = "example.com/core"
#: Devices per node of each node-local kind, and of the kind that every node can use.
LOCAL, EVERYWHERE = 2, 4
DRIVERS = ("plain", "fabric", "share", "cores", "part")
#: Priority class of pods that go first, so that a new leader begins with others than the last one did.
URGENT = "urgent"
#: Claims that pods share and that outlive them, so that one object is allocated again and again.
NAMED = {"named-0": "plain", "named-1": "fabric", "named-2": "cores", "named-3": "fabric"}


def _slice(name: str, driver: str, pool: str, count: int, **spec: object) -> Tree:
    head = {"name": pool, "generation": 1, "resourceSliceCount": count}
    return {"metadata": {"name": name}, "spec": {"driver": f"{driver}.example.com", "pool": head, **spec}}


def slices() -> list[Tree]:
    """Return the devices of the cluster: exclusive, shared, charged to the node, and partitions."""
    shared = {"name": "shared", "allowMultipleAllocations": True, "capacity": {"units": {"value": "8"}}}
    cores = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
    fabric = [{"name": f"fabric-{number}"} for number in range(EVERYWHERE)]
    found = [_slice("fabric", "fabric", "fabric", 1, allNodes=True, devices=fabric)]
    board = [{"name": "board", "counters": {"memory": {"value": "4Gi"}}}]
    for number in range(NODE_COUNT):
        node = f"node-{number}"
        where = {"nodeName": node}
        parts = [_part("whole", "4Gi"), _part("half-0", "2Gi"), _part("half-1", "2Gi"), _part("rest", "1Gi")]
        plain = [{"name": f"plain-{which}"} for which in range(LOCAL)]
        charged = [{"name": f"cores-{which}", **cores} for which in range(LOCAL)]
        found += [
            _slice(f"{node}-plain", "plain", node, 1, devices=plain, **where),
            _slice(f"{node}-share", "share", node, 1, devices=[shared], **where),
            _slice(f"{node}-cores", "cores", node, 1, devices=charged, **where),
            _slice(f"{node}-board", "part", node, 2, sharedCounters=board, **where),
            _slice(f"{node}-part", "part", node, 2, devices=parts, **where),
        ]
    return found


def _part(name: str, memory: str) -> Tree:
    return {
        "name": name,
        "consumesCounters": [{"counterSet": "board", "counters": {"memory": {"value": memory}}}],
    }


def claim_spec(kind: str) -> Tree:
    """Return the spec of a claim for one of the kinds."""
    match kind:
        case "share":
            wanted = {"deviceClassName": "share", "capacity": {"requests": {"units": "3"}}}
            requests: list[Tree] = [{"name": "r", "exactly": wanted}]
        case "either":
            several = [{"name": each, "deviceClassName": each} for each in ("plain", "cores")]
            requests = [{"name": "r", "firstAvailable": several}]
        case "both":
            requests = [{"name": name, "exactly": {"deviceClassName": name}} for name in ("plain", "fabric")]
        case _:
            requests = [{"name": "r", "exactly": {"deviceClassName": kind}}]
    return {"devices": {"requests": requests}}


def pod_tree(
    name: str, kind: str, *, claim: str = "", cpu: str = "500m", widget: bool = False, urgent: bool = False
) -> Tree:
    requests = {"cpu": cpu, "memory": "256Mi"}
    resources: Tree = {"requests": requests}
    if widget:
        resources |= {
            "requests": {**requests, "example.com/widget": "1"},
            "limits": {"example.com/widget": "1"},
        }
    spec: Tree = {
        "schedulerName": "plimsoll",
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "pause", "resources": resources}],
    }
    if urgent:
        spec["priorityClassName"] = URGENT
    if kind == "extended":
        resources["requests"] = {**resources["requests"], CORE: "1"}
        resources["limits"] = {**resources.get("limits", {}), CORE: "1"}
    elif kind != "none":
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": kind}
        spec["resourceClaims"] = [{"name": "c", **source}]
        resources["claims"] = [{"name": "c"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"kind": kind}},
        "spec": spec,
    }


async def create_node(client: Client, name: str, allocatable: dict[str, str]) -> None:
    await client.create(NODES, {"metadata": {"name": name}})
    status = {"allocatable": allocatable, "capacity": allocatable}
    await client.patch(NODES, name, {"status": status}, subresource="status")
    await client.patch(NODES, name, {"spec": {"taints": None}})  # a real server taints new nodes


async def create_cluster(client: Client) -> None:
    """Create nodes, devices, classes, templates and the named claims."""

    async def make(endpoint: Endpoint, tree: Tree, namespace: str = "") -> None:
        await insist(lambda: client.create(endpoint, tree, namespace), 409)

    await make(PRIORITY_CLASSES, {"metadata": {"name": URGENT}, "value": 1000, "preemptionPolicy": "Never"})
    for name in DRIVERS:
        expression = f'device.driver == "{name}.example.com"'
        selectors = [{"cel": {"expression": expression}}]
        spec: Tree = {"selectors": selectors}
        if name == "cores":
            spec["extendedResourceName"] = CORE
        await make(DEVICE_CLASSES, {"metadata": {"name": name}, "spec": spec})
    for kind in (*DRIVERS, "either", "both"):
        template = {"metadata": {"name": kind}, "spec": {"spec": claim_spec(kind)}}
        await make(RESOURCE_CLAIM_TEMPLATES, template, NS)
    for number in range(NODE_COUNT):
        await create_node(client, f"node-{number}", ALLOCATABLE)
    for each in slices():
        await make(RESOURCE_SLICES, each)
    for name, kind in NAMED.items():
        await make(RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": claim_spec(kind)}, NS)
