"""Recovery of claims after both the checkpoint and the CDI files were lost. Pure.

Two sources are left: the environment of running containers, which pod authors can set, and the claims in the
cluster. `find_unverified` withholds what containers name until the cluster is asked; `recover_claim` then
adopts a claim that the cluster has allocated to this node and reserved for the container's pod, with the CPUs
of its containers, its device status, or (with a device for each CPU) its devices.

DIFF: the Go driver ignores such containers and assigns their CPUs to others
(test_claims_are_recovered_from_containers_and_the_cluster).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.common.json_tree import branch, items
from plimsoll.drivers.cpu.settings import DRIVER_NAME
from plimsoll.drivers.cpu.state.cdi import read_cpus
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, ClaimAllocation, CpuAssignment
from plimsoll.drivers.cpu.state.prepare import PrepareContext
from plimsoll.drivers.cpu.state.reconcile import ContainerClaims, adopt_cpus
from plimsoll.protocols.dra import ClaimRef

UNVERIFIED = "checkpoint and CDI file are lost; the cluster has not confirmed it yet"


def find_unverified(
    known: Mapping[str, ClaimAllocation], containers: Iterable[ContainerClaims], context: PrepareContext
) -> dict[str, ClaimAllocation]:
    """Return disputed allocations for the unknown claims of containers, with the CPUs they could have."""
    taken = union(allocation.cpus for allocation in known.values()) | context.layout.reserved
    found: dict[str, CpuSet] = {}
    namespaces: dict[str, str] = {}
    for container in containers:
        for uid, cpus in container.claims.items():
            if uid not in known:
                found[uid] = found.get(uid, EMPTY) | (cpus & context.topology.all) - taken
                namespaces.setdefault(uid, container.namespace)
    return {
        uid: ClaimAllocation(
            ClaimRef(namespaces[uid], "", uid),
            (CpuAssignment("", context.settings.node, "", cpus, source=AssignmentSource.ADOPTED),),
            adopted=True,
            disputed=UNVERIFIED,
        )
        for uid, cpus in found.items()
        if cpus
    }


def recover_claim(
    tree: Mapping[str, Any], containers: Iterable[ContainerClaims], context: PrepareContext
) -> ClaimAllocation | None:
    """Adopt a claim from what the cluster and its containers have; None if it has no CPUs here.

    `containers` are all containers that name the claim. If the sources contradict each other the claim is
    disputed, with the CPUs that any of them names. A claim without containers of which another claim has CPUs
    was unprepared: its status is older.
    """
    metadata = branch(tree, "metadata")
    ref = ClaimRef(*(str(metadata.get(key, "")) for key in ("namespace", "name", "uid")))
    results = _list_own_results(tree, context.settings.node)
    if not results:
        return None
    users = {user.get("uid") for user in items(branch(tree, "status"), "reservedFor")}
    sources: dict[str, CpuSet] = {}
    for container in containers:
        # The environment of other pods is not trusted.
        if container.namespace == ref.namespace and container.pod_uid in users:
            sources[f"container {container.where}"] = container.claims[ref.uid]
    has_containers = bool(sources)
    # A claim that no pod uses was unprepared before its CPUs were removed from its status.
    if users and (reported := _read_status(tree, results)) is not None:
        sources["the claim's status"] = reported
    if context.group is None and sources:
        domains = context.layout.domains
        names = [str(result.get("device", "")) for result in results]
        devices = [domains[name].cpus for name in names if name in domains]
        if len(devices) == len(results):
            sources["the claim's devices"] = union(devices)
    cpus = union(sources.values())
    if not cpus or (not has_containers and cpus & context.allocated):
        return None
    allocation = replace(adopt_cpus(ref, cpus, context), adopted=True)
    if len(set(sources.values())) > 1:
        text = ", ".join(f"{name} has CPUs {each}" for name, each in sorted(sources.items()))
        return replace(allocation, disputed=f"checkpoint and CDI file are lost, and {text}")
    return allocation


def is_allocated_here(tree: Mapping[str, Any], node: str) -> bool:
    """Report whether a claim has devices of this node that take CPUs."""
    return bool(_list_own_results(tree, node))


def _list_own_results(tree: Mapping[str, Any], node: str) -> list[dict[str, Any]]:
    results = items(branch(tree, "status", "allocation", "devices"), "results")
    return [
        result
        for result in results
        if result.get("driver") == DRIVER_NAME
        and result.get("pool") == node
        and not result.get("adminAccess")
    ]


def _read_status(tree: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> CpuSet | None:
    """Return the CPUs in the device status of a claim; None if it does not have all of its devices."""
    found: dict[tuple[object, object], CpuSet] = {}
    for device in items(branch(tree, "status"), "devices"):
        cpus = read_cpus(str(branch(device, "data").get("cpuset", "")))
        if device.get("driver") == DRIVER_NAME and isinstance(cpus, CpuSet) and cpus:
            found[device.get("device"), device.get("shareID")] = cpus
    wanted = {(result.get("device"), result.get("shareID")) for result in results}
    return union(found[key] for key in wanted) if wanted <= found.keys() else None
