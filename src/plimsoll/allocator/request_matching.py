"""Request plans: the devices each request may get, by rules that are constant during a search.

`RequestPlan` is one request, or one subrequest of a prioritized list. Also the validation before the search
(docs/spec/allocator.md, "Validation before the search"): unsupported fields, unknown classes, too many
devices. The usage by other claims is constant as well and included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.allocator import input_errors as faults
from plimsoll.allocator.devices.attributes import AttributeTable
from plimsoll.allocator.devices.capacity import CapacityFault, CapacityRefusal, Consumption
from plimsoll.allocator.devices.node_devices import DeviceSelection, NodeDevices, SelectorFailure, bit_numbers
from plimsoll.allocator.devices.pools import PoolStatus
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.api.device_taints import is_tolerated
from plimsoll.api.resource import (
    ALL,
    EXACT_COUNT,
    MAX_ALLOCATION_RESULTS,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    ResourceClaim,
    expressions_of,
)
from plimsoll.errors import CelCompileError, CelRuntimeError


class RequestPlan:
    """One request or subrequest, prepared for the search."""

    __slots__ = (
        "admin",
        "all",
        "candidates",
        "claim",
        "constraints",
        "consumptions",
        "count",
        "derived",
        "derived_faults",
        "device_class",
        "devices",
        "expressions",
        "failures",
        "fault_mask",
        "name",
        "parent",
        "request",
        "selection",
        "tables",
        "tainted",
        "tolerations",
    )

    def __init__(self, claim: int, request: str, parent: str, device_class: DeviceClass) -> None:
        self.claim = claim  #: number of the claim
        self.request = request  #: name of the request or subrequest
        self.parent = parent  #: name of the request of a subrequest, or ""
        self.name = f"{parent}/{request}" if parent else request
        self.device_class = device_class
        self.expressions: tuple[str, ...] = ()  #: its own selectors
        self.all = False  #: whether it is for all matching devices
        self.admin = False
        self.count = 0
        self.tolerations: tuple[DeviceToleration, ...] = ()
        self.selection = DeviceSelection(0, {}, ())
        #: Consumption by capacity shape; empty without the feature.
        self.consumptions: Sequence[Consumption | CapacityRefusal | CapacityFault] = ()
        self.tainted = 0  #: mask of devices with a taint that is not tolerated
        self.candidates = 0  #: mask of devices that can serve it, without regard to other requests
        self.devices: list[int] = []  #: for allocation mode All: all matching devices
        self.failures: Mapping[int, SelectorFailure | CapacityFault] = {}
        self.fault_mask = 0  #: mask of devices with a failure
        self.constraints: tuple[int, ...] = ()  #: numbers of the constraints that apply to it
        self.derived: Mapping[str, str] = {}  #: derived attributes: name -> CEL expression
        self.tables: dict[int, AttributeTable] = {}  #: constraint -> values of its attribute
        self.derived_faults = 0  #: mask of candidates on which a derived attribute fails

    @property
    def may_fail(self) -> bool:
        """True if an expression fails on a device that could be tried."""
        return bool(self.fault_mask or self.derived_faults)


@dataclass(frozen=True, slots=True)
class RequestStep:
    """One request in search order; several plans are alternatives, tried in order."""

    claim: int
    plans: tuple[RequestPlan, ...]
    optional: bool  #: a prioritized list, even one with a single entry


@dataclass(frozen=True, slots=True)
class AttributeConstraint:
    """matchAttribute or distinctAttribute of one claim."""

    claim: int
    attribute: str
    distinct: bool


@dataclass(frozen=True, slots=True)
class RequestSet:
    """All requests and constraints of the claims."""

    claims: Sequence[ResourceClaim]
    steps: tuple[RequestStep, ...]
    constraints: tuple[AttributeConstraint, ...]

    @property
    def tables(self) -> list[AttributeTable]:
        """The distinct attribute tables of all plans."""
        plans = (plan for step in self.steps for plan in step.plans)
        return list({id(table): table for plan in plans for table in plan.tables.values()}.values())

    def derived_fault_of(self, plan: RequestPlan, device: int, devices: NodeDevices) -> AllocationFault:
        """Return the fault of the first derived attribute that fails on a device."""
        number = next(each for each in plan.constraints if device in plan.tables[each].errors)
        attribute, error = self.constraints[number].attribute, plan.tables[number].errors[device]
        kind = faults.DERIVED_COMPILE if isinstance(error, CelCompileError) else faults.DERIVED_RUNTIME
        facts = {
            "claim": self.claims[plan.claim].metadata.full_name,
            "request": plan.request,
            "attribute": attribute,
            "expression": plan.derived[attribute],
            "device": devices.entries[device].id,
            "error": error,
        }
        return AllocationFault(kind, facts)

    def fault_of(self, plan: RequestPlan, device: int, devices: NodeDevices) -> AllocationFault:
        """Return the fault of a failing device, which ends the search."""
        return _fault_of(plan, device, devices, self.claims[plan.claim].metadata.full_name)


def read_requests(
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    devices: NodeDevices,
    usage: DeviceUsage,
) -> RequestSet | AllocationFault:
    """Read the claims into plans, or return the first fault."""
    steps: list[RequestStep] = []
    constraints: list[AttributeConstraint] = []
    for number, claim in enumerate(claims):
        fewest = 0
        first = len(steps)
        for request in claim.spec.devices.requests:
            step = _read_request(number, claim, request, classes, devices, usage)
            if isinstance(step, AllocationFault):
                return step
            steps.append(step)
            fewest += min(plan.count for plan in step.plans)
        if fewest > MAX_ALLOCATION_RESULTS:
            facts = {"claim": claim.metadata.full_name, "count": fewest, "limit": MAX_ALLOCATION_RESULTS}
            return AllocationFault(faults.TOO_MANY_DEVICES, facts)
        fault = _read_constraints(number, claim, steps[first:], constraints)
        if fault is not None:
            return fault
    if constraints:
        _read_tables(steps, constraints, devices)
    return RequestSet(claims, tuple(steps), tuple(constraints))


def _read_tables(
    steps: Sequence[RequestStep], constraints: Sequence[AttributeConstraint], devices: NodeDevices
) -> None:
    """Give each plan the values of the attributes that its constraints compare."""
    plans = [plan for step in steps for plan in step.plans]
    for number, constraint in enumerate(constraints):
        concerned = [plan for plan in plans if number in plan.constraints]
        sources = tuple(dict.fromkeys(plan.derived.get(constraint.attribute, "") for plan in concerned))
        tables = dict(zip(sources, devices.tables(constraint.attribute, sources), strict=True))
        for plan in concerned:
            table = plan.tables[number] = tables[plan.derived.get(constraint.attribute, "")]
            if table.failed:
                plan.derived_faults |= table.failed & plan.candidates


def _read_constraints(
    number: int, claim: ResourceClaim, steps: Sequence[RequestStep], constraints: list[AttributeConstraint]
) -> AllocationFault | None:
    for index, constraint in enumerate(claim.spec.devices.constraints):
        attribute = constraint.match_attribute or constraint.distinct_attribute
        if constraint.match_attribute is None and constraint.distinct_attribute is None:
            return AllocationFault(
                faults.UNSUPPORTED_CONSTRAINT, {"claim": claim.metadata.full_name, "index": index}
            )
        wanted = set(constraint.requests)
        for step in steps:
            for plan in step.plans:
                if not wanted or plan.name in wanted or (plan.parent and plan.parent in wanted):
                    plan.constraints += (len(constraints),)
        constraints.append(AttributeConstraint(number, attribute or "", constraint.match_attribute is None))
    return None


def _read_request(
    number: int,
    claim: ResourceClaim,
    request: DeviceRequest,
    classes: Mapping[str, DeviceClass],
    devices: NodeDevices,
    usage: DeviceUsage,
) -> RequestStep | AllocationFault:
    features = devices.features
    name = claim.metadata.full_name
    if request.first_available and not features.prioritized_list:
        return AllocationFault(faults.PRIORITIZED_LIST_OFF, {"claim": name, "request": request.name})
    if not features.consumable_capacity:
        if request.exactly is not None and request.exactly.capacity is not None:
            facts = {"claim": name, "level": "request", "request": request.name}
            return AllocationFault(faults.CONSUMABLE_CAPACITY_OFF, facts)
        for alternative in request.first_available:
            if alternative.capacity is not None:
                facts = {"claim": name, "level": "subrequest", "request": alternative.name}
                return AllocationFault(faults.CONSUMABLE_CAPACITY_OFF, facts)
    plans: list[RequestPlan] = []
    wanted: Sequence[tuple[str, str, ExactDeviceRequest | DeviceSubRequest]]
    if request.first_available:
        wanted = [(sub.name, request.name, sub) for sub in request.first_available]
    elif request.exactly is not None:
        wanted = [(request.name, "", request.exactly)]
    else:
        return AllocationFault(faults.UNSUPPORTED_REQUEST, {"claim": name, "request": request.name})
    for own_name, parent, body in wanted:
        plan = _read_plan(number, name, own_name, parent, body, classes, devices, usage)
        if isinstance(plan, AllocationFault):
            return plan
        plans.append(plan)
    return RequestStep(number, tuple(plans), bool(request.first_available))


def _read_plan(
    number: int,
    claim: str,
    name: str,
    parent: str,
    body: ExactDeviceRequest | DeviceSubRequest,
    classes: Mapping[str, DeviceClass],
    devices: NodeDevices,
    usage: DeviceUsage,
) -> RequestPlan | AllocationFault:
    facts = {"claim": claim, "request": name}
    if body.derived_attributes and not devices.features.derived_attributes:
        return AllocationFault(faults.DERIVED_ATTRIBUTES_OFF, facts)
    expressions: list[str] = []
    for index, selector in enumerate(body.selectors):
        if selector.cel is None:
            return AllocationFault(faults.UNSUPPORTED_SELECTOR, {**facts, "index": index})
        expressions.append(selector.cel.expression)
    admin_access = body.admin_access if isinstance(body, ExactDeviceRequest) else None
    if admin_access is not None and not devices.features.admin_access:
        return AllocationFault(faults.ADMIN_ACCESS_OFF, facts)
    if not body.device_class_name:
        return AllocationFault(faults.MISSING_CLASS_NAME, facts)
    device_class = classes.get(body.device_class_name)
    if device_class is None:
        return AllocationFault(faults.CLASS_NOT_FOUND, {**facts, "class": body.device_class_name})
    if body.allocation_mode not in (EXACT_COUNT, ALL):
        return AllocationFault(faults.UNSUPPORTED_MODE, {**facts, "mode": body.allocation_mode})

    plan = RequestPlan(number, name, parent, device_class)
    plan.admin = bool(admin_access)
    plan.tolerations = body.tolerations
    plan.all = body.allocation_mode == ALL
    class_expressions = expressions_of(device_class.spec.selectors)
    plan.expressions = tuple(expressions)
    if body.derived_attributes:
        plan.derived = {each.name: each.expression for each in body.derived_attributes}
    plan.selection = devices.select(class_expressions, plan.expressions)
    if devices.features.consumable_capacity:
        plan.consumptions = devices.consumptions(body.capacity.requests if body.capacity is not None else {})
    if devices.features.device_taints and devices.taint_masks:
        for taints, mask in devices.taint_masks.items():
            if not is_tolerated(taints, body.tolerations):
                plan.tainted |= mask
    return _find_candidates(plan, body, claim, devices, usage)


def _find_candidates(
    plan: RequestPlan,
    body: ExactDeviceRequest | DeviceSubRequest,
    claim: str,
    devices: NodeDevices,
    usage: DeviceUsage,
) -> RequestPlan | AllocationFault:
    """Compute the candidates of a plan from the devices that pass its selectors."""
    mask = plan.selection.mask
    failures: dict[int, SelectorFailure | CapacityFault] = dict(plan.selection.failures)
    exhausted = 0
    if plan.consumptions:
        verdicts = plan.consumptions
        fitting = 0
        for verdict, having in zip(verdicts, devices.capacity_masks, strict=True):
            if isinstance(verdict, Consumption):
                fitting |= mask & having
            elif isinstance(verdict, CapacityFault):
                failures.update(dict.fromkeys(bit_numbers(mask & having), verdict))
        mask = fitting
        for number in usage.consumed:
            if mask >> number & 1:
                verdict = verdicts[devices.entries[number].capacity]
                assert isinstance(verdict, Consumption)
                if not usage.fits(number, verdict.nano):
                    exhausted |= 1 << number
    plan.failures = failures
    if plan.all:
        fault = _first_fault(plan, claim, devices)
        if fault is not None:
            return fault
        # DIFF: Kubernetes 1.36 omits exhausted shareable devices; in 1.37 and Plimsoll the request fails.
        # Test: test_all_fails_on_an_exhausted_device
        plan.devices = bit_numbers(mask)
        plan.count = len(plan.devices)
        plan.candidates = mask
        return plan
    if failures:
        plan.fault_mask = sum(1 << number for number in failures)
        if not plan.admin:
            plan.fault_mask &= ~usage.taken
    plan.count = body.count
    plan.candidates = mask & ~(exhausted | plan.tainted | usage.blocked)
    if not plan.admin:
        plan.candidates &= ~usage.taken
    return plan


def _first_fault(plan: RequestPlan, claim: str, devices: NodeDevices) -> AllocationFault | None:
    """Return the fault of allocation mode All: the first unusable pool or failing device, in order."""
    first = min(plan.failures, default=None)
    passed = 0
    for pool in devices.pools:
        if pool.status is PoolStatus.COMPLETE:
            passed += sum(len(view.devices) for view in pool.slices)
        elif first is None or first >= passed:
            incomplete = pool.status is PoolStatus.INCOMPLETE
            kind = faults.ALL_INCOMPLETE_POOL if incomplete else faults.ALL_INVALID_POOL
            return AllocationFault(kind, {"claim": claim, "request": plan.request, "pool": pool.id})
    return None if first is None else _fault_of(plan, first, devices, claim)


def _expression_of(plan: RequestPlan, failure: SelectorFailure) -> str:
    """Return the expression of a selector that failed."""
    if not failure.of_class:
        return plan.expressions[failure.index] if plan.expressions else ""
    return plan.device_class.spec.selectors[failure.index].expression


def _fault_of(plan: RequestPlan, device: int, devices: NodeDevices, claim: str) -> AllocationFault:
    failure = plan.failures[device]
    id = devices.entries[device].id
    if isinstance(failure, CapacityFault):
        asked = {"name": failure.name, "wanted": failure.wanted, "negative": failure.negative}
        return AllocationFault(
            faults.CAPACITY, {"claim": claim, "request": plan.request, "device": id, **asked}
        )
    facts: dict[str, Any] = {
        "claim": claim,
        "class": plan.device_class.metadata.name if failure.of_class else "",
        "index": failure.index,
        "expression": _expression_of(plan, failure),
        "device": id,
        "error": failure.error,
    }
    if isinstance(failure.error, CelCompileError):
        return AllocationFault(faults.CEL_COMPILE, facts)
    if isinstance(failure.error, CelRuntimeError):
        return AllocationFault(faults.CEL_RUNTIME, facts)
    slice_name = devices.entries[device].view.name
    return AllocationFault(faults.NODE_SELECTION, {"slice": slice_name, "problem": failure.error})
