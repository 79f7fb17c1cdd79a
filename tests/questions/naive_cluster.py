"""`NaiveCluster`: a cluster dump read with arithmetic and exhaustive search, for the answers of the quiz.

Nothing here comes from the product. Only what the dumps of the quiz contain is supported: node-allocatable
mappings in slices, shared counters, consumable capacity, taints of nodes and devices. Selectors of device
classes are translated by hand (`CLASSES` of the quiz).
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
DeviceKey = tuple[str, str, str]
Counters = dict[tuple[str, str], Fraction]
_FACTORS = {
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
    "m": Fraction(1, 1000),
    "": Fraction(1),
}


def amount(text: object) -> Fraction:
    """Read a quantity."""
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text))
    assert found is not None, text
    return Fraction(found[1]) * _FACTORS[found[2]]


@dataclass
class NaiveDevice:
    """One device of the newest generation of its pool."""

    key: DeviceKey
    node: str  #: "" for a device of several nodes
    attributes: dict[str, Any]
    capacity: dict[str, Fraction]
    shareable: bool
    draw: Counters  #: counters that it consumes, by set and name
    mappings: Mapping[str, Tree]
    taints: list[Tree]
    holders: set[tuple[str, str]] = field(default_factory=set)  #: claims, by namespace and name
    consumed: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))

    def charges(self, consumed: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """Return what an allocation of the device takes from its node."""
        found = {}
        for resource, mapping in self.mappings.items():
            factor = amount(mapping.get("allocationMultiplier", 1))
            name = mapping.get("capacityKey")
            found[resource] = factor * (
                consumed.get(name, self.capacity.get(name, Fraction())) if name else 1
            )
        return found


Selector = Callable[[NaiveDevice], bool]


class NaiveCluster:
    """Objects of a dump, by kind."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path) as file:
            items = json.load(file)["items"]
        self.by_kind: dict[str, list[Tree]] = defaultdict(list)
        for item in items:
            self.by_kind[item["kind"]].append(item)

    # -- nodes and pods

    @cached_property
    def nodes(self) -> dict[str, Tree]:
        return {each["metadata"]["name"]: each for each in self.by_kind["Node"]}

    @cached_property
    def bound(self) -> list[Tree]:
        return [each for each in self.by_kind["Pod"] if each["spec"].get("nodeName")]

    @cached_property
    def pending(self) -> list[Tree]:
        return [each for each in self.by_kind["Pod"] if not each["spec"].get("nodeName")]

    def pods_on(self, node: str) -> list[Tree]:
        return [each for each in self.bound if each["spec"]["nodeName"] == node]

    def allocatable(self, node: str, resource: str) -> Fraction:
        return amount(self.nodes[node]["status"]["allocatable"].get(resource, 0))

    def requests(self, pod: Tree, resource: str) -> Fraction:
        """Return the request of a pod; no dump has init containers or overhead with amounts."""
        level = pod["spec"].get("resources", {}).get("requests", {})
        if resource in level:
            return amount(level[resource])
        assert not pod["spec"].get("overhead")
        containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
        return sum(
            (amount(each.get("resources", {}).get("requests", {}).get(resource, 0)) for each in containers),
            Fraction(),
        )

    def requested(self, node: str, resource: str) -> Fraction:
        return sum((self.requests(pod, resource) for pod in self.pods_on(node)), Fraction())

    def is_ready(self, node: str) -> bool:
        conditions = self.nodes[node]["status"].get("conditions", ())
        return all(each["status"] == "True" for each in conditions if each["type"] == "Ready")

    def is_usable(self, node: str) -> bool:
        return self.is_ready(node) and not self.nodes[node]["spec"].get("unschedulable")

    # -- devices

    @cached_property
    def pools(self) -> dict[tuple[str, str], list[Tree]]:
        """Slices of the newest generation of each pool."""
        found: dict[tuple[str, str], list[Tree]] = defaultdict(list)
        for each in self.by_kind["ResourceSlice"]:
            found[each["spec"]["driver"], each["spec"]["pool"]["name"]].append(each["spec"])
        for key, specs in found.items():
            newest = max(spec["pool"]["generation"] for spec in specs)
            found[key] = [spec for spec in specs if spec["pool"]["generation"] == newest]
        return found

    def is_complete(self, pool: tuple[str, str]) -> bool:
        return all(spec["pool"]["resourceSliceCount"] == len(self.pools[pool]) for spec in self.pools[pool])

    @cached_property
    def devices(self) -> dict[DeviceKey, NaiveDevice]:
        """Published devices, with the claims that hold them."""
        found = {}
        for (driver, pool), specs in self.pools.items():
            for spec in specs:
                for each in spec.get("devices") or ():
                    key = driver, pool, each["name"]
                    found[key] = NaiveDevice(
                        key,
                        spec.get("nodeName", ""),
                        {
                            name: next(iter(value.values()))
                            for name, value in each.get("attributes", {}).items()
                        },
                        {name: amount(value["value"]) for name, value in each.get("capacity", {}).items()},
                        bool(each.get("allowMultipleAllocations")),
                        {
                            (group["counterSet"], name): amount(value["value"])
                            for group in each.get("consumesCounters", ())
                            for name, value in group["counters"].items()
                        },
                        each.get("nodeAllocatableResourceMappings", {}),
                        [*each.get("taints", ()), *self._rule_taints(key)],
                    )
        for claim, result in self.results():
            device = found.get((result["driver"], result["pool"], result["device"]))
            if device is not None and not result.get("adminAccess"):
                device.holders.add((claim["metadata"]["namespace"], claim["metadata"]["name"]))
                for name, value in result.get("consumedCapacity", {}).items():
                    device.consumed[name] += amount(value)
        return found

    def _rule_taints(self, key: DeviceKey) -> Iterator[Tree]:
        for rule in self.by_kind["DeviceTaintRule"]:
            wanted = rule["spec"]["deviceSelector"]
            names = zip(("driver", "pool", "device"), key, strict=True)
            if all(wanted.get(part) in (None, name) for part, name in names):
                yield rule["spec"]["taint"]

    @cached_property
    def allocated(self) -> list[Tree]:
        return [each for each in self.by_kind["ResourceClaim"] if each.get("status", {}).get("allocation")]

    def results(self) -> Iterator[tuple[Tree, Tree]]:
        for claim in self.allocated:
            for result in claim["status"]["allocation"]["devices"]["results"]:
                yield claim, result

    def counters_left(self, pool: tuple[str, str]) -> Counters:
        left = {
            (group["name"], name): amount(value["value"])
            for spec in self.pools[pool]
            for group in spec.get("sharedCounters") or ()
            for name, value in group["counters"].items()
        }
        for device in self.devices.values():
            if device.key[:2] == pool and device.holders:
                for name, drawn in device.draw.items():
                    left[name] -= drawn
        return left

    # -- claims and what they charge

    def claims_of(self, pod: Tree) -> list[Tree]:
        names = {each["resourceClaimName"] for each in pod["status"].get("resourceClaimStatuses", ())}
        names |= {each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims", ())}
        extended = pod["status"].get("extendedResourceClaimStatus", {})
        names.add(extended.get("resourceClaimName"))
        return [
            each
            for each in self.by_kind["ResourceClaim"]
            if each["metadata"]["name"] in names
            and each["metadata"]["namespace"] == pod["metadata"]["namespace"]
        ]

    def charged(self, node: str, resource: str) -> Fraction:
        """Return what claims take from a node; those of pods with pod-level requests are inside of these."""
        total = Fraction()
        seen = set()
        for pod in self.pods_on(node):
            inside = resource in pod["spec"].get("resources", {}).get("requests", {})
            for claim in self.claims_of(pod):
                if claim["metadata"]["uid"] in seen or inside:
                    continue
                seen.add(claim["metadata"]["uid"])
                total += self.claim_charge(claim, resource)
        return total

    def claim_charge(self, claim: Tree, resource: str) -> Fraction:
        total = Fraction()
        for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()):
            device = self.devices.get((result["driver"], result["pool"], result["device"]))
            if device is not None:
                consumed = {name: amount(value) for name, value in result.get("consumedCapacity", {}).items()}
                total += device.charges(consumed).get(resource, Fraction())
        return total

    def free(self, node: str, resource: str) -> Fraction:
        return (
            self.allocatable(node, resource) - self.requested(node, resource) - self.charged(node, resource)
        )

    # -- availability

    def free_devices(self, node: str, selector: Selector) -> list[NaiveDevice]:
        """Return the devices of a node that can still be allocated, each alone."""
        found = []
        for device in self.devices.values():
            pool = device.key[:2]
            if device.node != node or not selector(device) or not self.is_complete(pool):
                continue
            if any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in device.taints):
                continue
            if device.holders and not device.shareable:
                continue
            left = self._left(pool)
            if device.holders or all(left[name] >= drawn for name, drawn in device.draw.items()):
                found.append(device)
        return found

    def _options(self, members: list[NaiveDevice]) -> dict[int, Fraction]:
        """Return the best choices of one GPU; GPUs whose devices and counters are alike have the same."""
        left = {
            key: value for key, value in self._left(members[0].key[:2]).items() if key[0] in _sets(members)
        }
        drawn = sorted(
            (sorted((name, value) for (_, name), value in each.draw.items()), _cpu(each)) for each in members
        )
        content = repr((drawn, sorted((name, value) for (_, name), value in left.items())))
        if len(_sets(members)) != 1 or content not in self._known:
            self._known[content] = best_choices(members, left)
        return self._known[content]

    @cached_property
    def _known(self) -> dict[str, dict[int, Fraction]]:
        return {}

    def _left(self, pool: tuple[str, str]) -> Counters:
        if pool not in self._left_by_pool:
            self._left_by_pool[pool] = self.counters_left(pool)
        return self._left_by_pool[pool]

    @cached_property
    def _left_by_pool(self) -> dict[tuple[str, str], Counters]:
        return {}

    def most_devices(self, node: str, selector: Selector, cpu: Fraction | None = None) -> int:
        """Return the most devices that can be allocated together: every combination of each GPU is tried.

        Each choice charges the CPUs of its devices to the node; `cpu` are those that are left.
        """
        cpu = self.free(node, "cpu") if cpu is None else cpu
        groups: dict[object, list[NaiveDevice]] = defaultdict(list)
        for device in self.free_devices(node, selector):
            sets = sorted({name for name, _ in device.draw})
            groups[(device.key[:2], *sets) if sets else device.key].append(device)
        cheapest: dict[int, Fraction] = {0: Fraction()}  # number of devices -> least CPUs
        for members in groups.values():
            options = self._options(members)
            merged: dict[int, Fraction] = {}
            for count, cost in cheapest.items():
                for more, price in options.items():
                    total = cost + price
                    if total < merged.get(count + more, total + 1):
                        merged[count + more] = total
            cheapest = merged
        return max((count for count, cost in cheapest.items() if cost <= max(cpu, Fraction())), default=0)


