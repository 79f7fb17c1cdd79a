"""Invariants that hold after every write, checked from the API objects alone.

`Checker` follows the writes of the server and looks only at what a write concerns. At the end of every case
the naive checker of the chaos tests looks at everything again. Nothing here imports the product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from typing import Any

from tests.chaos.scheduler_faults.objects import (
    allocation_results,
    claim_names,
    consumers,
    is_available_on,
    is_finished,
    name_of,
    node_of,
    recorded_charges,
)
from tests.chaos.scheduler_faults.quantities import parse_quantity

Tree = dict[str, Any]
Key = tuple[str, str]
DeviceName = tuple[str, str, str]
Amounts = dict[str, int]
PLACEHOLDERS = "plimsoll-placeholders"
#: Longest time for which a scheduler does not know what is published (seconds).
STALE_SECONDS = 30.0


@cache
def milli(text: str) -> int:
    """Parse a quantity, in thousandths."""
    return ceil(parse_quantity(text) * 1000)


@dataclass
class Checker:
    """State of the cluster as of the last write, and every violation so far."""

    #: Whether pods record the charges of their claims; on stock servers placeholders stand for them.
    records_charges: bool = True
    report: Callable[[str], None] = lambda text: None
    now: Callable[[], float] = lambda: 0.0
    pods: dict[str, Tree] = field(default_factory=dict)
    claims: dict[Key, Tree] = field(default_factory=dict)
    nodes: dict[str, Tree] = field(default_factory=dict)
    slices: dict[str, Tree] = field(default_factory=dict)
    #: Names of PodGroups by their UIDs.
    groups: dict[str, str] = field(default_factory=dict)
    #: Every device that was ever published, with its slice.
    devices: dict[DeviceName, tuple[Tree, Tree]] = field(default_factory=dict)
    #: Devices that are not published, or were not until a time: nothing says what they charge.
    missing_until: dict[DeviceName, float] = field(default_factory=dict)
    #: Since when a device or node (by name) must not be chosen, by taints and cordons.
    closed_since: dict[DeviceName | str, float] = field(default_factory=dict)
    #: UIDs of pods that were bound with such devices.
    uncharged: dict[str, None] = field(default_factory=dict)
    holders: dict[DeviceName, dict[str, Tree]] = field(default_factory=lambda: defaultdict(dict))
    users: dict[Key, dict[str, Tree]] = field(default_factory=lambda: defaultdict(dict))
    by_node: dict[str, dict[str, Tree]] = field(default_factory=lambda: defaultdict(dict))

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        """Apply a write and check what it concerns."""
        match plural:
            case "pods":
                self._on_pod(old, new)
            case "resourceclaims":
                self._on_claim(old, new)
            case "nodes":
                tree = new or old
                assert tree is not None
                name = tree["metadata"]["name"]
                self.nodes.pop(name, None)
                if new is not None:
                    self.nodes[name] = new
                    self._note_closed(
                        name, bool(new["spec"].get("taints") or new["spec"].get("unschedulable"))
                    )
            case "resourceslices":
                self._on_slice(old, new)

    # -- objects

    def _on_slice(self, old: Tree | None, new: Tree | None) -> None:
        if old is not None:
            self.slices.pop(old["metadata"]["name"], None)
        if new is not None:
            self.slices[new["metadata"]["name"]] = new
            spec = new["spec"]
            for device in spec.get("devices") or ():
                name = (spec["driver"], spec["pool"]["name"], device["name"])
                self.devices[name] = (device, new)
                self._note_closed(name, bool(device.get("taints")))
        self._note_missing((new or old or {})["spec"])

    def _note_closed(self, name: DeviceName | str, is_closed: bool) -> None:
        if is_closed:
            self.closed_since.setdefault(name, self.now())
        else:
            self.closed_since.pop(name, None)

    def _is_closed(self, name: DeviceName | str) -> bool:
        """Return whether every scheduler knows by now that a device or node must not be chosen."""
        return self.now() - self.closed_since.get(name, self.now()) > STALE_SECONDS

    def _note_missing(self, changed: Tree) -> None:
        """Note which devices of a pool no scheduler can see, because the pool is incomplete or lacks them."""
        driver, pool = changed["driver"], changed["pool"]["name"]
        specs = [each["spec"] for each in self.slices.values()]
        specs = [each for each in specs if (each["driver"], each["pool"]["name"]) == (driver, pool)]
        newest = max((each["pool"]["generation"] for each in specs), default=0)
        current = [each for each in specs if each["pool"]["generation"] == newest]
        is_complete = current and len(current) == current[0]["pool"]["resourceSliceCount"]
        there = {device["name"] for each in current if is_complete for device in each.get("devices") or ()}
        for name in self.devices:
            if name[:2] == (driver, pool):
                if name[2] not in there:
                    self.missing_until[name] = float("inf")
                elif self.missing_until.get(name) == float("inf"):
                    self.missing_until[name] = self.now() + STALE_SECONDS

    def _is_missing(self, key: Key) -> bool:
        """Return whether a scheduler may not have known a device of a claim."""
        results = allocation_results(self.claims[key]) if key in self.claims else ()
        return any(self.missing_until.get(_device(each), 0.0) > self.now() for each in results)

    def _on_claim(self, old: Tree | None, new: Tree | None) -> None:
        tree = new or old
        assert tree is not None
        key = (tree["metadata"]["namespace"], tree["metadata"]["name"])
        if old is not None:
            for number, result in enumerate(allocation_results(old)):
                self.holders[_device(result)].pop(f"{old['metadata']['uid']}/{number}", None)
            self.claims.pop(key, None)
        if new is not None:
            self.claims[key] = new
            results = allocation_results(new)
            for number, result in enumerate(results):
                if not result.get("adminAccess"):
                    self.holders[_device(result)][f"{new['metadata']['uid']}/{number}"] = result
            if old is None or allocation_results(old) != results:
                for result in results:
                    self._check_device(_device(result), name_of(new))
                for node in {node_of(pod) for pod in self.users[key].values()}:
                    self._check_node(node)
        for pod in self.users[key].values():
            self._check_claim_of(pod, key)

    def _on_pod(self, old: Tree | None, new: Tree | None) -> None:
        for tree in (old, new):
            if tree is None:
                continue
            uid, node = tree["metadata"]["uid"], node_of(tree)
            self.pods.pop(uid, None)
            self.by_node[node].pop(uid, None)
            for key in _claims_of(tree):
                self.users[key].pop(uid, None)
        if new is None:
            return
        uid, node = new["metadata"]["uid"], node_of(new)
        self.pods[uid] = new
        # Until a scheduler knows that the server stores charges, a placeholder repeats them.
        if not node or is_finished(new) or new["metadata"]["namespace"] == PLACEHOLDERS:
            return
        self.by_node[node][uid] = new
        keys = _claims_of(new)
        for key in keys:
            self.users[key][uid] = new
        if old is None or node_of(old) != node:
            if self._is_closed(node):
                self.report(f"pod {name_of(new)} is bound to {node}, which has been closed for long")
            noted = recorded_charges(new)
            if any(key[1] not in noted and self._is_missing(key) for key in keys):
                self.uncharged[uid] = None
            self._check_node(node)
            if None in claim_names(new):
                self.report(f"pod {name_of(new)} is bound without its generated claim")
            for key in keys:
                self._check_claim_of(new, key)
                if self.records_charges and uid not in self.uncharged and (charges := self.charges_of(key)):
                    found = noted.get(key[1], {})
                    if {name: ceil(amount * 1000) for name, amount in found.items()} != charges:
                        self.report(f"pod {name_of(new)}: the charges of claim {key[1]} are not recorded")

    # -- checks

    def _check_device(self, device: DeviceName, claim: str) -> None:
        name = "/".join(device)
        if device not in self.devices:
            self.report(f"claim {claim}: device {name} was never published")
            return
        if self._is_closed(device):
            self.report(f"claim {claim}: device {name} has been tainted for long")
        tree, _ = self.devices[device]
        holders = list(self.holders[device].values())
        if not tree.get("allowMultipleAllocations"):
            if len(holders) > 1:
                self.report(f"device {name} is allocated {len(holders)} times, last to claim {claim}")
        else:
            shares = [each.get("shareID") for each in holders]
            if len(set(shares)) < len(shares):
                self.report(f"device {name}: two allocations are one share, last to claim {claim}")
            for capacity, entry in (tree.get("capacity") or {}).items():
                used = sum(milli((each.get("consumedCapacity") or {}).get(capacity, "0")) for each in holders)
                if used > milli(entry["value"]):
                    self.report(f"device {name}: {used / 1000:g} of {entry['value']} {capacity} is allocated")
        for part in tree.get("consumesCounters") or ():
            self._check_counters(device, part["counterSet"])

    def _check_counters(self, device: DeviceName, counters: str) -> None:
        driver, pool, _ = device
        used: Amounts = defaultdict(int)
        for other, holders in self.holders.items():
            if holders and other[:2] == (driver, pool) and other in self.devices:
                for part in self.devices[other][0].get("consumesCounters") or ():
                    if part["counterSet"] == counters:
                        for name, amount in part["counters"].items():
                            used[name] += milli(amount["value"])
        for each in self.slices.values():
            spec = each["spec"]
            if (spec["driver"], spec["pool"]["name"]) == (driver, pool):
                for entry in spec.get("sharedCounters") or ():
                    for name, amount in entry["counters"].items() if entry["name"] == counters else ():
                        if used[name] > milli(amount["value"]):
                            self.report(
                                f"counter {name} of {driver}/{pool} {counters}: {used[name] / 1000:g}"
                            )

    def _check_claim_of(self, pod: Tree, key: Key) -> None:
        """Check a claim of a bound pod."""
        what = f"bound pod {name_of(pod)}: claim {key[1]}"
        claim = self.claims.get(key)
        if claim is None:
            self.report(f"{what} does not exist")
            return
        if (claim.get("status") or {}).get("allocation") is None:
            self.report(f"{what} is not allocated")
        if not self.is_reserved(claim, pod):
            self.report(f"{what} is not reserved for it")
        node = self.nodes.get(node_of(pod))
        for result in allocation_results(claim):
            known = self.devices.get(_device(result))
            if node is not None and known is not None and not is_available_on(*known, node):
                self.report(f"{what}: device {'/'.join(_device(result))} is not on {node_of(pod)}")

    def is_reserved(self, claim: Tree, pod: Tree) -> bool:
        """Return whether a claim is reserved for a pod or its PodGroup."""
        group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
        return any(
            each["uid"] == pod["metadata"]["uid"] or (group and self.groups.get(each["uid"]) == group)
            for each in consumers(claim)
        )

    def charges_of(self, key: Key) -> Amounts:
        """Return what the allocation of a claim charges its node."""
        total: Amounts = {}
        claim = self.claims.get(key)
        for result in allocation_results(claim) if claim is not None else ():
            device = self.devices.get(_device(result), ({}, {}))[0]
            for resource, rule in (device.get("nodeAllocatableResourceMappings") or {}).items():
                factor = parse_quantity(rule.get("allocationMultiplier", "1"))
                if capacity := rule.get("capacityKey"):
                    consumed = (result.get("consumedCapacity") or {}).get(capacity)
                    factor *= parse_quantity(consumed or device["capacity"][capacity]["value"])
                total[resource] = total.get(resource, 0) + ceil(factor * 1000)
        return total

    def taken(self, node: str) -> Amounts:
        """Return what the pods of a node and their claims take; a claim counts once."""
        total: Amounts = defaultdict(int)
        charged: dict[Key, None] = {}
        for pod in self.by_node[node].values():
            for resource, amount in requests_of(pod).items():
                total[resource] += amount
            if pod["metadata"]["uid"] not in self.uncharged:
                charged |= dict.fromkeys(_claims_of(pod))
        for key in charged:
            for resource, amount in self.charges_of(key).items():
                total[resource] += amount
        return total

    def _check_node(self, node: str) -> None:
        tree = self.nodes.get(node)
        if tree is None or not self.records_charges:
            return
        allocatable = tree["status"]["allocatable"]
        for resource, amount in self.taken(node).items():
            if amount > milli(allocatable.get(resource, "0")):
                what = f"{amount / 1000:g} of {allocatable.get(resource, '0')} {resource}"
                self.report(f"node {node} is past its line: {what}")


def _device(result: Tree) -> DeviceName:
    return result["driver"], result["pool"], result["device"]


def _claims_of(pod: Tree) -> list[Key]:
    namespace = pod["metadata"]["namespace"]
    return [(namespace, name) for name in claim_names(pod) if name]


def requests_of(pod: Tree) -> Amounts:
    """Return the requests of a pod of one container, without resources that devices of its claim serve."""
    (container,) = pod["spec"]["containers"]
    found = {name: milli(text) for name, text in (container["resources"].get("requests") or {}).items()}
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    for mapping in extended.get("requestMappings") or ():
        found.pop(mapping["resourceName"], None)
    return found | {"pods": 1000}


def total_of(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = defaultdict(int)
    for part in parts:
        for resource, amount in part.items():
            total[resource] += amount
    return total
