"""Clusters for browser tests.

`sample_cluster` has everything the page can show: a node past its line, CPUs pinned by claims on a machine
with two sockets, a partitioned GPU, a network card with shared bandwidth, nodes that are cordoned or not
ready, and pending pods. `hostile_cluster` has markup in names and messages.
"""

from __future__ import annotations

import json
from typing import Any

from tests.dumps import MOMENT, V1

Tree = dict[str, Any]
CPU, GPU, NIC = "dra.cpu", "gpu.example.com", "nic.example.com"
HOSTILE = "<img src=x onerror=alert(1)>'\"&amp;%2e%00"


def thing(version: str, kind: str, name: str, namespace: str = "", **body: Any) -> Tree:
    metadata: Tree = {
        "creationTimestamp": MOMENT,
        "name": name,
        "resourceVersion": "1",
        "uid": f"{kind}-{name}",
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def node(
    name: str, cpu: str = "8", memory: str = "32Gi", *, ready: bool = True, cordoned: bool = False
) -> Tree:
    line = {"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi", "pods": "110"}
    condition = {"type": "Ready", "status": "True" if ready else "False", "reason": "Kubelet", "message": ""}
    tree = thing("v1", "Node", name, spec={"unschedulable": True} if cordoned else {})
    tree["metadata"]["labels"] = {"kubernetes.io/hostname": name}
    tree["status"] = {"allocatable": line, "capacity": line, "conditions": [condition]}
    return tree


def pod(
    name: str,
    on: str = "",
    *,
    cpu: str = "1",
    memory: str = "1Gi",
    claims: tuple[str, ...] = (),
    why: str = "",
) -> Tree:
    spec: Tree = {
        "containers": [
            {
                "name": "main",
                "image": "app",
                "resources": {
                    "requests": {"cpu": cpu, "memory": memory},
                    "claims": [{"name": c} for c in claims],
                },
            }
        ],
        "resourceClaims": [{"name": c, "resourceClaimName": c} for c in claims],
    }
    if on:
        spec["nodeName"] = on
    tree = thing("v1", "Pod", name, "shop", spec=spec, status={"phase": "Running" if on else "Pending"})
    if why:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        tree["status"]["conditions"] = [condition]
    return tree


def resource_slice(driver: str, on: str, devices: list[Tree], **spec: Any) -> Tree:
    pool = {"name": on, "generation": 1, "resourceSliceCount": 1}
    body = {"driver": driver, "nodeName": on, "pool": pool, "devices": devices, **spec}
    return thing(V1, "ResourceSlice", f"{on}-{driver}", spec=body)


def claim(
    name: str, device_class: str, driver: str = "", on: str = "", device: str = "", **given: Any
) -> Tree:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    request = {"name": "r", "exactly": {**exactly, **given.get("ask", {})}}
    tree = thing(V1, "ResourceClaim", name, "shop", spec={"devices": {"requests": [request]}}, status={})
    if not on:
        return tree
    result = {"request": "r", "driver": driver, "pool": on, "device": device, **given.get("got", {})}
    fields = [{"key": "metadata.name", "operator": "In", "values": [on]}]
    tree["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [
            {"resource": "pods", "name": one, "uid": f"Pod-{one}"} for one in given.get("pods", (name,))
        ],
    }
    if "cpuset" in given:
        status = {"driver": driver, "pool": on, "device": device, "data": {"cpuset": given["cpuset"]}}
        tree["status"]["devices"] = [status]
    return tree


def device_class(name: str, driver: str) -> Tree:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    return thing(V1, "DeviceClass", name, spec={"selectors": selectors})


def cpu_share(cores: int) -> Tree:
    return {
        "name": "cpus",
        "allowMultipleAllocations": True,
        "capacity": {"dra.cpu/cpu": {"value": str(cores)}},
        "nodeAllocatableResourceMappings": {
            "cpu": {"capacityKey": "dra.cpu/cpu", "allocationMultiplier": "1"}
        },
    }


def pinned(name: str, on: str, amount: int, cpuset: str = "") -> Tree:
    """Return a claim for CPUs of a node that the driver has pinned."""
    capacity = {"dra.cpu/cpu": str(amount)}
    got = {"consumedCapacity": capacity, "shareID": f"share-{name}"}
    more = {"cpuset": cpuset} if cpuset else {}
    ask = {"capacity": {"requests": capacity}}
    return claim(name, "cpu", CPU, on, "cpus", ask=ask, got=got, **more)


