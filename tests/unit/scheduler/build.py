"""Builders of nodes, pods, claims and slices for scheduler tests; `snapshot_of` puts them together.

Devices and requests come from the allocator's builders, charging devices from the ledger's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.unit.allocator.build import CLASS, DRIVER, device, device_class, exactly, first_available
from tests.unit.ledger.builders import device as charging_device

__all__ = [
    "CLASS",
    "DRIVER",
    "NAMESPACE",
    "charging_device",
    "claim",
    "container",
    "device",
    "device_class",
    "exactly",
    "first_available",
    "node",
    "pod",
    "pod_info_of",
    "resource_slice",
    "snapshot_of",
]  # fmt: skip

NAMESPACE = "default"


def node(
    name: str,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str] | str] = (),
    unschedulable: bool = False,
    extended: Mapping[str, str] | None = None,
    **allocatable: str,
) -> Node:
    """A node; more resources as keywords (`hugepages_2Mi="1Gi"`) or `extended={"example.com/gpu": "4"}`.

    A taint is a mapping or a text: `key=value:Effect` or `key:Effect`.
    """
    line = {"cpu": cpu, "memory": memory, "pods": pods}
    line |= {key.replace("_", "-"): text for key, text in allocatable.items()} | dict(extended or {})
    spec = {"taints": [_taint(taint) for taint in taints], "unschedulable": unschedulable}
    meta = {"name": name, "uid": f"uid-{name}", "labels": dict(labels or {})}
    return convert({"metadata": meta, "spec": spec, "status": {"allocatable": line, "capacity": line}}, Node)


def _taint(taint: Mapping[str, str] | str) -> Mapping[str, str]:
    if not isinstance(taint, str):
        return taint
    what, _, effect = taint.rpartition(":")
    key, _, value = what.partition("=")
    return {"key": key, "value": value, "effect": effect}


def container(
    name: str = "main",
    requests: Mapping[str, str] | None = None,
    claims: Sequence[str] = (),
    host_ports: Sequence[int | Mapping[str, Any]] = (),
    **fields: Any,
) -> dict[str, Any]:
    """Return a container as JSON; a host port is a number or a ContainerPort."""
    resources = {"requests": dict(requests or {}), "claims": [{"name": each} for each in claims]}
    ports = [
        {"hostPort": port, "containerPort": port} if isinstance(port, int) else dict(port)
        for port in host_ports
    ]
    return {"name": name, "resources": resources, "ports": ports, **fields}


def pod(
    name: str,
    cpu: str | None = None,
    memory: str | None = None,
    node: str = "",
    claims: Sequence[str] | Mapping[str, str] = (),
    requests: Mapping[str, str] | None = None,
    host_ports: Sequence[int | Mapping[str, Any]] = (),
    labels: Mapping[str, str] | None = None,
    namespace: str = NAMESPACE,
    uid: str | None = None,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of one container that uses these claims (names of claims, or name in the pod -> claim).

    `node` is the node it is bound to. Further keywords are fields of its spec, in either spelling
    (`node_selector=`, `nodeSelector=`); `containers=` replaces the one container.
    """
    names = dict(claims) if isinstance(claims, Mapping) else {each: each for each in claims}
    wants = {"cpu": cpu, "memory": memory, **(requests or {})}
    main = container(
        "main", {key: text for key, text in wants.items() if text is not None}, tuple(names), host_ports
    )
    full: dict[str, Any] = {"containers": [main], "nodeName": node}
    if names:
        full["resourceClaims"] = [{"name": key, "resourceClaimName": each} for key, each in names.items()]
    full |= {_camel(key): value for key, value in spec.items()}
    meta = {
        "name": name, "namespace": namespace, "uid": f"uid-{name}" if uid is None else uid,
        "labels": dict(labels or {}), **(metadata or {}),
    }  # fmt: skip
    return convert({"metadata": meta, "spec": full, "status": dict(status or {})}, Pod)


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(part.capitalize() for part in rest)


def claim(
    name: str,
    *requests: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]] = (),
    on: str = "",
    reserved: Sequence[str] = (),
    namespace: str = NAMESPACE,
    uid: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    **devices: Any,
) -> ResourceClaim:
    """A claim of requests made by `exactly`; allocated if there are `results`, to the node named `on` only.

    `reserved` are names of pods (their UIDs are `uid-NAME`); `constraints=` and `config=` go into the spec.
    """
    own = f"uid-{name}" if uid is None else uid
    meta = {"name": name, "namespace": namespace, "uid": own, **(metadata or {})}
    status: dict[str, Any] = {
        "reservedFor": [{"resource": "pods", "name": each, "uid": f"uid-{each}"} for each in reserved]
    }
    if results:
        status["allocation"] = {"devices": {"results": [dict(each) for each in results]}}
        if on:
            field = {"key": "metadata.name", "operator": "In", "values": [on]}
            status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    spec = {"devices": {"requests": [dict(each) for each in requests], **devices}}
    return convert({"metadata": meta, "spec": spec, "status": status}, ResourceClaim)


def resource_slice(
    node: str,
    devices: Sequence[Mapping[str, Any]],
    *,
    name: str = "",
    driver: str = DRIVER,
    pool: str = "",
    generation: int = 1,
    count: int = 1,
    counters: Mapping[str, Mapping[str, str]] | None = None,
    **selection: Any,
) -> ResourceSlice:
    """A slice of devices on a node (or `allNodes=True`, `nodeSelector=...`), a pool of the node's name."""
    spec: dict[str, Any] = {
        "driver": driver,
        "pool": {"name": pool or node or "pool", "generation": generation, "resourceSliceCount": count},
        "devices": [dict(each) for each in devices],
        **(selection or {"nodeName": node}),
    }
    if counters is not None:
        spec["sharedCounters"] = [
            {"name": each, "counters": {key: {"value": amount} for key, amount in amounts.items()}}
            for each, amounts in counters.items()
        ]
    meta = {"name": name or f"{node or 'all'}-{driver}", "uid": f"uid-{name or node}"}
    return convert({"metadata": meta, "spec": spec}, ResourceSlice)


def snapshot_of(
    *objects: Any, gates: Gates | None = None, profile: AccountingProfile | None = None
) -> Snapshot:
    """Return a snapshot of these objects, set in this order."""
    made = Snapshot(gates, profile)
    for each in objects:
        made.set(each)
    return made


def pod_info_of(pod: Pod, snapshot: Snapshot) -> PodInfo:
    """Return the PodInfo of a pod whose claims are in the snapshot."""
    names = dict.fromkeys(resolve_claim_names(pod).values())
    found = (snapshot.claim(pod.metadata.namespace, each) for each in names)
    return PodInfo(pod, tuple(each for each in found if each is not None), snapshot.options)
