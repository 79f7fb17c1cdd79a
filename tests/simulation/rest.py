"""Conditions after faults have stopped and time has passed: nothing is leaked, and what fits is placed.

`find_unrest` reads the API objects with naive code: brute force over nodes and devices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.chaos.scheduler_faults.invariants import Rule, find_leaks, find_violations
from tests.chaos.scheduler_faults.objects import (
    ClusterObjects,
    claim_names,
    consumers,
    device_key,
    is_available_on,
    key_of,
    name_of,
    node_of,
    published_devices,
)
from tests.chaos.scheduler_faults.small_cluster import CORE
from tests.simulation.invariants import Amounts, Checker, DeviceName, milli, requests_of, total_of

if TYPE_CHECKING:
    from tests.simulation.case import Case

Tree = dict[str, Any]


def find_unrest(case: Case) -> list[str]:
    """Return what is wrong in a cluster at rest."""
    objects = _with_pods_of_groups(case, read_objects(case))
    if case.placeholders is not None:
        return [*map(str, find_leaks(objects)), *case.placeholders.find_faults()]
    return [
        *(str(each) for each in find_violations(objects) if each.rule is not Rule.DEVICE_NOT_PUBLISHED),
        *map(str, find_leaks(objects)),
        *case.features.find_unrest(),
        *find_placeable(case.checker, objects, case.features.may_judge),
    ]


def read_objects(case: Case) -> ClusterObjects:
    trees = case.api.list_trees
    return ClusterObjects(
        list(trees("nodes")),
        list(trees("pods")),
        list(trees("resourceclaims")),
        list(trees("resourceslices")),
        list(trees("deviceclasses")),
    )


def _with_pods_of_groups(case: Case, objects: ClusterObjects) -> ClusterObjects:
    """Return the objects with claims of living PodGroups reserved for all pods of the group.

    A group without pods is a pod of its own: it may keep a claim.
    """
    groups, claims, pods = case.checker.groups, [], list(objects.pods)
    for claim in objects.claims:
        found = []
        for each in consumers(claim):
            name = groups.get(each["uid"])
            if name is None:
                found.append(each)
                continue
            members = [
                pod
                for pod in objects.pods
                if (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") == name
            ]
            if not members:
                members = [{"metadata": {"name": name, "uid": each["uid"]}, "spec": {"nodeName": "-"}}]
                pods += members
            found += [{**each, "uid": pod["metadata"]["uid"]} for pod in members]
        if found:
            claim = {**claim, "status": {**claim["status"], "reservedFor": found}}
        claims.append(claim)
    return ClusterObjects(objects.nodes, pods, claims, objects.slices, objects.classes)


# -- what fits


def find_placeable(
    checker: Checker, objects: ClusterObjects, may_judge: Callable[[Tree, str], bool]
) -> Iterator[str]:
    """Yield the pods that are not placed although they fit a node as it is."""
    claims = {key_of(claim): claim for claim in objects.claims}
    devices = published_devices(objects.slices)
    for pod in objects.pods:
        if node_of(pod) or pod["metadata"].get("deletionTimestamp"):
            continue
        names = claim_names(pod)
        wanted = [claims.get((pod["metadata"]["namespace"], name or "")) for name in names]
        if None in wanted:
            if any(name is None for name in names):
                yield f"pod {name_of(pod)} has no generated claim"
            continue
        if CORE in requests_of(pod):
            wanted.append({"metadata": {}, "spec": _core_spec(), "status": {}})
        for node in objects.nodes:
            if not may_judge(pod, node["metadata"]["name"]):
                continue
            if _fits(checker, pod, [each for each in wanted if each is not None], node, devices):
                yield f"pod {name_of(pod)} is not placed and fits {node['metadata']['name']}"
                break


def _core_spec() -> Tree:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "cores"}}]}}


def _fits(
    checker: Checker,
    pod: Tree,
    claims: list[Tree],
    node: Tree,
    devices: dict[Any, tuple[Tree, Tree]],
) -> bool:
    if node["spec"].get("unschedulable") or node["spec"].get("taints"):
        return False
    need = {resource: amount for resource, amount in requests_of(pod).items() if resource != CORE}
    parts: list[Amounts] = [need]
    open_requests: list[Tree] = []
    for claim in claims:
        if (claim.get("status") or {}).get("allocation") is not None:
            if claim["metadata"].get("deletionTimestamp"):
                return False
            for result in claim["status"]["allocation"]["devices"]["results"]:
                known = devices.get(device_key(result))
                if known is None or not is_available_on(*known, node):
                    return False
            charges = checker.charges_of(key_of(claim))
            if charges and any(each["uid"] != pod["metadata"]["uid"] for each in consumers(claim)):
                return False  # a claim that charges its node has one pod
            parts.append(charges)
        else:
            open_requests += claim["spec"]["devices"]["requests"]
    free = _free_devices(checker, node, devices)
    return _choose(checker, open_requests, free, total_of(parts), node)


def _choose(
    checker: Checker, requests: list[Tree], free: dict[DeviceName, Tree], need: Amounts, node: Tree
) -> bool:
    """Return whether some choice of free devices for the requests fits the node."""
    if not requests:
        taken = checker.taken(node["metadata"]["name"])
        limits = node["status"]["allocatable"]
        return all(
            taken.get(name, 0) + amount <= milli(limits.get(name, "0")) for name, amount in need.items()
        )
    first, *rest = requests
    ways = [first["exactly"]] if "exactly" in first else first["firstAvailable"]
    for way in ways:
        for device, tree in free.items():
            if device[0] != f"{way['deviceClassName']}.example.com":
                continue
            if tree.get("allowMultipleAllocations"):
                wanted = milli(way["capacity"]["requests"]["units"])
                used = sum(
                    milli(each["consumedCapacity"]["units"]) for each in checker.holders[device].values()
                )
                if used + wanted > milli(tree["capacity"]["units"]["value"]):
                    continue
            charge: Amounts = {
                resource: milli(rule.get("allocationMultiplier", "1"))
                for resource, rule in (tree.get("nodeAllocatableResourceMappings") or {}).items()
            }
            others = {name: each for name, each in free.items() if name != device}
            if _choose(checker, rest, others, total_of([need, charge]), node):
                return True
    return False


def _free_devices(
    checker: Checker, node: Tree, devices: dict[Any, tuple[Tree, Tree]]
) -> dict[DeviceName, Tree]:
    """Return the devices that another claim could get on a node."""
    free: dict[DeviceName, Tree] = {}
    for key, (device, slice_tree) in devices.items():
        name = (key.driver, key.pool, key.device)
        if not is_available_on(device, slice_tree, node) or device.get("taints"):
            continue
        if checker.holders[name] and not device.get("allowMultipleAllocations"):
            continue
        if not _has_counters(checker, name, device):
            continue
        free[name] = device
    return free


def _has_counters(checker: Checker, name: DeviceName, device: Tree) -> bool:
    driver, pool, _ = name
    for part in device.get("consumesCounters") or ():
        used: Amounts = defaultdict(int)
        for other, holders in checker.holders.items():
            if holders and other[:2] == (driver, pool):
                for each in checker.devices[other][0].get("consumesCounters") or ():
                    for counter, amount in each["counters"].items():
                        used[counter] += milli(amount["value"])
        for each in checker.slices.values():
            if (each["spec"]["driver"], each["spec"]["pool"]["name"]) == (driver, pool):
                for entry in each["spec"].get("sharedCounters") or ():
                    for counter, total in entry["counters"].items():
                        wanted = part["counters"].get(counter, {"value": "0"})["value"]
                        if used[counter] + milli(wanted) > milli(total["value"]):
                            return False
    return True
