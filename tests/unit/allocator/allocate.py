"""Helpers that run the allocator and read its outcome."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from plimsoll.allocator import (
    Allocation,
    AllocationOutcome,
    AllocationState,
    DeviceId,
    Features,
    Inventory,
    NodeBudget,
    Preference,
    Refusal,
    SearchLimits,
    allocate_claims,
)
from plimsoll.api.core import Node
from plimsoll.api.resource import (
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from tests.build import DRIVER, POOL, device, device_class, node, resource_slice


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
    """Allocate on a new inventory; without `classes` there is one class that selects every device."""
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
    """Return the device names of an allocation, claim by claim."""
    assert isinstance(outcome, Allocation), outcome
    return [[each.device for each in result.devices.results] for result in outcome.results]


def results(outcome: AllocationOutcome) -> list[DeviceRequestAllocationResult]:
    """Return all device results of an allocation."""
    assert isinstance(outcome, Allocation), outcome
    return [each for result in outcome.results for each in result.devices.results]


def id(name: str) -> DeviceId:
    return DeviceId(DRIVER, POOL, name)


def refused(outcome: AllocationOutcome) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome


def partitions(units: str, *draws: str) -> list[ResourceSlice]:
    devices = [device(f"d{n}", draws={"set": {"units": each}}) for n, each in enumerate(draws)]
    return [
        resource_slice(devices, name="a", count=2),
        resource_slice(counters={"set": {"units": units}}, name="b", count=2),
    ]


def shared(value: str, **policy: Any) -> dict[str, Any]:
    return {"mem": {"value": value, **({"requestPolicy": policy} if policy else {})}}
