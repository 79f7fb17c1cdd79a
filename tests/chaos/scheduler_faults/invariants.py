"""Invariants of a scheduled cluster: a pure function from API objects to the violations in them.

`find_violations` holds at any time: no device is allocated twice, shared capacity
and counters are not exceeded, no node is past its allocatable, and every bound pod has its claims.
`find_leaks` holds once nothing is under way: nothing is kept for pods that are gone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from tests.chaos.scheduler_faults.objects import (
    CLASS_ANNOTATION,
    ClusterObjects,
    DeviceKey,
    Tree,
    allocation_results,
    claim_names,
    consumers,
    current_slices,
    device_key,
    is_allocated,
    is_available_on,
    is_finished,
    key_of,
    name_of,
    node_of,
    pod_requests,
    published_devices,
    recorded_charges,
)
from tests.chaos.scheduler_faults.quantities import Amounts, add, parse_quantity

FINALIZER = "resource.kubernetes.io/delete-protection"


class Rule(Enum):
    """Invariants, named after their violation."""

    DEVICE_ALLOCATED_TWICE = "device allocated twice"
    DEVICE_NOT_PUBLISHED = "allocated device is not published"
    CAPACITY_EXCEEDED = "shared capacity exceeded"
    COUNTER_EXCEEDED = "shared counter exceeded"
    NODE_OVERCOMMITTED = "node past its allocatable"
    CLAIM_MISSING = "bound pod without its claim"
    CLAIM_NOT_ALLOCATED = "bound pod's claim is not allocated"
    CLAIM_NOT_RESERVED = "bound pod's claim is not reserved for it"
    DEVICE_NOT_ON_NODE = "bound pod's device is not available on its node"
    CHARGES_NOT_RECORDED = "bound pod's claim charges are not recorded"
    # at rest
    STALE_RESERVATION = "claim reserved for a pod that does not exist"
    ALLOCATION_UNUSED = "claim allocated without reservation"
    CLAIM_ORPHANED = "generated claim without its pod"
    DELETION_BLOCKED = "unused claim kept from deletion by its finalizer"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant."""

    rule: Rule
    detail: str

    def __str__(self) -> str:
        return f"{self.rule.value}: {self.detail}"


def find_violations(objects: ClusterObjects) -> list[Violation]:
    """Return every violation of the invariants that hold at any time."""
    charges = _claim_charges(objects)
    return [
        *check_devices(objects.claims, objects.slices),
        *_check_nodes(objects, charges),
        *_check_bound_pods(objects, charges),
    ]


# -- devices


def check_devices(claims: list[Tree], slices: list[Tree]) -> Iterator[Violation]:
    """Check that devices, shared capacity and counters are within the published amounts."""
    devices = published_devices(slices)
    held: dict[DeviceKey, list[tuple[str, Tree]]] = defaultdict(list)
    for claim in claims:
        for result in allocation_results(claim):
            if not result.get("adminAccess"):
                held[device_key(result)].append((name_of(claim), result))
    for key, holders in held.items():
        names = ", ".join(name for name, _ in holders)
        if key not in devices:
            yield Violation(Rule.DEVICE_NOT_PUBLISHED, f"{key}: {names}")
        elif devices[key][0].get("allowMultipleAllocations"):
            yield from _check_shares(key, devices[key][0], holders)
        elif len(holders) > 1:
            yield Violation(Rule.DEVICE_ALLOCATED_TWICE, f"{key}: {names}")
    yield from _check_counters(held, devices, slices)


def _check_shares(key: DeviceKey, device: Tree, holders: list[tuple[str, Tree]]) -> Iterator[Violation]:
    shares = [result.get("shareID") for _, result in holders]
    if len(set(shares)) < len(shares):
        names = ", ".join(name for name, _ in holders)
        yield Violation(Rule.DEVICE_ALLOCATED_TWICE, f"{key}, one share: {names}")
    for name, capacity in (device.get("capacity") or {}).items():
        consumed = [(who, (result.get("consumedCapacity") or {}).get(name, "0")) for who, result in holders]
        if sum(parse_quantity(amount) for _, amount in consumed) > parse_quantity(capacity["value"]):
            parts = ", ".join(f"{who} {amount}" for who, amount in consumed)
            yield Violation(Rule.CAPACITY_EXCEEDED, f"{key} has {capacity['value']} of {name}: {parts}")


def _check_counters(
    held: dict[DeviceKey, list[tuple[str, Tree]]],
    devices: dict[DeviceKey, tuple[Tree, Tree]],
    slices: list[Tree],
) -> Iterator[Violation]:
    """Check counters; a device draws on them once, however many claims share it."""
    used: dict[tuple[str, str, str, str], Fraction] = defaultdict(Fraction)
    for key in held:
        for part in devices[key][0].get("consumesCounters") or () if key in devices else ():
            for counter, amount in part["counters"].items():
                used[key.driver, key.pool, part["counterSet"], counter] += parse_quantity(amount["value"])
    for each in current_slices(slices):
        driver, pool = each["spec"]["driver"], each["spec"]["pool"]["name"]
        for counters in each["spec"].get("sharedCounters") or ():
            for counter, amount in counters["counters"].items():
                total = used[driver, pool, counters["name"], counter]
                if total > parse_quantity(amount["value"]):
                    name = f"{driver}/{pool} {counters['name']}.{counter}"
                    yield Violation(Rule.COUNTER_EXCEEDED, f"{name}: {total} of {amount['value']}")


# -- nodes


