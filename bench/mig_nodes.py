"""Cluster of nodes with 8 H100 GPUs and all their MIG profiles as partitions, 11 NICs and 2 groups of CPUs.

Devices are as the drivers of NVIDIA, dranet and dra-driver-cpu publish them: 221 for each node, with UUIDs,
MAC and PCI addresses of their own. GPUs are whole and free, allocated, or partly used, and nodes have
different requests, so that few nodes are in equal states. The same arguments always make the same objects.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
V1 = "resource.k8s.io/v1"
GPU, NET, CPU = "gpu.nvidia.com", "dra.net", "dra.cpu"
GPUS, CORES = 8, 192
MIG = "mig-1g-10gb.gpu.nvidia.com"
#: Engines of a GPU; memory is in MiB.
_ENGINES = ("multiprocessors", "copy-engines", "decoders", "jpeg-engines", "ofa-engines", "memory")
_WHOLE = (132, 8, 7, 7, 1, 81008)
#: Profile -> ID, memory slices, first slices, engines.
_PROFILES: dict[str, tuple[int, int, tuple[int, ...], tuple[int, ...]]] = {
    "1g.10gb": (19, 1, tuple(range(7)), (16, 1, 1, 1, 0, 9984)),
    "1g.10gb+me": (20, 1, tuple(range(7)), (16, 1, 1, 1, 1, 9984)),
    "1g.20gb": (15, 2, (0, 2, 4, 6), (26, 1, 1, 1, 0, 20096)),
    "2g.20gb": (14, 2, (0, 2, 4), (32, 2, 2, 2, 0, 20096)),
    "3g.40gb": (9, 4, (0, 4), (60, 3, 3, 3, 0, 40320)),
    "4g.40gb": (5, 4, (0,), (64, 4, 4, 4, 0, 40320)),
    "7g.80gb": (0, 8, (0,), _WHOLE),
}
#: Allocated partitions of a GPU, by state; "" is the entire GPU.
_STATES: tuple[tuple[tuple[str, int], ...], ...] = (
    (),
    (),
    (("", 0),),
    (("", 0),),
    (("1g.10gb", 0),),
    (("3g.40gb", 4), ("1g.10gb", 2)),
    (("2g.20gb", 0), ("2g.20gb", 2)),
    tuple(("1g.10gb", at) for at in range(7)),
)
_PRODUCT = {"productName": {"string": "NVIDIA H100 80GB HBM3"}, "architecture": {"string": "Hopper"}}
_VERSIONS = {"driverVersion": {"version": "570.86.15"}, "cudaComputeCapability": {"version": "9.0.0"}}


def mig_cluster(nodes: int) -> Iterator[Tree]:
    """Yield the objects of a cluster."""
    chance = random.Random(221)
    yield _object("v1", "Namespace", "work", status={"phase": "Active"})
    gpu = f"device.driver == '{GPU}' && device.attributes['{GPU}'].type"
    yield _class(GPU, f"{gpu} == 'gpu'", extendedResourceName="nvidia.com/gpu")
    yield _class("mig.nvidia.com", f"{gpu} == 'mig'")
    for profile in ("1g.10gb", "3g.40gb"):
        selector = f"{gpu} == 'mig' && device.attributes['{GPU}'].profile == '{profile}'"
        yield _class(f"mig-{profile.replace('.', '-')}.{GPU}", selector)
    yield _class(NET, f"device.driver == '{NET}'")
    yield _class("rdma", f"device.driver == '{NET}' && device.attributes['{NET}'].rdma")
    yield _class(CPU, f"device.driver == '{CPU}'")
    for number in range(nodes):
        yield from _node(f"gke-a3-mega-h100-pool-{number % 7:08x}-{number:04x}", number, chance)


def _node(node: str, number: int, chance: random.Random) -> Iterator[Tree]:
    line = {"cpu": str(CORES), "memory": "2Ti", "pods": "110", "ephemeral-storage": "2Ti"}
    tree = _object("v1", "Node", node, spec={}, status={"allocatable": line, "capacity": line})
    tree["metadata"]["labels"] = {"kubernetes.io/hostname": node, "nvidia.com/gpu.present": "true"}
    tree["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    yield tree
    sets = [_counter_set(f"gpu-{gpu}-counter-set") for gpu in range(GPUS)]
    yield _slice(node, GPU, 0, GPUS + 1, sharedCounters=sets)
    for gpu in range(GPUS):
        yield _slice(node, GPU, gpu + 1, GPUS + 1, nodeName=node, devices=[*_gpu(gpu, chance)])
    yield _slice(node, NET, 0, 1, nodeName=node, devices=[_nic(each, number) for each in range(11)])
    yield _slice(node, CPU, 0, 1, nodeName=node, devices=[_cpus(each) for each in range(2)])
    for gpu in range(GPUS):
        for index, (profile, at) in enumerate(chance.choice(_STATES)):
            device = f"gpu-{gpu}" if not profile else _partition_name(gpu, profile, at)
            name = f"train-{number:04d}-{gpu}-{index}"
            yield _claim(name, node, device, "mig.nvidia.com" if profile else GPU)
            yield _pod(name, node, str(chance.randrange(1, 12)))


def _counter_set(name: str) -> Tree:
    amounts = _amounts(_WHOLE, range(8))
    return {"name": name, "counters": {key: {"value": value} for key, value in amounts.items()}}


def _amounts(engines: tuple[int, ...], slices: range) -> dict[str, str]:
    found = {name: str(amount) for name, amount in zip(_ENGINES, engines, strict=True)}
    found["memory"] += "Mi"
    return found | {f"memory-slice-{number}": "1" for number in slices}


def _partition_name(gpu: int, profile: str, at: int) -> str:
    words = profile.replace(".", "").replace("+", "-")
    return f"gpu-{gpu}-mig-{words}-{_PROFILES[profile][0]}-{at}"


def _gpu(gpu: int, chance: random.Random) -> Iterator[Tree]:
    parent = f"GPU-{_uuid(chance)}"
    address = {
        "resource.kubernetes.io/pciBusID": {"string": f"0000:{27 + gpu * 24:02x}:00.0"},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{21 + gpu * 24:02x}"},
    }
    common = {**_PRODUCT, **_VERSIONS, **address}
    yield {
        "name": f"gpu-{gpu}",
        "attributes": {"type": {"string": "gpu"}, "uuid": {"string": parent}, **common},
        "capacity": {"memory": {"value": "81559Mi"}},
        "consumesCounters": [_counters(gpu, _WHOLE, range(8))],
    }
    for profile, (_, slices, starts, engines) in _PROFILES.items():
        for at in starts:
            own = {"type": {"string": "mig"}, "profile": {"string": profile}}
            own |= {"parentUUID": {"string": parent}, "uuid": {"string": f"MIG-{_uuid(chance)}"}}
            amounts = {name.replace("-", ""): str(each) for name, each in zip(_ENGINES, engines, strict=True)}
            capacity = {name: {"value": value} for name, value in amounts.items()}
            capacity["memory"] = {"value": f"{engines[-1]}Mi"}
            yield {
                "name": _partition_name(gpu, profile, at),
                "attributes": {**own, **common},
                "capacity": capacity,
                "consumesCounters": [_counters(gpu, engines, range(at, at + slices))],
            }


def _counters(gpu: int, engines: tuple[int, ...], slices: range) -> Tree:
    amounts = _amounts(engines, slices)
    return {
        "counterSet": f"gpu-{gpu}-counter-set",
        "counters": {key: {"value": value} for key, value in amounts.items()},
    }


def _uuid(chance: random.Random) -> uuid.UUID:
    return uuid.UUID(int=chance.getrandbits(128), version=4)


def _nic(index: int, node: int) -> Tree:
    name = f"gpu{index}rdma0" if index < GPUS else f"eth{index - GPUS}"
    attributes: Tree = {
        "ifName": {"string": name},
        "mac": {"string": f"9a:41:2e:{node >> 8:02x}:{node & 255:02x}:{index:02x}"},
        "ipv4": {"string": f"10.{node >> 8}.{node & 255}.{index}"},
        "rdma": {"bool": index < GPUS},
    }
    tree = {f"{NET}/{key}": value for key, value in attributes.items()}
    tree["resource.kubernetes.io/pcieRoot"] = {"string": f"pci0000:{21 + index % GPUS * 24:02x}"}
    return {"name": name, "attributes": tree}


def _cpus(numa: int) -> Tree:
    key = f"{CPU}/cpu"
    return {
        "name": f"cpudevnuma{numa:03d}",
        "allowMultipleAllocations": True,
        "attributes": {f"{CPU}/numaNodeID": {"int": numa}, f"{CPU}/numCPUs": {"int": CORES // 2}},
        "capacity": {key: {"value": str(CORES // 2)}},
        "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": key, "allocationMultiplier": "1"}},
    }


def _claim(name: str, node: str, device: str, device_class: str) -> Tree:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    status = {
        "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": GPU, "pool": node, "device": device}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"pod-{name}"}],
    }
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return _object(V1, "ResourceClaim", name, "work", spec=spec, status=status)


def _pod(name: str, node: str, cpu: str) -> Tree:
    resources = {"requests": {"cpu": cpu, "memory": "32Gi"}, "claims": [{"name": "gpu"}]}
    spec = {
        "nodeName": node,
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "image": "train:1", "resources": resources}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    tree = _object("v1", "Pod", name, "work", spec=spec, status={"phase": "Running"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-train", "controller": True}
    tree["metadata"]["ownerReferences"] = [owner]
    return tree


def _object(version: str, kind: str, name: str, namespace: str = "", **body: Any) -> Tree:
    metadata: Tree = {"name": name, "resourceVersion": "1", "uid": f"{kind.lower()}-{name}"}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def _class(name: str, selector: str, **spec: Any) -> Tree:
    return _object(V1, "DeviceClass", name, spec={"selectors": [{"cel": {"expression": selector}}], **spec})


def _slice(node: str, driver: str, index: int, count: int, **spec: Any) -> Tree:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    body = {"driver": driver, "pool": pool, "nodeName": node, **spec}
    return _object(V1, "ResourceSlice", f"{node}-{driver}-{index}", spec=body)
