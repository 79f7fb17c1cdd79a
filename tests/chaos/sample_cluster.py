"""Small consistent cluster, as objects."""

from __future__ import annotations

import copy
from typing import Any

from tests.chaos.scheduler_faults.invariants import FINALIZER
from tests.chaos.scheduler_faults.objects import ClusterObjects, Tree

NS = "default"


def _slice(driver: str, devices: list[Tree], **where: Any) -> Tree:
    pool = {"name": where.get("nodeName", "all"), "generation": 2, "resourceSliceCount": 1}
    return {
        "metadata": {"name": driver},
        "spec": {"driver": driver, "pool": pool, "devices": devices, **where},
    }


def sample_claim(name: str, driver: str, device: str, consumer: str, pool: str = "n1", **more: Any) -> Tree:
    result = {"request": "r", "driver": driver, "pool": pool, "device": device, **more}
    user = {"resource": "pods", "name": consumer, "uid": f"uid-{consumer}"}
    return {
        "metadata": {"name": name, "namespace": NS, "finalizers": [FINALIZER]},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": driver}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]},
    }


def sample_pod(name: str, *claims: str, node: str = "n1", cpu: str = "1") -> Tree:
    return {
        "metadata": {"name": name, "namespace": NS, "uid": f"uid-{name}"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "example.com/w": "1"}}}],
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
        },
        "status": {"phase": "Running"},
    }


def healthy() -> ClusterObjects:
    """Return a cluster in which all shared capacity is used up."""
    shared = {"name": "s0", "allowMultipleAllocations": True, "capacity": {"units": {"value": "8"}}}
    cores = {"name": "c0", "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
    counters = {"counterSet": "board", "counters": {"memory": {"value": "2Gi"}}}
    parts = [{"name": f"half-{number}", "consumesCounters": [counters]} for number in range(3)]
    board = _slice("part", [], nodeName="n1")
    del board["spec"]["devices"]
    board["spec"]["sharedCounters"] = [{"name": "board", "counters": {"memory": {"value": "4Gi"}}}]
    allocatable = {"cpu": "6", "pods": "4", "example.com/w": "4"}
    charged = sample_pod("p3", "cores", "half-b")
    entry = {"resourceClaimName": "cores", "containers": ["main"], "resources": {"cpu": "2000m"}}
    charged["status"]["nodeAllocatableResourceClaimStatuses"] = [entry]
    return ClusterObjects(
        nodes=[{"metadata": {"name": name}, "status": {"allocatable": allocatable}} for name in ("n1", "n2")],
        pods=[
            sample_pod("p0", "plain"),
            sample_pod("p1", "share-a", "half-a"),
            sample_pod("p2", "share-b", "plain"),
            charged,
        ],
        claims=[
            {**(plain := sample_claim("plain", "plain", "d0", "p0")), "status": _shared_by(plain, "p2")},
            sample_claim("share-a", "share", "s0", "p1", shareID="a", consumedCapacity={"units": "3"}),
            sample_claim("share-b", "share", "s0", "p2", shareID="b", consumedCapacity={"units": "5"}),
            sample_claim("cores", "cores", "c0", "p3"),
            sample_claim("half-a", "part", "half-0", "p1"),
            sample_claim("half-b", "part", "half-1", "p3"),
        ],
        slices=[
            _slice("plain", [{"name": "d0"}, {"name": "d1"}], nodeName="n1"),
            _slice("share", [shared], nodeName="n1"),
            _slice("cores", [cores], nodeName="n1"),
            board,
            _slice("part", parts, nodeName="n1"),
        ],
    )


def _shared_by(claim: Tree, other: str) -> Tree:
    status = copy.deepcopy(claim["status"])
    status["reservedFor"].append({"resource": "pods", "name": other, "uid": f"uid-{other}"})
    return dict(status)


def find_claim(objects: ClusterObjects, name: str) -> Tree:
    return next(claim for claim in objects.claims if claim["metadata"]["name"] == name)
