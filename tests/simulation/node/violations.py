"""Invariants of the hardware of nodes, from API objects, checkpoint files and the hardware alone.

`HardwareChecker` looks at a node after every change of its devices and containers, and at everything once
nothing changes any more. Nothing here imports the product.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.node.hardware import (
    Hardware,
    Hold,
    capacity_of,
    exceeded_counters,
    used_capacity,
)

Tree = dict[str, Any]
#: Claim UID, driver, pool, device and share.
Allocation = tuple[str, str, str, str, str]


class NodeState(NamedTuple):
    """View of a node that the checker has."""

    hardware: Hardware
    directory: Path
    containers: Mapping[str, Tree]  #: pods whose containers run, by UID
    #: UIDs of the claims that the kubelet has forgotten with its checkpoint. Those that no pod uses any more
    #: when it starts again stay prepared: only the driver knows them.
    forgotten: Mapping[str, None] = {}


@dataclass
class HardwareChecker:
    """Checker of all nodes: it follows the writes of the API server."""

    report: Callable[[str], None]
    pods: dict[str, Tree] = field(default_factory=dict)
    claims: dict[tuple[str, str], Tree] = field(default_factory=dict)
    allocated: dict[Allocation, None] = field(default_factory=dict)
    #: Violations that last, so that each is reported once.
    _known: dict[str, dict[str, None]] = field(default_factory=dict)

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        """Apply a write."""
        tree = new or old
        assert tree is not None
        meta = tree["metadata"]
        if plural == "pods":
            self.pods.pop(meta["uid"], None)
            if new is not None:
                self.pods[meta["uid"]] = new
        elif plural == "resourceclaims":
            self.claims.pop((meta["namespace"], meta["name"]), None)
            if new is not None:
                self.claims[meta["namespace"], meta["name"]] = new
                for result in results_of(new):
                    share = result.get("shareID") or ""
                    self.allocated[meta["uid"], result["driver"], result["pool"], result["device"], share] = (
                        None
                    )

    def check(self, node: NodeState) -> None:
        """Check a node after a change; what is wrong for longer is reported once."""
        found = dict.fromkeys(find_hardware_violations(node, self.allocated, self.claims))
        before = self._known.get(node.hardware.node, {})
        self._known[node.hardware.node] = found
        for each in found:
            if each not in before:
                self.report(f"node {node.hardware.node}: {each}")

    def check_at_rest(self, node: NodeState) -> None:
        """Check a node after faults have stopped and time has passed."""
        for each in find_leaks(node, self.pods, self.claims):
            self.report(f"node {node.hardware.node}: {each}")


def find_hardware_violations(
    node: NodeState, allocated: Mapping[Allocation, None], claims: Mapping[tuple[str, str], Tree]
) -> Iterator[str]:
    """Find what must not be at any time."""
    hardware = node.hardware
    by_device: dict[tuple[str, str, str], list[tuple[str, Hold]]] = defaultdict(list)
    for uid, hold in hardware.all_holds():
        if (uid, hold.driver, hold.pool, hold.device, hold.share) not in allocated:
            yield f"{hold.pool}/{hold.device} is set up for claim {uid}, which was never allocated it"
        if not hold.admin:
            by_device[hold.driver, hold.pool, hold.device].append((uid, hold))
    prepared = hardware.claims()
    running = node.containers.values()
    used = {
        (claim["metadata"]["uid"], result["driver"], result["pool"], result["device"])
        for pod in running
        for claim in _claims_of(pod, claims)
        for result in results_of(claim)
    }
    for (driver, pool, device), users in by_device.items():
        tree = hardware.inventories[driver].known[device]
        counted = [
            uid
            for uid, _ in users
            if uid not in node.forgotten or (uid, driver, pool, device) in used  # see NodeState
        ]
        uids = list(dict.fromkeys(counted))
        if not tree.get("allowMultipleAllocations"):
            if len(uids) > 1:
                yield f"{pool}/{device} is set up for {len(uids)} claims: {', '.join(uids)}"
            continue
        amounts = used_capacity([hold for _, hold in users], pool, device)
        for name, limit in capacity_of(tree).items():
            if amounts[name] > limit:
                yield f"{pool}/{device}: {amounts[name] / 1000:g} of {limit / 1000:g} {name} is set up"
    for driver, inventory in hardware.inventories.items():
        holds = [hold for _, hold in hardware.all_holds() if hold.driver == driver]
        for problem in exceeded_counters(inventory, holds):
            yield f"{driver}: {problem}"
    for pod in node.containers.values():
        for claim in _claims_of(pod, claims):
            if not is_set_up(claim, prepared, hardware):
                yield f"pod {_name(pod)} runs, and claim {_name(claim)} is not set up"


def find_leaks(
    node: NodeState, pods: Mapping[str, Tree], claims: Mapping[tuple[str, str], Tree]
) -> Iterator[str]:
    """Find what must not be when nothing changes any more."""
    hardware = node.hardware
    here = {uid: pod for uid, pod in pods.items() if pod["spec"].get("nodeName") == hardware.node}
    prepared = hardware.claims()
    used: dict[str, list[str]] = {}
    for uid, pod in here.items():
        status, name = pod["status"], _name(pod)
        if status.get("phase") in ("Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp"):
            continue
        if uid not in node.containers:
            yield f"pod {name} does not run, its phase is {status.get('phase')}"
            continue
        if status.get("phase") != "Running":
            yield f"pod {name} runs, its phase is {status.get('phase')}"
        for claim in _claims_of(pod, claims):
            used.setdefault(claim["metadata"]["uid"], []).append(uid)
    for uid in node.containers:
        if uid not in here:
            yield f"containers of pod {uid} run, and the pod does not exist"
    for uid in prepared:
        if uid not in used and uid not in node.forgotten:
            yield f"devices are set up for claim {uid}, which no pod uses"
    checkpoint = read_checkpoint(node.directory / "claims.json")
    for entry in (checkpoint or {}).get("claims", ()):
        uid = entry["uid"]
        if entry.get("pending") or not entry["ready"]:
            yield f"the kubelet's checkpoint has claim {uid} half prepared"
        if sorted(entry["pods"]) != sorted(used.get(uid, ())):
            yield f"the kubelet's checkpoint has claim {uid} for pods {entry['pods']}"
        recorded = [(driver, d["pool"], d["device"]) for driver, ds in entry["drivers"].items() for d in ds]
        devices = [(each.driver, each.pool, each.device) for each in prepared.get(uid, ())]
        if uid in node.forgotten:  # what was set up before the checkpoint was lost may be there still
            devices = [each for each in devices if each in recorded]
        if sorted(recorded) != sorted(devices):
            yield f"the kubelet's checkpoint and the hardware differ in claim {uid}"
    known = {entry["uid"] for entry in (checkpoint or {}).get("claims", ())}
    expected = (uid for uid in prepared if uid in used or uid not in node.forgotten)
    yield from (f"the kubelet's checkpoint lacks claim {uid}" for uid in expected if uid not in known)
    for driver in hardware.inventories:
        yield from _compare_driver(driver, node, used)


def find_forgotten(
    node: NodeState, pods: Mapping[str, Tree], claims: Mapping[tuple[str, str], Tree]
) -> Iterator[str]:
    """Find the forgotten claims that no pod uses any more."""
    here = [pod for pod in pods.values() if pod["spec"].get("nodeName") == node.hardware.node]
    used = {claim["metadata"]["uid"] for pod in here for claim in _claims_of(pod, claims)}
    yield from (uid for uid in node.forgotten if uid not in used)


def _compare_driver(driver: str, node: NodeState, used: Mapping[str, object]) -> Iterator[str]:
    """Compare the checkpoint of a driver with the hardware."""
    hardware = node.hardware
    records = read_checkpoint(node.directory / "plugins" / driver / "handed.json") or {}
    held = {uid: holds for (name, uid), holds in hardware.holds.items() if name == driver and holds}
    for uid in dict.fromkeys((*records, *held)):
        if uid in node.forgotten and uid not in used:
            continue
        recorded = [(each["pool"], each["device"]) for each in records.get(uid, {}).get("devices", ())]
        if sorted(recorded) != sorted((each.pool, each.device) for each in held.get(uid, ())):
            yield f"the checkpoint of driver {driver} and the hardware differ in claim {uid}"


def read_checkpoint(path: Path) -> Any:
    """Return the body of a checkpoint file; None if there is no file."""
    return json.loads(path.read_text())["body"] if path.exists() else None


def is_set_up(claim: Tree, prepared: Mapping[str, Sequence[Hold]], hardware: Hardware) -> bool:
    """Return whether all devices of a claim on this node are set up."""
    holds = [(each.driver, each.pool, each.device) for each in prepared.get(claim["metadata"]["uid"], ())]
    return all(
        (result["driver"], result["pool"], result["device"]) in holds
        for result in results_of(claim)
        if result["driver"] in hardware.inventories
    )


def results_of(claim: Tree) -> list[Tree]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _claims_of(pod: Tree, claims: Mapping[tuple[str, str], Tree]) -> Iterator[Tree]:
    """Yield the claims of a pod that exist and are reserved for it."""
    names = [each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims") or ()]
    status = pod["status"]
    names += [each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()]
    names.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    for name in dict.fromkeys(name for name in names if name):
        claim = claims.get((pod["metadata"]["namespace"], name))
        users = ((claim or {}).get("status") or {}).get("reservedFor") or ()
        if claim is not None and any(each["uid"] == pod["metadata"]["uid"] for each in users):
            yield claim


def _name(tree: Tree) -> str:
    return f"{tree['metadata']['namespace']}/{tree['metadata']['name']}"