def _claim_charges(objects: ClusterObjects) -> dict[tuple[str, str], Amounts]:
    """Return the charges of each allocated claim to its node; claims without charges are left out."""
    devices = published_devices(objects.slices)
    classes = {each["metadata"]["name"]: each for each in objects.classes}
    found: dict[tuple[str, str], Amounts] = {}
    for claim in objects.claims:
        for result in allocation_results(claim):
            device = devices.get(device_key(result), ({}, {}))[0]
            rules = device.get("nodeAllocatableResourceMappings") or _class_rules(claim, result, classes)
            for resource, rule in rules.items():
                factor = parse_quantity(rule.get("allocationMultiplier", "1"))
                if capacity := rule.get("capacityKey"):
                    consumed = (result.get("consumedCapacity") or {}).get(capacity)
                    factor *= parse_quantity(consumed or device["capacity"][capacity]["value"])
                found[key_of(claim)] = add(found.get(key_of(claim), {}), {resource: factor})
    return found


def _class_rules(claim: Tree, result: Tree, classes: dict[str, Tree]) -> Tree:
    request, _, alternative = result["request"].partition("/")
    for entry in claim["spec"]["devices"]["requests"]:
        choices = [entry.get("exactly") or {}, *entry.get("firstAvailable", ())]
        for choice in choices if entry["name"] == request else ():
            if choice.get("name", "") == alternative:
                tree = classes.get(choice.get("deviceClassName", ""), {"metadata": {}})
                text = (tree["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION, "{}")
                return dict(json.loads(text).get("nodeAllocatableResourceMappings", {}))
    return {}


def _check_nodes(objects: ClusterObjects, charges: dict[tuple[str, str], Amounts]) -> Iterator[Violation]:
    """Check requests and charges against allocatable; a claim is charged once, however many pods share it."""
    for node in objects.nodes:
        name, total, charged = node["metadata"]["name"], Amounts(), set[tuple[str, str]]()
        pods = [pod for pod in objects.pods if node_of(pod) == name and not is_finished(pod)]
        for pod in pods:
            total = add(total, pod_requests(pod))
            charged |= {(pod["metadata"]["namespace"], claim) for claim in claim_names(pod) if claim}
        for key in charged & charges.keys():
            total = add(total, charges[key])
        allocatable = node["status"]["allocatable"]
        for resource, amount in total.items():
            limit = parse_quantity(allocatable.get(resource, "0"))
            if amount > limit:
                detail = f"{name}: {resource} {float(amount):g} of {float(limit):g}, {len(pods)} pods"
                yield Violation(Rule.NODE_OVERCOMMITTED, detail)


# -- pods


def _check_bound_pods(
    objects: ClusterObjects, charges: dict[tuple[str, str], Amounts]
) -> Iterator[Violation]:
    claims = {key_of(claim): claim for claim in objects.claims}
    nodes = {node["metadata"]["name"]: node for node in objects.nodes}
    devices = published_devices(objects.slices)
    for pod in objects.pods:
        if not node_of(pod) or is_finished(pod):
            continue
        for name in claim_names(pod):
            key = (pod["metadata"]["namespace"], name or "")
            what = f"pod {name_of(pod)}, claim {name or 'not generated'}"
            if key not in claims:
                yield Violation(Rule.CLAIM_MISSING, what)
                continue
            claim = claims[key]
            if not is_allocated(claim):
                yield Violation(Rule.CLAIM_NOT_ALLOCATED, what)
            if all(each["uid"] != pod["metadata"]["uid"] for each in consumers(claim)):
                yield Violation(Rule.CLAIM_NOT_RESERVED, what)
            node = nodes.get(node_of(pod))
            for result in allocation_results(claim):
                known = devices.get(device_key(result))
                if known is not None and (node is None or not is_available_on(*known, node)):
                    detail = f"{what}: {device_key(result)} on {node_of(pod)}"
                    yield Violation(Rule.DEVICE_NOT_ON_NODE, detail)
            if key in charges and recorded_charges(pod).get(key[1]) != charges[key]:
                yield Violation(Rule.CHARGES_NOT_RECORDED, what)


# -- leaks


def find_leaks(objects: ClusterObjects) -> list[Violation]:
    """Return unused objects that are still held; only meaningful when nothing is in progress.

    A pod that was allocated devices and then lost its place (its scheduler was killed before the binding) may
    keep them while it is pending.
    """
    return list(_check_leaks(objects))


def _check_leaks(objects: ClusterObjects) -> Iterator[Violation]:
    pods = {pod["metadata"]["uid"]: pod for pod in objects.pods}
    for claim in objects.claims:
        name, meta = name_of(claim), claim["metadata"]
        for consumer in consumers(claim):
            pod = pods.get(consumer["uid"])
            if pod is None or is_finished(pod):
                yield Violation(Rule.STALE_RESERVATION, f"{name}: {consumer['name']}")
        if is_allocated(claim) and not consumers(claim):
            yield Violation(Rule.ALLOCATION_UNUSED, name)
        for owner in meta.get("ownerReferences") or ():
            if owner["kind"] == "Pod" and owner["uid"] not in pods:
                yield Violation(Rule.CLAIM_ORPHANED, f"{name}: {owner['name']}")
        # A finalizer without an allocation is normal: it is written first, and the claim controller leaves
        # it to the next attempt. It must never keep an unused claim from being deleted.
        if (
            meta.get("deletionTimestamp")
            and FINALIZER in (meta.get("finalizers") or ())
            and not consumers(claim)
        ):
            yield Violation(Rule.DELETION_BLOCKED, name)
