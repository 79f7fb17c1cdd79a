"""Small clusters to audit: trees as kubectl writes them, valid unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plimsoll.tools.audit import AuditReport, audit, choose_checks
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.findings import Finding
from tests.dumps import make_cluster_state

Tree = dict[str, Any]
V1 = "resource.k8s.io/v1"
MADE = "2026-11-15T00:00:00Z"
#: An hour later.
NOW = 1_794_704_400.0
DRIVER = "gpu.example.com"


def api_object(version: str, kind: str, name: str, namespace: str = "", **body: Any) -> Tree:
    metadata: Tree = {"name": name, "uid": f"{kind.lower()}-{name}", "creationTimestamp": MADE}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def node(name: str = "n1", cpu: str = "8", capacity: str = "", **more: str) -> Tree:
    line = {"cpu": cpu, "memory": "32Gi", "pods": "110", **more}
    status = {"allocatable": line, "capacity": {**line, "cpu": capacity or cpu}}
    return api_object("v1", "Node", name, status=status)


def device_class(name: str = "any", driver: str = DRIVER, **annotations: str) -> Tree:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}] if driver else []
    tree = api_object(V1, "DeviceClass", name, spec={"selectors": selectors} if selectors else {})
    if annotations:
        tree["metadata"]["annotations"] = annotations
    return tree


def device(name: str = "d0", **body: Any) -> Tree:
    return {"name": name, **body}


def cpus(amount: int = 8, driver: str = "dra.cpu", form: str = "1.36", **body: Any) -> Tree:
    """Return a shared device with this number of CPUs."""
    key = f"{driver}/cpu"
    tree = device("cpus", allowMultipleAllocations=True, capacity={key: {"value": str(amount)}}, **body)
    if form == "1.36":
        tree["nodeAllocatableResourceMappings"] = {"cpu": {"capacityKey": key, "allocationMultiplier": "1"}}
    elif form == "1.37":
        mapping = {"capacityKey": key, "capacityMultiplier": "1"}
        tree["nodeAllocatableResources"] = {"cpu": {"mapping": mapping}}
    return tree


def slice_of(
    *devices: Tree,
    driver: str = DRIVER,
    pool: str = "n1",
    on: str = "n1",
    generation: int = 1,
    count: int = 1,
    name: str = "",
    counters: list[Tree] | None = None,
) -> Tree:
    spec: Tree = {
        "driver": driver,
        "nodeName": on,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
    }
    if counters is not None:
        spec["sharedCounters"] = counters
    else:
        spec["devices"] = list(devices)
    return api_object(V1, "ResourceSlice", name or f"{driver}-{pool}-{generation}", spec=spec)


def result(device: str = "d0", driver: str = DRIVER, pool: str = "n1", **body: Any) -> Tree:
    return {"request": "r", "driver": driver, "pool": pool, "device": device, **body}


def share(amount: str, id: str = "s", driver: str = "dra.cpu", device: str = "cpus", **body: Any) -> Tree:
    return result(device, driver, shareID=id, consumedCapacity={f"{driver}/cpu": amount}, **body)


def claim(
    name: str = "c",
    *results: Tree,
    pods: Iterable[str] = ("p",),
    on: str = "n1",
    owner: str = "",
    klass: str = "any",
    status: Tree | None = None,
) -> Tree:
    """Return an allocated claim that is reserved for these pods; without results it is not allocated.

    It requests what the results have: their number, and the capacity that the first share consumes.
    """
    exactly: Tree = {"allocationMode": "ExactCount", "count": max(1, len(results)), "deviceClassName": klass}
    consumed = next((each["consumedCapacity"] for each in results if "consumedCapacity" in each), None)
    if consumed is not None:
        exactly["capacity"] = {"requests": dict(consumed)}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    tree = api_object(V1, "ResourceClaim", name, "work", spec=spec, status={})
    if owner:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"pod-{owner}"}
        tree["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    if results:
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}]
        tree["status"] = {
            "allocation": {
                "devices": {"results": list(results)},
                "nodeSelector": {"nodeSelectorTerms": terms},
                "allocationTimestamp": MADE,
            },
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"pod-{pod}"} for pod in pods],
        }
    tree["status"] |= status or {}
    return tree


def pod(
    name: str = "p",
    cpu: str = "1",
    *,
    claims: Iterable[str] = (),
    on: str = "n1",
    phase: str = "Running",
    charges: Tree | None = None,
    template: str = "",
    **spec: Any,
) -> Tree:
    """Return a pod; `charges` are claim -> resource -> amount, as 1.36 records them."""
    resources: Tree = {"requests": {"cpu": cpu}} if cpu else {}
    references: list[Tree] = [{"name": each, "resourceClaimName": each} for each in claims]
    status: Tree = {"phase": phase}
    if template:
        references.append({"name": "made", "resourceClaimTemplateName": template})
    if references:
        resources["claims"] = [{"name": each["name"]} for each in references]
        spec["resourceClaims"] = references
    if charges:
        status["nodeAllocatableResourceClaimStatuses"] = [
            {"resourceClaimName": each, "containers": ["main"], "resources": amounts}
            for each, amounts in charges.items()
        ]
    whole = {"containers": [{"name": "main", "image": "pause", "resources": resources}], **spec}
    if on:
        whole["nodeName"] = on
    return api_object("v1", "Pod", name, "work", spec=whole, status=status)


def cluster_state(trees: Iterable[Tree], live: bool = True) -> ClusterState:
    """Return the cluster state of these objects; a live cluster has no gaps."""
    made = make_cluster_state(trees)
    if live:
        made.objects.gaps.clear()
    return made


def report_on(*trees: Tree, live: bool = True, now: float = NOW) -> AuditReport:
    return audit(cluster_state(trees, live), now=now, live=live)


def found(check: str, *trees: Tree, live: bool = True, now: float = NOW) -> list[Finding]:
    """Return the findings of one check."""
    report = audit(cluster_state(trees, live), checks=choose_checks([check]), now=now, live=live)
    assert not report.skipped
    return list(report.findings)


def only(check: str, *trees: Tree, live: bool = True, now: float = NOW) -> Finding:
    """Return the only finding of a check."""
    (finding,) = found(check, *trees, live=live, now=now)
    return finding


def well() -> list[Tree]:
    """Return a cluster without findings: CPUs and a GPU by claims, charged and reserved."""
    return [
        node(),
        device_class("cpu", "dra.cpu"),
        device_class(),
        slice_of(cpus(8, attributes=numa(0)), driver="dra.cpu"),
        slice_of(device("d0", attributes=numa(0)), device("d1", attributes=numa(1))),
        claim("c", share("4"), klass="cpu"),
        claim("g", result("d0")),
        pod("p", claims=("c", "g"), charges={"c": {"cpu": "4"}}),
        pod("plain", "2"),
    ]


def numa(number: int) -> Tree:
    return {"resource.kubernetes.io/numaNode": {"int": number}}
