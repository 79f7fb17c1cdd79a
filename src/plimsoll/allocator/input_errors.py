"""Allocation faults: inputs for which no allocation can be computed.

A refusal means that one node cannot serve the claims. A fault means that a claim, class or selector is
invalid, and ends scheduling of the pod, unless it `is_node_scoped`. Defines the kinds of faults with
upstream's texts (docs/spec/allocator.md, "Error texts").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.quantity import MILLI


@dataclass(frozen=True, slots=True)
class AllocationFault:
    """Reason why an allocation cannot be computed: its kind, and the facts of that kind."""

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_node_scoped(self) -> bool:
        """True if other nodes may still be feasible."""
        return self.kind == INVALID_POOLS

    @property
    def is_selector_error(self) -> bool:
        """True if a CEL expression of a class or claim failed on a device."""
        return self.kind in (CEL_COMPILE, CEL_RUNTIME, DERIVED_COMPILE, DERIVED_RUNTIME)

    def __str__(self) -> str:
        return _TEXTS[self.kind](self.facts)


PRIORITIZED_LIST_OFF = "feature-prioritized-list"
CONSUMABLE_CAPACITY_OFF = "feature-consumable-capacity"
ADMIN_ACCESS_OFF = "feature-admin-access"
DERIVED_ATTRIBUTES_OFF = "feature-derived-attributes"
UNSUPPORTED_SELECTOR = "unsupported-selector"
MISSING_CLASS_NAME = "missing-class-name"
CLASS_NOT_FOUND = "class-not-found"
UNSUPPORTED_MODE = "unsupported-mode"
UNSUPPORTED_REQUEST = "unsupported-request"
ALL_INCOMPLETE_POOL = "all-incomplete-pool"
ALL_INVALID_POOL = "all-invalid-pool"
TOO_MANY_DEVICES = "too-many-devices"
UNSUPPORTED_CONSTRAINT = "unsupported-constraint"
ALL_CONSTRAINT = "all-constraint"
CEL_COMPILE = "cel-compile"
CEL_RUNTIME = "cel-runtime"
DERIVED_COMPILE = "derived-attribute-compile"
DERIVED_RUNTIME = "derived-attribute-runtime"
CAPACITY = "capacity"
INVALID_POOLS = "invalid-pools"
NODE_SELECTION = "node-selection"
NODE_SELECTOR_TERMS = "node-selector-terms"


def _capacity_text(f: Mapping[str, Any]) -> str:
    if f["negative"]:
        what = "capacity value is negative"
    else:
        problem = "is not a representable milli value"
        if not f["wanted"].nano % MILLI:
            problem = "rounded up to the next step passes 64 bits"
        what = (
            "capacity request cannot be represented in the device's range arithmetic: "
            f"request {f['wanted']} {problem}"
        )
    return (
        f"claim {f['claim']}, request {f['request']}: checking capacity for device {f['device']}: "
        f'capacity "{f["name"]}": {what}'
    )


def _place(f: Mapping[str, Any]) -> str:
    return f"class {f['class']}" if f.get("class") else f"claim {f['claim']}"


_TEXTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    PRIORITIZED_LIST_OFF: lambda f: (
        f"claim {f['claim']}, request {f['request']}: has subrequests, but the DRAPrioritizedList feature is "
        "disabled"
    ),
    CONSUMABLE_CAPACITY_OFF: lambda f: (
        f"claim {f['claim']}, {f['level']} {f['request']}: has capacity requests, but the "
        "DRAConsumableCapacity feature is disabled"
    ),
    ADMIN_ACCESS_OFF: lambda f: (
        f"claim {f['claim']}, request {f['request']}: admin access is requested, but the feature is disabled"
    ),
    DERIVED_ATTRIBUTES_OFF: lambda f: (
        f"claim {f['claim']}, request {f['request']}: cannot handle request with derived attributes, the "
        "feature is disabled"
    ),
    UNSUPPORTED_SELECTOR: lambda f: (
        f"claim {f['claim']}, request {f['request']}, selector #{f['index']}: CEL expression empty "
        "(unsupported selector type?)"
    ),
    MISSING_CLASS_NAME: lambda f: (
        f"claim {f['claim']}, request {f['request']}: missing device class name (unsupported request type?)"
    ),
    CLASS_NOT_FOUND: lambda f: (
        f"claim {f['claim']}, request {f['request']}: could not retrieve device class {f['class']}: "
        f'deviceclass.resource.k8s.io "{f["class"]}" not found'
    ),
    UNSUPPORTED_MODE: lambda f: (
        f"claim {f['claim']}, request {f['request']}: unsupported count mode {f['mode']}"
    ),
    UNSUPPORTED_REQUEST: lambda f: (
        f"claim {f['claim']}, request {f['request']}: neither exactly nor firstAvailable is set "
        "(unsupported request type?)"
    ),
    ALL_INCOMPLETE_POOL: lambda f: (
        f"claim {f['claim']}, request {f['request']}: asks for all devices, but resource pool {f['pool']} is "
        "currently being updated"
    ),
    ALL_INVALID_POOL: lambda f: (
        f"claim {f['claim']}, request {f['request']}: asks for all devices, but resource pool {f['pool']} is "
        "currently invalid"
    ),
    TOO_MANY_DEVICES: lambda f: (
        f"claim {f['claim']}: number of requested devices {f['count']} exceeds the claim limit of "
        f"{f['limit']}"
    ),
    UNSUPPORTED_CONSTRAINT: lambda f: (
        f"claim {f['claim']}, constraint #{f['index']}: empty constraint (unsupported constraint type?)"
    ),
    ALL_CONSTRAINT: lambda f: (
        f"claim {f['claim']}, request {f['request']}: cannot add device {f['device']} because a claim "
        "constraint would not be satisfied"
    ),
    CEL_COMPILE: lambda f: f"{_place(f)}: selector #{f['index']}: CEL compile error: {f['error']}",
    CEL_RUNTIME: lambda f: (
        f"{_place(f)}: selector #{f['index']} on device {f['device']}: CEL runtime error: {f['error']}"
    ),
    DERIVED_COMPILE: lambda f: (
        f"claim {f['claim']}, request {f['request']}: compile derived attribute {f['attribute']} failed: "
        f"{f['error']}"
    ),
    DERIVED_RUNTIME: lambda f: (
        f"claim {f['claim']}, request {f['request']}: evaluate derived attribute {f['attribute']} on device "
        f"{f['device']} failed: {f['error']}"
    ),
    CAPACITY: _capacity_text,
    INVALID_POOLS: lambda f: "invalid resource pools were encountered",
    NODE_SELECTION: lambda f: (
        f"gather pool information: failed to perform node selection for slice {f['slice']}: {f['problem']}"
    ),
    NODE_SELECTOR_TERMS: lambda f: (
        f"create NodeSelector for claim {f['claim']}: unsupported ResourceSlice.NodeSelector with "
        f"{f['terms']} terms"
    ),
}