def cpu_map() -> str:
    """Return a topology: two sockets, two NUMA nodes each, eight cores of two CPUs per NUMA node."""
    groups = []
    for numa in range(4):
        cores = [f"{core},{core + 32}" for core in range(8 * numa, 8 * numa + 8)]
        for half in (0, 1):
            location = {"socket": numa // 2, "numa": numa, "l3": 2 * numa + half}
            groups.append({**location, "cores": cores[4 * half : 4 * half + 4]})
    return json.dumps({"groups": groups, "reserved": "0,32", "shared": "1,33", "offline": "64-65"})


def gpu_parts() -> list[Tree]:
    def part(name: str, memory: int) -> Tree:
        draws = [{"counterSet": "gpu-0", "counters": {"memory": {"value": f"{memory}Gi"}}}]
        return {"name": name, "capacity": {"memory": {"value": f"{memory}Gi"}}, "consumesCounters": draws}

    return [part("gpu-0-whole", 80), *(part(f"gpu-0-half-{n}", 40) for n in (0, 1))]


def sample_cluster() -> list[Tree]:
    """Return the objects of the sample cluster."""
    numa = resource_slice(CPU, "numa-1", [cpu_share(62)])
    numa["metadata"]["annotations"] = {"plimsoll.dev/cpu-topology": cpu_map()}
    gpus = resource_slice(GPU, "gpu-1", gpu_parts())
    counters = resource_slice(
        GPU, "gpu-1", [], sharedCounters=[{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    )
    del counters["spec"]["devices"]
    counters["metadata"]["name"] = "gpu-1-counters"
    for one in (gpus, counters):
        one["spec"]["pool"]["resourceSliceCount"] = 2
    card = {"name": "eth1", "allowMultipleAllocations": True, "capacity": {"bandwidth": {"value": "10G"}}}
    trees = [
        thing("v1", "Namespace", "shop", status={"phase": "Active"}),
        device_class("cpu", CPU),
        device_class("gpu", GPU),
        device_class("nic", NIC),
        node("numa-1", "64", "256Gi"),
        node("gpu-1", "32", "128Gi"),
        node("past-1"),
        node("idle-1", cordoned=True),
        node("lost-1", ready=False),
        numa,
        gpus,
        counters,
        resource_slice(CPU, "past-1", [cpu_share(8)]),
        resource_slice(NIC, "gpu-1", [card]),
    ]
    # As scheduled with two ledgers: requests fill the node, and a claim is not counted.
    trees += [
        pinned("ledger-claim", "past-1", 4),
        pod("ledger-claim", "past-1", cpu="0", claims=("ledger-claim",)),
    ]
    trees += [pod("web-1", "past-1", cpu="5"), pod("web-2", "past-1", cpu="1500m")]
    for name, amount, cpus in (
        ("trading", 8, "2-5,34-37"),
        ("packet", 4, "8-9,40-41"),
        ("video", 12, "16-21,48-53"),
    ):
        trees += [pinned(name, "numa-1", amount, cpus), pod(name, "numa-1", cpu="0", claims=(name,))]
    trees += [pod(f"batch-{n}", "numa-1", cpu="2", memory="8Gi") for n in range(4)]
    trees += [
        claim("train", "gpu", GPU, "gpu-1", "gpu-0-half-0"),
        pod("train", "gpu-1", cpu="8", memory="64Gi", claims=("train",)),
    ]
    for name, much in (("stream", "4G"), ("backup", "3G"), ("chat", "500M")):
        ask = {"capacity": {"requests": {"bandwidth": much}}}
        got = {"consumedCapacity": {"bandwidth": much}, "shareID": f"share-{name}"}
        trees += [claim(name, "nic", NIC, "gpu-1", "eth1", ask=ask, got=got)]
        trees += [pod(name, "gpu-1", cpu="500m", claims=(name,))]
    whole = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'
    selected = {"selectors": [{"cel": {"expression": whole}}]}
    trees += [claim("whole-gpu", "gpu", ask=selected), pod("whole-gpu", claims=("whole-gpu",))]
    trees += [pod("giant", cpu="500"), pod("nowhere")]
    trees[-1]["spec"]["nodeSelector"] = {"disk": "tape"}
    return trees


def hostile_cluster() -> list[Tree]:
    """Return objects with names that an API server rejects, but a dump may contain."""
    trees = [
        node(HOSTILE),
        node("javascript:alert(1)"),
        pod("stays", HOSTILE),
        pod(HOSTILE, why=f"because {HOSTILE}"),
    ]
    trees += [
        pinned(HOSTILE, HOSTILE, 2),
        device_class("cpu", CPU),
        resource_slice(CPU, HOSTILE, [cpu_share(4)]),
    ]
    trees[2]["metadata"]["namespace"] = "../../api"
    return trees
