"""Builders of Kubernetes objects for tests.

Functions named after a kind return the typed view; `to_tree` of `plimsoll.api.codec` turns it into the JSON
that a client would send. Parts of objects (containers, devices, requests, results) are JSON. An object's UID
is `uid-NAME` unless a test gives another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.api.scheduling import PodGroup

Tree = dict[str, Any]
DRIVER = "gpu.example.com"
CLASS = "gpu"
NODE = "node-1"
POOL = "p"
NAMESPACE = "default"
RESOURCE_V1 = "resource.k8s.io/v1"


def _metadata(name: str, namespace: str = "", uid: str | None = None, **fields: Any) -> Tree:
    made: Tree = {"name": name, "uid": f"uid-{name}" if uid is None else uid}
    return made | ({"namespace": namespace} if namespace else {}) | fields


def _resources(amounts: Mapping[str, str]) -> dict[str, str]:
    """Turn keywords into resource names: `hugepages_2Mi` is `hugepages-2Mi`."""
    return {name.replace("_", "-"): amount for name, amount in amounts.items()}


# -- nodes


def node(
    name: str = NODE,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str] | str] = (),
    unschedulable: bool = False,
    extended: Mapping[str, str] | None = None,
    **allocatable: str,
) -> Node:
    """Return a node; further keywords and `extended` are resources (`hugepages_2Mi="1Gi"`).

    A taint is a mapping or a text: `key=value:Effect` or `key:Effect`.
    """
    line = {"cpu": cpu, "memory": memory, "pods": pods, **_resources({**allocatable, **(extended or {})})}
    spec = {"taints": [_taint(taint) for taint in taints], "unschedulable": unschedulable}
    tree = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, labels=dict(labels or {})),
        "spec": spec,
        "status": {"allocatable": line, "capacity": line},
    }
    return convert(tree, Node)


def _taint(taint: Mapping[str, str] | str) -> Mapping[str, str]:
    if not isinstance(taint, str):
        return taint
    name, _, effect = taint.rpartition(":")
    key, _, value = name.partition("=")
    return {"key": key, "value": value, "effect": effect}


# -- pods


def container(
    name: str = "main",
    *claims: str,
    limits: Any = None,
    host_ports: Any = (),
    **requests: str,
) -> Tree:
    """Return a container that refers to these claims of the pod; `cpu="1"` is a request.

    `limits` are resource -> amount; a host port is a number or a ContainerPort.
    """
    resources: Tree = {"requests": _resources(requests), "claims": [{"name": each} for each in claims]}
    if limits is not None:
        resources["limits"] = dict(limits)
    tree: Tree = {"name": name, "resources": resources}
    if host_ports:
        tree["ports"] = [
            {"hostPort": port, "containerPort": port} if isinstance(port, int) else dict(port)
            for port in host_ports
        ]
    return tree


def sidecar(name: str, *claims: str, **fields: Any) -> Tree:
    return {**container(name, *claims, **fields), "restartPolicy": "Always"}


def pod(
    name: str,
    *containers: Mapping[str, Any],
    init: Sequence[Mapping[str, Any]] = (),
    cpu: str | None = None,
    memory: str | None = None,
    requests: Mapping[str, str] | None = None,
    host_ports: Sequence[int | Mapping[str, Any]] = (),
    claims: Sequence[str] | Mapping[str, str] = (),
    node: str = "",
    labels: Mapping[str, str] | None = None,
    namespace: str = NAMESPACE,
    uid: str | None = None,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """Return a pod of these containers, or of one container with `cpu`, `memory`, `requests` and `claims`.

    `claims` are names of claims, or names in the pod -> claims; claims that containers refer to are added.
    `node` is the node it is bound to. Further keywords are fields of the spec, in either spelling
    (`node_selector=`, `nodeSelector=`).
    """
    names = dict(claims) if isinstance(claims, Mapping) else {each: each for each in claims}
    if not containers:
        amounts = {"cpu": cpu, "memory": memory, **(requests or {})}
        given = {key: text for key, text in amounts.items() if text is not None}
        containers = (container("main", *names, host_ports=host_ports, **given),)
    for each in (*init, *containers):
        for reference in each.get("resources", {}).get("claims", ()):
            names.setdefault(reference["name"], reference["name"])
    full: Tree = {
        "containers": list(containers),
        "initContainers": list(init),
        "nodeName": node,
        "resourceClaims": [{"name": key, "resourceClaimName": each} for key, each in names.items()],
    }
    full |= {_camel_case(key): value for key, value in spec.items()}
    meta = _metadata(name, namespace, uid, labels=dict(labels or {}), **(metadata or {}))
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": full, "status": dict(status or {})}
    return convert(tree, Pod)


def pod_group(
    name: str = "gang", min_count: int = 0, *, topology: str = "", namespace: str = NAMESPACE, **spec: Any
) -> PodGroup:
    """Return a PodGroup: a gang with `min_count`, a basic one without; `topology` is a node label."""
    policy: Tree = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    fields: Tree = {"schedulingPolicy": policy, **{_camel_case(key): value for key, value in spec.items()}}
    if topology:
        fields["schedulingConstraints"] = {"topology": [{"key": topology}]}
    tree = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": _metadata(name, namespace),
        "spec": fields,
    }
    return convert(tree, PodGroup)


def member(name: str, group: str = "gang", **fields: Any) -> Pod:
    """Return a pod of a PodGroup; see `pod` for the fields."""
    return pod(name, schedulingGroup={"podGroupName": group}, **fields)


def _camel_case(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


# -- devices


def device(
    name: str,
    *,
    capacity: Mapping[str, Any] | None = None,
    shared: bool = False,
    draws: Mapping[str, Mapping[str, str]] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    fields: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> Tree:
    """Return a device; any other keyword is an attribute.

    A capacity is an amount or a DeviceCapacity. `draws` are counter set -> counter -> amount.
    """
    tree: Tree = {"name": name}
    if attributes:
        tree["attributes"] = {key: _attribute(value) for key, value in attributes.items()}
    if capacity is not None:
        tree["capacity"] = {
            key: amount if isinstance(amount, Mapping) else {"value": amount}
            for key, amount in capacity.items()
        }
    if shared:
        tree["allowMultipleAllocations"] = True
    if draws is not None:
        tree["consumesCounters"] = [
            {"counterSet": each, "counters": _values(counters)} for each, counters in draws.items()
        ]
    if taints:
        tree["taints"] = list(taints)
    return tree | dict(fields or {})


def _attribute(value: Any) -> Tree:
    kind = {bool: "bool", int: "int", str: "string"}
    if isinstance(value, list):
        return {kind[type(value[0])] + "s": value}
    return {kind[type(value)]: value}


def _values(amounts: Mapping[str, str]) -> dict[str, Tree]:
    return {key: {"value": amount} for key, amount in amounts.items()}


def charging_device(
    name: str,
    *,
    shared: bool = False,
    capacity: Mapping[str, str] | None = None,
    fields: Mapping[str, Any] | None = None,
    **mappings: Any,
) -> Tree:
    """Return a device mapped to node resources: `cpu="2"` per device, or `cpu={...}`, a 1.36 mapping."""
    rules = {
        name: {"allocationMultiplier": rule} if isinstance(rule, str) else rule
        for name, rule in _resources(mappings).items()
    }
    mapped = {"nodeAllocatableResourceMappings": rules} if rules else {}
    return device(name, shared=shared, capacity=capacity or None, fields={**mapped, **(fields or {})})


def pool_device(name: str = "socket0", policy: str = "", **sizes: str) -> Tree:
    """Return a shared device whose capacities are charged to the node: `pool_device(cpu="128")`."""
    sizes = sizes or {"cpu": "128"}
    rule = {"accountingPolicy": policy} if policy else {}
    rules = {key: {"capacityKey": f"{DRIVER}/{key}", **rule} for key in sizes}
    capacity = {f"{DRIVER}/{key}": text for key, text in sizes.items()}
    return charging_device(name, shared=True, capacity=capacity, **rules)


def resource_slice(
    devices: Iterable[Mapping[str, Any]] = (),
    node: str = "",
    *,
    name: str = "",
    driver: str = DRIVER,
    pool: str = "",
    generation: int = 1,
    count: int = 1,
    counters: Mapping[str, Mapping[str, str]] | None = None,
    **selection: Any,
) -> ResourceSlice:
    """Return a slice of devices on a node, in a pool named after it; without `node`, on NODE in POOL.

    `selection` replaces the node: `allNodes=True`, `nodeSelector=...` or `perDeviceNodeSelection=True`.
    """
    spec: Tree = {
        "driver": driver,
        "pool": {"name": pool or node or POOL, "generation": generation, "resourceSliceCount": count},
        "devices": [dict(each) for each in devices],
        **(selection or {"nodeName": node or NODE}),
    }
    if counters is not None:
        spec["sharedCounters"] = [
            {"name": each, "counters": _values(amounts)} for each, amounts in counters.items()
        ]
    meta = _metadata(name or f"{node or NODE}-{driver}")
    tree = {"apiVersion": RESOURCE_V1, "kind": "ResourceSlice", "metadata": meta, "spec": spec}
    return convert(tree, ResourceSlice)


def device_class(name: str = CLASS, *, select: Any = None, **spec: Any) -> DeviceClass:
    """Return a device class; `select` is its CEL selector."""
    if select is not None:
        spec["selectors"] = [{"cel": {"expression": select}}]
    tree = {"apiVersion": RESOURCE_V1, "kind": "DeviceClass", "metadata": _metadata(name), "spec": spec}
    return convert(tree, DeviceClass)


# -- claims


def exactly(name: str = "r", count: int = 1, **fields: Any) -> Tree:
    """Return a request; `select=`, `capacity=`, `mode=`, `admin=`, `tolerations=`, `device_class=`."""
    mode = fields.get("mode", "ExactCount")
    body: Tree = {"deviceClassName": fields.get("device_class", CLASS), "allocationMode": mode}
    if mode == "ExactCount":
        body["count"] = count
    if "select" in fields:
        body["selectors"] = [{"cel": {"expression": fields["select"]}}]
    if "capacity" in fields:
        body["capacity"] = {"requests": fields["capacity"]}
    if "admin" in fields:
        body["adminAccess"] = fields["admin"]
    if "tolerations" in fields:
        body["tolerations"] = fields["tolerations"]
    return {"name": name, "exactly": body}


def first_available(name: str, *alternatives: Mapping[str, Any]) -> Tree:
    """Return a prioritized list of requests made by `exactly`."""
    subrequests = [{"name": each["name"], **each["exactly"]} for each in alternatives]
    return {"name": name, "firstAvailable": subrequests}


def result(device: str, driver: str = DRIVER, pool: str = POOL, request: str = "r", **consumed: str) -> Tree:
    """Return an allocation result; `cpu="4"` is consumed capacity of DRIVER."""
    tree: Tree = {"request": request, "driver": driver, "pool": pool, "device": device}
    if consumed:
        tree["consumedCapacity"] = {f"{DRIVER}/{key}": text for key, text in consumed.items()}
    return tree


def claim(
    name: str = "c",
    *requests: Mapping[str, Any],
    results: Iterable[Mapping[str, Any]] = (),
    node: str = "",
    reserved: Sequence[str] = (),
    namespace: str = NAMESPACE,
    uid: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    **devices: Any,
) -> ResourceClaim:
    """Return a claim of requests made by `exactly`, allocated if there are `results` (usable on `node` only).

    `reserved` are names of pods; `constraints=` and `config=` are fields of the spec.
    """
    status: Tree = {
        "reservedFor": [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in reserved]
    }
    if allocated := [dict(each) for each in results]:
        status["allocation"] = {"devices": {"results": allocated}}
        if node:
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    tree = {
        "apiVersion": RESOURCE_V1,
        "kind": "ResourceClaim",
        "metadata": _metadata(name, namespace, uid, **(metadata or {})),
        "spec": {"devices": {"requests": [dict(each) for each in requests], **devices}},
        "status": status,
    }
    return convert(tree, ResourceClaim)