def _sets(members: Iterable[NaiveDevice]) -> set[str]:
    return {group for each in members for group, _ in each.draw}


def best_choices(members: list[NaiveDevice], left: Counters) -> dict[int, Fraction]:
    """Return the least CPUs for each number of devices that fit into the counters together."""
    best: dict[int, Fraction] = {}
    # Devices that draw and charge alike are interchangeable: choose how many of each kind.
    kinds: dict[object, list[NaiveDevice]] = defaultdict(list)
    for device in members:
        kinds[tuple(sorted(device.draw.items())), _cpu(device)].append(device)
    ordered = list(kinds.values())

    def choose(number: int, count: int, cost: Fraction) -> None:
        if number == len(ordered):
            if cost < best.get(count, cost + 1):
                best[count] = cost
            return
        same = ordered[number]
        taken = 0
        while True:
            choose(number + 1, count + taken, cost + taken * _cpu(same[0]))
            if taken == len(same) or any(left[name] < drawn for name, drawn in same[0].draw.items()):
                break
            for name, drawn in same[0].draw.items():
                left[name] -= drawn
            taken += 1
        for name, drawn in same[0].draw.items():
            left[name] += taken * drawn

    choose(0, 0, Fraction())
    return best


def _cpu(device: NaiveDevice) -> Fraction:
    return device.charges({}).get("cpu", Fraction())


def tolerates(tolerations: Iterable[Tree], taint: Tree) -> bool:
    """Return whether one of the tolerations matches a taint."""
    for each in tolerations:
        if each.get("effect") not in (None, "", taint["effect"]):
            continue
        if each.get("operator", "Equal") == "Exists":
            if each.get("key") in (None, "", taint["key"]):
                return True
        elif each.get("key") == taint["key"] and each.get("value", "") == taint.get("value", ""):
            return True
    return False
