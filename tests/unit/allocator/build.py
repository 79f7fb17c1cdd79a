"""Builders of slices, claims and nodes for the allocator's tests, and a helper that runs it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plimsoll.allocator import (
    Allocation,
    AllocationOutcome,
    AllocationState,
    Features,
    Inventory,
    NodeBudget,
    Preference,
    SearchLimits,
    allocate_claims,
)
from plimsoll.api.codec import convert
from plimsoll.api.core import Node
from plimsoll.api.resource import (
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)

DRIVER = "gpu.example.com"
CLASS = "gpu"
NODE = "node-a"


def node(name: str = NODE, **labels: str) -> Node:
    return convert({"metadata": {"name": name, "labels": labels}}, Node)


def device(
    name: str,
    *,
    capacity: Mapping[str, Any] | None = None,
    shareable: bool = False,
    draws: Mapping[str, Mapping[str, str]] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    fields: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> dict[str, Any]:
    """A device; any other keyword is an attribute. A capacity is an amount, or a whole DeviceCapacity."""
    made: dict[str, Any] = {"name": name}
    if attributes:
        made["attributes"] = {key: _attribute(value) for key, value in attributes.items()}
    if capacity is not None:
        made["capacity"] = {
            key: amount if isinstance(amount, Mapping) else {"value": amount}
            for key, amount in capacity.items()
        }
    if shareable:
        made["allowMultipleAllocations"] = True
    if draws is not None:
        made["consumesCounters"] = [
            {"counterSet": each, "counters": {key: {"value": amount} for key, amount in counters.items()}}
            for each, counters in draws.items()
        ]
    if taints:
        made["taints"] = list(taints)
    return made | dict(fields or {})


def _attribute(value: Any) -> dict[str, Any]:
    kind = {bool: "bool", int: "int", str: "string"}
    if isinstance(value, list):
        return {kind[type(value[0])] + "s": value}
    return {kind[type(value)]: value}


def resource_slice(
    devices: Sequence[Mapping[str, Any]] | None = None,
    *,
    name: str = "s",
    pool: str = "p",
    driver: str = DRIVER,
    generation: int = 1,
    count: int = 1,
    counters: Mapping[str, Mapping[str, str]] | None = None,
    **selection: Any,
) -> ResourceSlice:
    """A slice; `selection` is nodeName, nodeSelector, allNodes or perDeviceNodeSelection."""
    spec: dict[str, Any] = {
        "driver": driver,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        **(selection or {"nodeName": NODE}),
    }
    if devices is not None:
        spec["devices"] = list(devices)
    if counters is not None:
        spec["sharedCounters"] = [
            {"name": set_name, "counters": {key: {"value": amount} for key, amount in amounts.items()}}
            for set_name, amounts in counters.items()
        ]
    return convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


def exactly(name: str = "r", count: int = 1, **fields: Any) -> dict[str, Any]:
    """A request; `select=`, `capacity=`, `mode=`, `admin=`, `tolerations=`, `device_class=`."""
    return {"name": name, "exactly": _body(count, fields)}


def first_available(name: str, *alternatives: Mapping[str, Any]) -> dict[str, Any]:
    """A prioritized list of requests made by `exactly`."""
    return {
        "name": name,
        "firstAvailable": [{"name": each["name"], **each["exactly"]} for each in alternatives],
    }


def _body(count: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    mode = fields.get("mode", "ExactCount")
    made: dict[str, Any] = {
        "deviceClassName": fields.get("device_class", CLASS),
        "allocationMode": mode,
        **({"count": count} if mode == "ExactCount" else {}),
    }
    if "select" in fields:
        made["selectors"] = [{"cel": {"expression": fields["select"]}}]
    if "capacity" in fields:
        made["capacity"] = {"requests": fields["capacity"]}
    if "admin" in fields:
        made["adminAccess"] = fields["admin"]
    if "tolerations" in fields:
        made["tolerations"] = fields["tolerations"]
    return made


def claim(*requests: Mapping[str, Any], name: str = "c", **devices: Any) -> ResourceClaim:
    """A claim; `constraints=` and `config=` are the lists of the spec."""
    return convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": list(requests), **devices}},
        },
        ResourceClaim,
    )


def device_class(name: str = CLASS, *, select: str | None = None, **spec: Any) -> DeviceClass:
    if select is not None:
        spec["selectors"] = [{"cel": {"expression": select}}]
    return convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)


def attempt(
    slices: Iterable[ResourceSlice],
    *claims: ResourceClaim,
    state: AllocationState | None = None,
    at: Node | None = None,
    classes: Iterable[DeviceClass] = (),
    features: Features | None = None,
    taint_rules: Iterable[DeviceTaintRule] = (),
    budget: NodeBudget | None = None,
    limits: SearchLimits | None = None,
    preference: Preference = Preference.FIRST,
) -> AllocationOutcome:
    """Allocate on a fresh inventory; a class for everything is there unless classes are given."""
    known = list(classes) or [device_class()]
    numbers = itertools.count(1)
    return allocate_claims(
        Inventory(slices, features, taint_rules),
        AllocationState() if state is None else state,
        claims,
        node() if at is None else at,
        classes={each.metadata.name: each for each in known},
        new_id=lambda: f"share-{next(numbers)}",
        budget=budget,
        limits=limits,
        preference=preference,
    )


def picked(outcome: AllocationOutcome) -> list[list[str]]:
    """The device names of an allocation, claim by claim."""
    assert isinstance(outcome, Allocation), outcome
    return [[each.device for each in result.devices.results] for result in outcome.results]


def results(outcome: AllocationOutcome) -> list[DeviceRequestAllocationResult]:
    """All device results of an allocation."""
    assert isinstance(outcome, Allocation), outcome
    return [each for result in outcome.results for each in result.devices.results]
