"""Cluster objects as plain JSON trees, and naive reads of them for the invariants.

Nothing here imports the product: a fault in its quantities, ledger or claim handling must not hide itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from tests.chaos.scheduler_faults.quantities import Amounts, add, largest, read_amounts

Tree: TypeAlias = dict[str, Any]

FINISHED = ("Succeeded", "Failed")
#: Where a DeviceClass says what its devices charge on clusters that drop the field of the device.
CLASS_ANNOTATION = "plimsoll.dev/node-allocatable"
#: Where a pod's charges are on such clusters.
POD_ANNOTATION = "plimsoll.dev/claim-charges"


class DeviceKey(NamedTuple):
    """Driver, pool and name of a device."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


@dataclass
class ClusterObjects:
    """Objects of a cluster, as the API lists them."""

    nodes: list[Tree] = field(default_factory=list)
    pods: list[Tree] = field(default_factory=list)
    claims: list[Tree] = field(default_factory=list)
    slices: list[Tree] = field(default_factory=list)
    classes: list[Tree] = field(default_factory=list)


def key_of(tree: Tree) -> tuple[str, str]:
    meta = tree["metadata"]
    return meta.get("namespace", ""), meta["name"]


def name_of(tree: Tree) -> str:
    return "/".join(filter(None, key_of(tree)))


# -- pods


def is_finished(pod: Tree) -> bool:
    return (pod.get("status") or {}).get("phase") in FINISHED


def node_of(pod: Tree) -> str:
    return str(pod["spec"].get("nodeName") or "")


def pod_requests(pod: Tree) -> Amounts:
    """Return the requests of a pod: the sum of containers or largest init container, plus overhead."""
    spec = pod["spec"]
    running: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        wanted = _requests(container)
        peak = largest(peak, add(running, wanted))
        if container.get("restartPolicy") == "Always":
            running = add(running, wanted)
    for container in spec.get("containers") or ():
        running = add(running, _requests(container))
    total = largest(running, peak) | _requests(spec)  # requests of the pod itself replace the sum
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    for mapping in extended.get("requestMappings") or ():
        total.pop(mapping["resourceName"], None)  # served by devices of its claim
    return add(total, read_amounts(spec.get("overhead"))) | {"pods": Fraction(1)}


def _requests(tree: Tree) -> Amounts:
    return read_amounts((tree.get("resources") or {}).get("requests"))


def claim_names(pod: Tree) -> list[str | None]:
    """Return the names of a pod's claims; None for one that was not generated yet."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    generated = {each["name"]: each.get("resourceClaimName") for each in statuses}
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName") or generated.get(entry["name"])
        # A status without a name says that no claim is needed for the entry.
        if name or entry["name"] not in generated:
            found.append(name)
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return [*found, extended["resourceClaimName"]] if extended else found


def recorded_charges(pod: Tree) -> dict[str, Amounts]:
    """Return the charges by claim in a pod's status or annotation."""
    entries = (pod.get("status") or {}).get("nodeAllocatableResourceClaimStatuses")
    if not entries:
        entries = json.loads((pod["metadata"].get("annotations") or {}).get(POD_ANNOTATION, "[]"))
    return {each["resourceClaimName"]: read_amounts(each.get("resources")) for each in entries}


# -- claims and devices


def allocation_results(claim: Tree) -> list[Tree]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def is_allocated(claim: Tree) -> bool:
    return (claim.get("status") or {}).get("allocation") is not None


def consumers(claim: Tree) -> list[Tree]:
    return list((claim.get("status") or {}).get("reservedFor") or ())


def device_key(result: Tree) -> DeviceKey:
    return DeviceKey(result["driver"], result["pool"], result["device"])


def current_slices(slices: Iterable[Tree]) -> Iterator[Tree]:
    """Yield the slices of the newest generation of each pool."""
    newest: dict[tuple[str, str], int] = {}
    slices = list(slices)
    for each in slices:
        pool = each["spec"]["pool"]
        key = each["spec"]["driver"], pool["name"]
        newest[key] = max(newest.get(key, 0), pool["generation"])
    for each in slices:
        pool = each["spec"]["pool"]
        if pool["generation"] == newest[each["spec"]["driver"], pool["name"]]:
            yield each


def published_devices(slices: Iterable[Tree]) -> dict[DeviceKey, tuple[Tree, Tree]]:
    """Return the published devices, each with its slice."""
    return {
        DeviceKey(each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"]): (device, each)
        for each in current_slices(slices)
        for device in each["spec"].get("devices") or ()
    }


def is_available_on(device: Tree, slice_tree: Tree, node: Tree) -> bool:
    """Return whether a node can use a device."""
    where = device if slice_tree["spec"].get("perDeviceNodeSelection") else slice_tree["spec"]
    if where.get("allNodes"):
        return True
    if where.get("nodeName"):
        return bool(where["nodeName"] == node["metadata"]["name"])
    terms = (where.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return any(_matches(term, node) for term in terms)


def _matches(term: Tree, node: Tree) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    return all(
        _meets(expression, values)
        for values, expressions in ((labels, "matchExpressions"), (fields, "matchFields"))
        for expression in term.get(expressions) or ()
    )


def _meets(expression: Tree, values: Mapping[str, str]) -> bool:
    value = values.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    raise ValueError(f"operator {expression['operator']} is not supported by the checker")
