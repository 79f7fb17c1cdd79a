"""Independent checker of scheduled random clusters: a pure function from API objects to faults.

It reads the objects that an API server lists and shares no code with the product. Beyond the invariants of
the chaos tests (devices, shared capacity, counters, claims of bound pods) it checks what `random_clusters`
generates: node resources with claims and pod-level requests, numbers of devices, selectors, constraints,
device taints, consumed capacity, claims that must not be shared, node selectors and node taints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.chaos.scheduler_faults.invariants import Rule, find_violations
from tests.chaos.scheduler_faults.objects import (
    POD_ANNOTATION,
    ClusterObjects,
    DeviceKey,
    Tree,
    allocation_results,
    claim_names,
    device_key,
    is_finished,
    key_of,
    name_of,
    node_of,
    pod_requests,
    published_devices,
)
from tests.chaos.scheduler_faults.quantities import Amounts, add, parse_quantity, read_amounts

#: Checked here instead, with pod-level requests and records in two places.
_OWN_RULES = (Rule.NODE_OVERCOMMITTED, Rule.CHARGES_NOT_RECORDED)
_WHOLE_POD = ("cpu", "memory")

Published = dict[DeviceKey, tuple[Tree, Tree]]


def find_faults(objects: ClusterObjects, *, records: bool = True) -> list[str]:
    """Return every fault; `records`: charges of claims must be recorded with their pods."""
    devices = published_devices(objects.slices)
    charges = {key_of(claim): found for claim in objects.claims if (found := _charges(claim, devices))}
    faults = [str(found) for found in find_violations(objects) if found.rule not in _OWN_RULES]
    faults += _check_nodes(objects, charges)
    faults += _check_placement(objects)
    for claim in objects.claims:
        faults += (f"claim {name_of(claim)}: {text}" for text in _check_claim(claim, devices))
    faults += _check_sharing(objects, charges)
    if records:
        faults += _check_records(objects, charges)
    return faults


# -- charges


def _charges(claim: Tree, devices: Published) -> Amounts:
    total: Amounts = {}
    for result in allocation_results(claim):
        device = devices.get(device_key(result), ({}, {}))[0]
        for resource, rule in (device.get("nodeAllocatableResourceMappings") or {}).items():
            amount = parse_quantity(rule.get("allocationMultiplier", "1"))
            if key := rule.get("capacityKey"):
                consumed = (result.get("consumedCapacity") or {}).get(key)
                amount *= parse_quantity(consumed or device["capacity"][key]["value"])
            total = add(total, {resource: amount})
    return total


def _check_nodes(objects: ClusterObjects, charges: dict[tuple[str, str], Amounts]) -> Iterator[str]:
    for node in objects.nodes:
        name = node["metadata"]["name"]
        total: Amounts = {}
        counted: set[tuple[tuple[str, str], str]] = set()
        for pod in _pods_on(objects, name):
            total = add(total, pod_requests(pod))
            budget = read_amounts((pod["spec"].get("resources") or {}).get("requests"))
            inside = pod_requests({**pod, "spec": {**pod["spec"], "resources": {}}})
            for key in _claims_of(pod):
                for resource, amount in charges.get(key, {}).items():
                    if resource in budget and (resource in _WHOLE_POD or resource.startswith("hugepages-")):
                        inside = add(inside, {resource: amount})
                    elif (key, resource) not in counted:
                        counted.add((key, resource))
                        total = add(total, {resource: amount})
            for resource, amount in budget.items():
                if inside.get(resource, 0) > amount:
                    have, need = float(amount), float(inside[resource])
                    yield f"pod {name_of(pod)}: {resource} {need:g} within a pod-level request of {have:g}"
        for resource, amount in total.items():
            limit = parse_quantity(node["status"]["allocatable"].get(resource, "0"))
            if amount > limit:
                yield f"node {name}: {resource} {float(amount):g} of {float(limit):g}"


def _pods_on(objects: ClusterObjects, node: str) -> list[Tree]:
    return [pod for pod in objects.pods if node_of(pod) == node and not is_finished(pod)]


def _claims_of(pod: Tree) -> list[tuple[str, str]]:
    return list(dict.fromkeys((pod["metadata"]["namespace"], name) for name in claim_names(pod) if name))


def _check_sharing(objects: ClusterObjects, charges: dict[tuple[str, str], Amounts]) -> Iterator[str]:
    users: dict[tuple[str, str], list[str]] = {}
    for pod in objects.pods:
        if node_of(pod) and not is_finished(pod):
            for key in _claims_of(pod):
                users.setdefault(key, []).append(name_of(pod))
    for key, pods in users.items():
        if key in charges and len(pods) > 1:
            yield f"claim {'/'.join(key)} charges its node and is used by {', '.join(pods)}"


def _check_records(objects: ClusterObjects, charges: dict[tuple[str, str], Amounts]) -> Iterator[str]:
    for pod in objects.pods:
        if not node_of(pod) or is_finished(pod):
            continue
        noted = json.loads((pod["metadata"].get("annotations") or {}).get(POD_ANNOTATION, "[]"))
        entries = [*(pod["status"].get("nodeAllocatableResourceClaimStatuses") or ()), *noted]
        recorded = {each["resourceClaimName"]: read_amounts(each.get("resources")) for each in entries}
        for key in _claims_of(pod):
            if recorded.get(key[1], {}) != charges.get(key, {}):
                yield f"pod {name_of(pod)}: the charge of claim {key[1]} is not recorded"


# -- placement of pods


def _check_placement(objects: ClusterObjects) -> Iterator[str]:
    nodes = {node["metadata"]["name"]: node for node in objects.nodes}
    for pod in objects.pods:
        node = nodes.get(node_of(pod))
        if node is None or is_finished(pod):
            continue
        labels = node["metadata"].get("labels") or {}
        for key, value in (pod["spec"].get("nodeSelector") or {}).items():
            if labels.get(key) != value:
                yield f"pod {name_of(pod)}: node {node_of(pod)} has no label {key}={value}"
        for taint in node["spec"].get("taints") or ():
            hard = taint["effect"] in ("NoSchedule", "NoExecute")
            if hard and not _is_tolerated(taint, pod["spec"].get("tolerations") or ()):
                yield f"pod {name_of(pod)}: taint {taint['key']} of node {node_of(pod)} is not tolerated"


def _is_tolerated(taint: Tree, tolerations: Any) -> bool:
    for each in tolerations:
        if each.get("effect") not in (None, "", taint["effect"]) or each.get("key") not in (
            None,
            "",
            taint["key"],
        ):
            continue
        if each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", ""):
            return True
    return False


# -- allocations of claims


def _check_claim(claim: Tree, devices: Published) -> Iterator[str]:
    results = allocation_results(claim)
    if not results:
        return
    bodies: dict[str, Tree] = {}
    for request in claim["spec"]["devices"]["requests"]:
        ways = {f"{request['name']}/{way['name']}": way for way in request.get("firstAvailable") or ()}
        if "exactly" in request:
            ways = {request["name"]: request["exactly"]}
        bodies |= ways
        served = {name: [r for r in results if r["request"] == name] for name in ways}
        used = [name for name, found in served.items() if found]
        if len(used) != 1:
            yield f"request {request['name']} is served by {len(used)} of {len(ways)} ways"
            continue
        body, found = ways[used[0]], served[used[0]]
        if body.get("allocationMode", "ExactCount") != "All" and len(found) != body.get("count", 1):
            yield f"request {used[0]} has {len(found)} of {body.get('count', 1)} devices"
    for result in results:
        body = bodies.get(result["request"], {})
        device = devices.get(device_key(result), ({}, {}))[0]
        for selector in body.get("selectors") or ():
            expression = selector["cel"]["expression"]
            if not matches(expression, result["driver"], device):
                yield f"{device_key(result)} does not match {expression}"
        for taint in device.get("taints") or ():
            if taint["effect"] != "None" and not _is_tolerated(taint, body.get("tolerations") or ()):
                yield f"{device_key(result)} is tainted"
        wanted = (body.get("capacity") or {}).get("requests") or {}
        for name, amount in wanted.items() if device.get("allowMultipleAllocations") else ():
            consumed = (result.get("consumedCapacity") or {}).get(name, "0")
            if parse_quantity(consumed) < parse_quantity(amount):
                yield f"{device_key(result)}: consumes {consumed} of {name}, requested {amount}"
    for constraint in claim["spec"]["devices"].get("constraints") or ():
        yield from _check_constraint(constraint, results, devices)


def _check_constraint(constraint: Tree, results: list[Tree], devices: Published) -> Iterator[str]:
    wanted = constraint.get("requests") or ()
    values = [
        _attribute(devices.get(device_key(result), ({}, {}))[0], result["driver"], _name_of(constraint))
        for result in results
        if not wanted or result["request"] in wanted or result["request"].partition("/")[0] in wanted
    ]
    if any(value is None for value in values):
        yield f"{constraint}: a device has no such attribute"
    elif constraint.get("matchAttribute"):
        if len(set(values)) > 1:
            yield f"{constraint}: {values}"
    elif len(set(values)) < len(values):
        yield f"{constraint}: {values}"


def _name_of(constraint: Tree) -> str:
    return str(constraint.get("matchAttribute") or constraint["distinctAttribute"])


def _attribute(device: Tree, driver: str, name: str) -> tuple[str, Any] | None:
    attributes = device.get("attributes") or {}
    domain, _, own = name.rpartition("/")
    found = attributes.get(name) or (attributes.get(own) if domain in ("", driver) else None)
    return next(iter(found.items())) if found else None


# -- selectors, by the few shapes that are generated


def matches(expression: str, driver: str, device: Tree) -> bool:
    """Evaluate a selector of `random_clusters`. Raise ValueError for one of another shape."""
    for pattern, evaluate in _SELECTORS:
        if found := re.fullmatch(pattern, expression):
            return found["driver"] == driver and evaluate(found, device)
    raise ValueError(f"the checker does not know the selector {expression}")


def _value(found: re.Match[str], device: Tree) -> Any:
    attribute = (device.get("attributes") or {}).get(found["name"])
    return None if attribute is None else next(iter(attribute.values()))


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _is_larger(found: re.Match[str], device: Tree) -> bool:
    value = ((device.get("capacity") or {}).get(found["name"]) or {}).get("value", "0")
    return parse_quantity(value) > parse_quantity(found["value"])


_OWN = r'device\.attributes\["(?P<driver>[^"]+)"\]'
_SELECTORS: list[tuple[str, Callable[[re.Match[str], Tree], bool]]] = [
    (_OWN + r'\.(?P<name>\w+) == "(?P<value>\w+)"', lambda m, d: bool(_value(m, d) == m["value"])),
    (_OWN + r"\.(?P<name>\w+) == (?P<value>\d+)", lambda m, d: bool(_value(m, d) == int(m["value"]))),
    (_OWN + r"\.(?P<name>\w+) in (?P<value>\[.*\])", lambda m, d: _value(m, d) in json.loads(m["value"])),
    (
        _OWN + r'\.(?P<name>\w+)\.isGreaterThan\(semver\("(?P<value>[\d.]+)"\)\)',
        lambda m, d: _version(_value(m, d)) > _version(m["value"]),
    ),
    (
        r'device\.capacity\["(?P<driver>[^"]+)"\]\.(?P<name>\w+)\.isGreaterThan\(quantity\("(?P<value>\w+)"\)\)',
        _is_larger,
    ),
    (
        _OWN + r'\.\?(?P<name>\w+)\.orValue\("(?P<other>\w+)"\) != "(?P<value>\w+)"',
        lambda m, d: bool((_value(m, d) or m["other"]) != m["value"]),
    ),
]
