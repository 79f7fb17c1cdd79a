"""Builders: slices of GPUs with partitions, and claims that hold them."""

from __future__ import annotations

from typing import Any

from plimsoll.tools.cluster_state import ClusterState
from tests.dumps import make_cluster_state

DRIVER = "gpu.example.com"
Tree = dict[str, Any]


def _text(value: str) -> Tree:
    return {"string": value}


def device(name: str, memory: str = "", draws: Tree | None = None, **attributes: str) -> Tree:
    made: Tree = {"name": name, "attributes": {key: _text(value) for key, value in attributes.items()}}
    if memory:
        made["capacity"] = {"memory": {"value": memory}}
    if draws:
        counters = {key: {"value": str(value)} for key, value in draws.items()}
        made["consumesCounters"] = [{"counterSet": "set-1", "counters": counters}]
    return made


def slices(*devices: Tree, counters: Tree | None = None, driver: str = DRIVER) -> list[Tree]:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2 if counters else 1}
    spec = {"driver": driver, "nodeName": "n", "pool": pool}
    made = [{"name": "devices", "spec": {**spec, "devices": list(devices)}}]
    if counters:
        values = {key: {"value": str(value)} for key, value in counters.items()}
        made.append(
            {"name": "counters", "spec": {**spec, "sharedCounters": [{"name": "set-1", "counters": values}]}}
        )
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{driver}-{each['name']}", "uid": f"{driver}-{each['name']}"},
            "spec": each["spec"],
        }
        for each in made
    ]


def claim(*devices: str, name: str = "c") -> Tree:
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": each} for each in devices]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 1}}]}},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def cluster(*trees: Tree) -> ClusterState:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "8"}},
    }
    return make_cluster_state([node, *trees])
