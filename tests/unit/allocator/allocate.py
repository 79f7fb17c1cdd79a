"""Helpers that run the allocator and read its outcome."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

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
from plimsoll.api.core import Node
from plimsoll.api.resource import (
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from tests.build import device_class, node


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
