"""Cluster and pods for a scheduler that is killed repeatedly, and the invariants that hold afterwards.

Devices of three kinds on every node: plain ones, one that is shared by capacity, and some that charge CPUs of
their node. Pods want nothing but room, one of these, or the first that is there; some share a claim; some fit
nowhere. There are more pods than devices, so that those who wait live on what others give back.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Endpoint,
)
from plimsoll.errors import ApiError, UnreachableError
from plimsoll.ledger.claims import read_charged_claims
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.unit.scheduler.overdrafts import find_overdrafts
from tests.waiting import until

Tree = dict[str, Any]
T = TypeVar("T")
NS = "default"
CPUS, PLAIN, SHARED, CORES = 16, 4, 8, 3  #: what each node has; the shared device has so many units
_KINDS = ("none", "plain", "share", "cores", "either", "pair", "unschedulable")
_WEIGHTS = (30, 15, 15, 15, 15, 6, 4)


async def insist(call: Callable[[], Awaitable[T]], *fine: int) -> T | None:
    """Call until the server responds; None if it refuses with one of these codes."""
    while True:
        try:
            return await call()
        except UnreachableError:
            await asyncio.sleep(0.02)
        except ApiError as error:
            if error.code in fine:
                return None
            if error.code not in (429, 500, 503, 504):
                raise
            await asyncio.sleep(0.02)


# -- the cluster


def _class(name: str) -> Tree:
    expression = f'device.driver == "{name}.example.com"'
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


def _slice(node: str, driver: str, devices: list[Tree]) -> Tree:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": f"{driver}.example.com", "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-{driver}"}, "spec": spec}


def _slices(node: str) -> list[Tree]:
    shared = {
        "name": "shared",
        "allowMultipleAllocations": True,
        "capacity": {"units": {"value": str(SHARED)}},
    }
    cores = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
    return [
        _slice(node, "plain", [{"name": f"plain-{number}"} for number in range(PLAIN)]),
        _slice(node, "share", [shared]),
        _slice(node, "cores", [{"name": f"cores-{number}", **cores} for number in range(CORES)]),
    ]


def _request(kind: str) -> Tree:
    match kind:
        case "share":
            units = {"capacity": {"requests": {"units": "3"}}}
            return {"name": "r", "exactly": {"deviceClassName": "share", **units}}
        case "either":
            several = [{"name": each, "deviceClassName": each} for each in ("plain", "cores")]
            return {"name": "r", "firstAvailable": several}
    return {"name": "r", "exactly": {"deviceClassName": kind}}


def _claim(kind: str) -> Tree:
    return {"devices": {"requests": [_request(kind)]}}


async def furnish(client: Client, nodes: int) -> None:
    """Create nodes, devices, classes and templates."""

    async def make(endpoint: Endpoint, tree: Tree, namespace: str = "") -> None:
        await insist(lambda: client.create(endpoint, tree, namespace), 409)

    for name in ("plain", "share", "cores"):
        await make(DEVICE_CLASSES, _class(name))
    for kind in ("plain", "share", "cores", "either"):
        template = {"metadata": {"name": kind}, "spec": {"spec": _claim(kind)}}
        await make(RESOURCE_CLAIM_TEMPLATES, template, NS)
    for number in range(nodes):
        name, line = f"node-{number}", {"cpu": str(CPUS), "memory": "64Gi", "pods": "110"}
        status = {"allocatable": line, "capacity": line}
        await make(NODES, {"metadata": {"name": name}, "status": status})
        for each in _slices(name):
            await make(RESOURCE_SLICES, each)


def pod_tree(name: str, kind: str, claim: str = "") -> Tree:
    resources: Tree = {"requests": {"cpu": "100" if kind == "unschedulable" else "500m", "memory": "64Mi"}}
    spec: Tree = {
        "schedulerName": "plimsoll",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "pause", "resources": resources}],
    }
    if kind not in ("none", "unschedulable"):
        source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": kind}
        spec["resourceClaims"] = [{"name": "c", **source}]
        resources["claims"] = [{"name": "c"}]
    return {"metadata": {"name": name, "labels": {"kind": kind}}, "spec": spec}


@dataclass
class PodFlow:
    """Pods that are created, and some that are deleted again."""

    client: Client
    dice: Random
    made: int = 0
    deleted: int = 0

    async def create(self, count: int) -> None:
        """Create a number of pods, several at once."""
        for first in range(0, count, 10):
            await asyncio.gather(*(self._create() for _ in range(first, min(first + 10, count))))

    async def _create(self) -> None:
        self.made += 1
        number, kind = self.made, self.dice.choices(_KINDS, _WEIGHTS)[0]
        trees = [pod_tree(f"p{number}-{kind}", kind)]
        if kind == "pair":
            claim = {"metadata": {"name": f"pair-{number}"}, "spec": _claim("plain")}
            await insist(lambda: self.client.create(RESOURCE_CLAIMS, claim, NS), 409)
            trees = [pod_tree(f"p{number}-pair-{which}", "pair", f"pair-{number}") for which in "ab"]
        for tree in trees:
            await insist(lambda tree=tree: self.client.create(PODS, tree, NS), 409)  # type: ignore[misc]

    async def delete(self, count: int) -> None:
        """Delete some bound pods, and sometimes a pending one."""
        listing = await insist(lambda: self.client.list(PODS, NS))
        assert listing is not None
        trees = [json.loads(raw) for raw in listing.items]
        bound = [tree for tree in trees if tree["spec"].get("nodeName") or self.dice.random() < 0.05]
        for tree in self.dice.sample(bound, min(count, len(bound))):
            name = tree["metadata"]["name"]
            await insist(lambda name=name: self.client.delete(PODS, name, NS, grace=0), 404)  # type: ignore[misc]
            self.deleted += 1


# -- invariants


async def look(client: Client) -> Snapshot:
    """Return all objects as a starting scheduler would see them; pods without a node are in `all`."""
    snapshot = Snapshot()
    for endpoint, view in (
        (NODES, Node),
        (DEVICE_CLASSES, DeviceClass),
        (RESOURCE_SLICES, ResourceSlice),
        (RESOURCE_CLAIMS, ResourceClaim),
    ):
        for raw in (await client.list(endpoint)).items:
            snapshot.set(codec.decode(raw, view))
    return snapshot


async def find_problems(client: Client) -> list[str]:
    """Return the violated invariants when nothing is in progress."""
    pods = [codec.decode(raw, Pod) for raw in (await client.list(PODS)).items]
    snapshot = await look(client)
    for pod in pods:
        snapshot.set(pod)
    found = [f"ledger: {each}" for each in verify(snapshot)]
    found += [f"overdrawn: {each}" for each in find_overdrafts(snapshot)]
    for pod in pods:
        found += _bound_problems(pod, snapshot) if pod.spec.node_name else _waiting_problems(pod, snapshot)
    uids = {pod.metadata.uid for pod in pods}
    for claim in snapshot.all(ResourceClaim):
        found += _leaks(claim, uids)
    return found


def _waiting_problems(pod: Pod, snapshot: Snapshot) -> list[str]:
    """Check that a pod without a node fits nowhere, has a condition with the reason, and holds nothing."""
    name, found = pod.metadata.name, list[str]()
    task = read_pod_info(pod, snapshot)
    if isinstance(task, NodeReason):
        found.append(f"{name} is not ready: {render(task)}")
    else:
        outcome = schedule_one(task, snapshot, SchedulerProfile.default(), lambda: "share")
        if isinstance(outcome, Placement):
            found.append(f"{name} has no node but fits {outcome.node}")
        found += [f"{name} holds {each.metadata.name}" for each in task.claims if each.status.allocation]
    if read_charged_claims(pod):
        found.append(f"{name} is charged but has no node")
    if not any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions):
        found.append(f"{name} has no condition that explains why it is pending")
    return found


def _bound_problems(pod: Pod, snapshot: Snapshot) -> list[str]:
    """Check that a bound pod has its devices on its node and is charged for them."""
    name, found, drivers = pod.metadata.name, list[str](), set[str]()
    names = resolve_claim_names(pod)
    if len(names) != len(pod.spec.resource_claims):
        found.append(f"{name} was bound without its claims")
    for each in names.values():
        claim = snapshot.claim(NS, each)
        allocation = None if claim is None else claim.status.allocation
        if claim is None or allocation is None:
            found.append(f"{name} was bound, but {each} has no devices")
            continue
        if all(user.uid != pod.metadata.uid for user in claim.status.reserved_for):
            found.append(f"{name} was bound, but {each} is not reserved for it")
        for result in allocation.devices.results:
            drivers.add(result.driver)
            if result.pool != pod.spec.node_name:
                found.append(f"{name} is on {pod.spec.node_name}, its device on {result.pool}")
    if ("cores.example.com" in drivers) != bool(read_charged_claims(pod)):
        found.append(f"{name} has {sorted(drivers)} and charges {read_charged_claims(pod)}")
    return found


def _leaks(claim: ResourceClaim, uids: set[str]) -> list[str]:
    """Check that claims of deleted pods are deleted, or at least deallocated."""
    name, status = claim.metadata.name, claim.status
    found = [f"{name} is reserved for {user.name}" for user in status.reserved_for if user.uid not in uids]
    if status.allocation is not None and not status.reserved_for:
        found.append(f"{name} has devices without a consumer")
    owners = [each for each in claim.metadata.owner_references if each.uid not in uids]
    return found + [f"{name} was made for {each.name}, which is gone" for each in owners]


async def settle(client: Client, seconds: float) -> list[str]:
    """Wait until there are no problems and return those that remain after a time."""
    with suppress(AssertionError):
        await until(lambda: find_problems(client), lambda problems: not problems, seconds=seconds)
    return await find_problems(client)


async def count_pods(client: Client) -> Counter[str]:
    """Return the number of pods with and without a node."""
    trees = [json.loads(raw) for raw in (await client.list(PODS)).items]
    return Counter("bound" if tree["spec"].get("nodeName") else "waiting" for tree in trees)
