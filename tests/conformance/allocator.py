"""Suite `allocator`: results of claims, infeasible, or the kind of error.

A row says what Kubernetes 1.36 did. Where a row of the same name stands in the file of differences (beside
the vector file, or given with `--diff`), the outcome of 1.37 in it is the right one.
"""

from __future__ import annotations

from typing import Any

from plimsoll.allocator import (
    Allocation,
    AllocationFault,
    AllocationState,
    Features,
    Inventory,
    SearchAborted,
    allocate_claims,
)
from plimsoll.api.codec import convert, to_tree
from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from tests.unit.allocator.holdings import hold_device, hold_share

_GATES = {
    "admin_access": ("DRAAdminAccess",),
    "prioritized_list": ("DRAPrioritizedList",),
    "consumable_capacity": ("DRAConsumableCapacity",),
    "partitionable_devices": ("DRAPartitionableDevices",),
    "device_taints": ("DRADeviceTaints",),
    "binding_conditions": ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
    "list_attributes": ("DRAListTypeAttributes",),
}


#: Files with the rows that Kubernetes 1.37 answers otherwise.
DIFFERENCES = "v137_diff_*.jsonl*"


def check(row: dict[str, Any]) -> str | None:
    wanted = row["expect"]
    got = outcome(row)
    if "error" in wanted:
        if got.get("errorKind") != wanted["errorKind"]:
            return f"expected {wanted['errorKind']}, got {got}"
        if bool(got.get("nodeScoped")) != bool(wanted.get("nodeScoped")):
            return f"node-scoped: expected {wanted.get('nodeScoped')}, got {got.get('nodeScoped')}"
        return None
    if got != wanted:
        return f"expected {wanted}, got {got}"
    return None


def outcome(row: dict[str, Any]) -> dict[str, Any]:
    """Return the result of our allocator for a row, in the shape of the vectors."""
    inventory, state, claims, node, classes = read_row(row)
    found = allocate_claims(inventory, state, claims, node, classes=classes, new_id=lambda: "SHARE")
    if isinstance(found, Allocation):
        return {"results": [to_tree(result) for result in found.results]}
    if isinstance(found, AllocationFault):
        scoped = {"nodeScoped": True} if found.is_node_scoped else {}
        return {"error": str(found), "errorKind": found.kind, **scoped}
    if isinstance(found, SearchAborted):
        return {"gaveUp": str(found)}
    return {"infeasible": True}


def read_row(
    row: dict[str, Any],
) -> tuple[Inventory, AllocationState, list[ResourceClaim], Node, dict[str, DeviceClass]]:
    """Read the allocator's input from a row."""
    switches = row["features"]
    features = Features(**{name: all(switches[gate] for gate in gates) for name, gates in _GATES.items()})
    classes = [convert(tree, DeviceClass) for tree in row["deviceClasses"]]
    state = AllocationState()
    for tree in row["allocatedDevices"]:
        hold_device(state, _device_id(tree))
    for tree in row["allocatedSharedDevices"]:
        hold_share(state, _device_id(tree), tree["shareID"])
    # The rows have what the shares of a device consume together, with or without the shares.
    for tree in row["consumedCapacity"]:
        amounts = {name: Quantity.parse(text) for name, text in tree["capacity"].items()}
        hold_share(state, _device_id(tree), "", amounts)
    return (
        Inventory([convert(tree, ResourceSlice) for tree in row["resourceSlices"]], features),
        state,
        [convert(tree, ResourceClaim) for tree in row["claimsToAllocate"]],
        convert(row["node"], Node),
        {device_class.metadata.name: device_class for device_class in classes},
    )


def _device_id(tree: dict[str, Any]) -> DeviceId:
    return DeviceId(tree["driver"], tree["pool"], tree["device"])
