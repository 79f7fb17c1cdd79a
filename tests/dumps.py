"""Dumps to ask questions of: the observed use cases of a real cluster, and made-up clusters of any size.

`usecase_dump` needs `../shared/usecases`, what a real kube-scheduler did, and skips the test where that is
not there. `big_cluster` needs nothing: the same arguments always make the same objects. All are trees as
`kubectl get -o yaml` gives them; `objects_of` and `make_cluster_state` read them.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from plimsoll.tools.cluster_state import ClusterObjects, ClusterState, Source, read_cluster_state

Tree = dict[str, Any]
SHARED = Path(__file__).resolve().parents[2] / "shared" / "usecases"
USECASES: list[str] = sorted(file.parent.name for file in SHARED.glob("*/result.yaml"))

V1 = "resource.k8s.io/v1"
CPU_DRIVER = "cpu.example.com"
GPU_DRIVER = "gpu.example.com"
MOMENT = "2026-11-15T00:00:00Z"
#: What a pod of a big cluster asks for, in turn: plain cores and memory, CPUs by claim, a GPU by claim.
TURNS = ("plain", "cpu", "gpu", "plain")


# -- what a real cluster held


@cache
def _directory() -> Path:
    made = Path(tempfile.mkdtemp(prefix="plimsoll-dumps-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def usecase_trees(name: str) -> list[Tree]:
    """The objects of a use case after the real scheduler was done with them."""
    directory = SHARED / name
    if not (directory / "result.yaml").exists():
        pytest.skip(f"the observed use case {name} is not in {SHARED}")
    with (directory / "input.yaml").open() as file:
        sent = [tree for tree in yaml.load_all(file, yaml.CSafeLoader) if tree]
    with (directory / "result.yaml").open() as file:
        result = yaml.load(file, yaml.CSafeLoader)
    trees = [tree for tree in sent if tree["kind"] not in ("Pod", "ResourceClaim")]
    trees += [{"apiVersion": "v1", "kind": "Pod", **tree} for tree in result["pods"]]
    trees += [{"apiVersion": V1, "kind": "ResourceClaim", **tree} for tree in result["resourceclaims"]]
    return trees


@cache
def _usecase_file(name: str) -> Path:
    return write_dump(usecase_trees(name), _directory() / f"{name}.yaml")


def usecase_dump(name: str) -> Path:
    """A use case as `kubectl get nodes,pods,... -A -o yaml` would have written it; skips without shared/."""
    if not (SHARED / name / "result.yaml").exists():
        pytest.skip(f"the observed use case {name} is not in {SHARED}")
    return _usecase_file(name)


def write_dump(trees: Iterable[Tree], path: Path, form: str = "yaml") -> Path:
    """One `kind: List`, as kubectl writes it; `form` is "yaml" or "json"."""
    whole = {"apiVersion": "v1", "items": list(trees), "kind": "List", "metadata": {"resourceVersion": ""}}
    if form == "json":
        path.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=4))
    else:
        with path.open("w") as file:
            yaml.dump(whole, file, yaml.CSafeDumper)
    return path


def objects_of(trees: Iterable[Tree]) -> ClusterObjects:
    return make_cluster_state(trees).objects


def make_cluster_state(trees: Iterable[Tree], *, assume_mapping: bool = False) -> ClusterState:
    """A cluster state of these objects, by way of a file."""
    with tempfile.TemporaryDirectory() as directory:
        path = write_dump(trees, Path(directory) / "dump.json", "json")
        return read_cluster_state(Source((str(path),)), assume_mapping=assume_mapping)


# -- what was made up


def node_name(number: int) -> str:
    return f"node-{number:04d}"


def big_cluster(
    nodes: int,
    *,
    pods_per_node: int = 4,
    devices: int = 8,
    pending: int = 4,
    cores: int = 64,
) -> list[Tree]:
    """Nodes of `cores` cores with 4Gi each, a shared CPU device and `devices` GPUs, in three zones.

    The pods of a node take turns (`TURNS`): requests alone, a claim for 4 CPUs that is mapped to the node's
    cpu, a claim for a GPU that is not mapped. Their claims are allocated and reserved. `pending` pods wait,
    in turn: one too big for any node, one for a GPU claim that is not allocated yet, one for a node that is
    not there.
    """
    return [*_standing(nodes, devices, cores), *_running(nodes, pods_per_node, devices), *_waiting(pending)]


def _standing(nodes: int, devices: int, cores: int) -> Iterator[Tree]:
    namespace = _object("v1", "Namespace", "work", status={"phase": "Active"})
    namespace["metadata"]["labels"] = {"kubernetes.io/metadata.name": "work"}
    yield namespace
    yield _class("cpu", CPU_DRIVER)
    yield _class("gpu", GPU_DRIVER)
    for number in range(nodes):
        yield _node(number, cores)
        yield _slice(number, CPU_DRIVER, [_cpus(cores)])
        if devices:
            yield _slice(number, GPU_DRIVER, [_gpu(index) for index in range(devices)])


def _running(nodes: int, pods_per_node: int, devices: int) -> Iterator[Tree]:
    for number in range(nodes):
        gpus = 0
        for index in range(pods_per_node):
            turn = TURNS[index % len(TURNS)]
            if turn == "gpu" and gpus == devices:
                turn = "plain"
            name = f"{turn}-{number:04d}-{index}"
            if turn == "plain":
                yield _pod(name, node_name(number))
                continue
            device = "cpus" if turn == "cpu" else f"gpu-{gpus}"
            gpus += turn == "gpu"
            yield _claim(name, turn, node_name(number), device)
            yield _pod(name, node_name(number), turn)


def _waiting(pending: int) -> Iterator[Tree]:
    for number in range(pending):
        name = f"waiting-{number:04d}"
        if number % 3 == 0:
            yield _pod(name, "", cpu="1000")
        elif number % 3 == 1:
            yield _claim(name, "gpu")
            yield _pod(name, "", "gpu")
        else:
            tree = _pod(name, "")
            tree["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
            yield tree


def uid_of(kind: str, name: str) -> str:
    """A UID that is always the same for the same object."""
    return f"{kind.lower()}-{name}"


def _object(version: str, kind: str, name: str, namespace: str = "", **body: Any) -> Tree:
    metadata: Tree = {
        "creationTimestamp": MOMENT,
        "name": name,
        "resourceVersion": "1",
        "uid": uid_of(kind, name),
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def _class(name: str, driver: str) -> Tree:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    return _object(V1, "DeviceClass", name, spec={"selectors": selectors})


def _node(number: int, cores: int) -> Tree:
    line = {"cpu": str(cores), "ephemeral-storage": "500Gi", "memory": f"{cores * 4}Gi", "pods": "110"}
    tree = _object("v1", "Node", node_name(number), spec={})
    tree["metadata"]["labels"] = {
        "kubernetes.io/hostname": node_name(number),
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    tree["status"] = {
        "allocatable": line,
        "capacity": {**line, "cpu": str(cores + 2)},
        "conditions": [
            {
                "lastHeartbeatTime": MOMENT,
                "lastTransitionTime": MOMENT,
                "message": "kubelet is posting ready status",
                "reason": "KubeletReady",
                "status": "True",
                "type": "Ready",
            }
        ],
    }
    return tree


def _slice(number: int, driver: str, devices: list[Tree]) -> Tree:
    name = node_name(number)
    pool = {"generation": 1, "name": name, "resourceSliceCount": 1}
    spec = {"devices": devices, "driver": driver, "nodeName": name, "pool": pool}
    return _object(V1, "ResourceSlice", f"{name}-{driver.partition('.')[0]}", spec=spec)


def _cpus(cores: int) -> Tree:
    key = f"{CPU_DRIVER}/cpu"
    return {
        "allowMultipleAllocations": True,
        "attributes": {f"{CPU_DRIVER}/kind": {"string": "shared"}},
        "capacity": {key: {"value": str(cores)}},
        "name": "cpus",
        "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1", "capacityKey": key}},
    }


def _gpu(index: int) -> Tree:
    attributes = {"index": {"int": index}, "model": {"string": "m80"}, "numa": {"int": index % 2}}
    return {"attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}, "name": f"gpu-{index}"}


def _claim(name: str, turn: str, node: str = "", device: str = "") -> Tree:
    exactly: Tree = {"allocationMode": "ExactCount", "count": 1, "deviceClassName": turn}
    if turn == "cpu":
        exactly["capacity"] = {"requests": {f"{CPU_DRIVER}/cpu": "4"}}
    requests = [{"exactly": exactly, "name": "r"}]
    tree = _object(V1, "ResourceClaim", name, "work", spec={"devices": {"requests": requests}}, status={})
    if not node:
        return tree
    tree["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    driver = CPU_DRIVER if turn == "cpu" else GPU_DRIVER
    result: Tree = {"device": device, "driver": driver, "pool": node, "request": "r"}
    if turn == "cpu":
        result |= {"consumedCapacity": {f"{CPU_DRIVER}/cpu": "4"}, "shareID": uid_of("share", name)}
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    tree["status"] = {
        "allocation": {
            "allocationTimestamp": MOMENT,
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
        },
        "reservedFor": [{"name": name, "resource": "pods", "uid": uid_of("Pod", name)}],
    }
    return tree


def _pod(name: str, node: str, turn: str = "plain", cpu: str = "2") -> Tree:
    asked = cpu if turn == "plain" else "500m"
    resources: Tree = {"requests": {"cpu": asked, "memory": "4Gi"}}
    spec: Tree = {
        "containers": [{"image": "pause:3.10", "name": "main", "resources": resources}],
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
    }
    status: Tree = {"phase": "Running" if node else "Pending", "qosClass": "Burstable"}
    if node:
        spec["nodeName"] = node
        status["conditions"] = [{"lastTransitionTime": MOMENT, "status": "True", "type": "PodScheduled"}]
    if turn != "plain":
        resources["claims"] = [{"name": "device"}]
        spec["resourceClaims"] = [{"name": "device", "resourceClaimName": name}]
    if turn == "cpu" and node:
        entry = {"containers": ["main"], "resourceClaimName": name, "resources": {"cpu": "4"}}
        status["nodeAllocatableResourceClaimStatuses"] = [entry]
    return _object("v1", "Pod", name, "work", spec=spec, status=status)
