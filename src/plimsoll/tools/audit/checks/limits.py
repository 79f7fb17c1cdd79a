"""Checks of the limits of the API: devices and reservations of a claim, and the sizes of lists.

An API server refuses objects beyond the limits; a dump may contain them. A claim at a limit is worth knowing:
the next device or pod does not fit. See docs/spec/api.md, "Limits".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from plimsoll.allocator import AllocationFault
from plimsoll.api.resource import (
    ALL,
    MAX_ALLOCATION_RESULTS,
    Device,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSliceSpec,
)
from plimsoll.apiserver.validation.claim_configuration import CONFIGURATIONS_MAX, REQUESTS_MAX
from plimsoll.apiserver.validation.device_capacity import POLICIES_MAX, VALUES_MAX
from plimsoll.apiserver.validation.device_selectors import SELECTORS_MAX
from plimsoll.apiserver.validation.devices import (
    CONDITIONS_MAX,
    CONSUMPTIONS_MAX,
    COUNTERS_MAX,
    KEYS_MAX,
    TAINTS_MAX,
)
from plimsoll.apiserver.validation.resource_claim_status import CONSUMERS_MAX
from plimsoll.apiserver.validation.resource_claims import ALTERNATIVES_MAX, CONSTRAINTS_MAX
from plimsoll.apiserver.validation.resource_slices import COUNTER_SETS_MAX, max_devices
from plimsoll.tools.audit.facts import AuditFacts, subject_of
from plimsoll.tools.audit.findings import AuditSeverity, Check, CheckProblem
from plimsoll.tools.audit.identity_cache import IdentityCache

#: Number of reservations from which a claim is reported.
RESERVED_MANY = 231
_FEWER = "request fewer devices, or one device with capacity (CPUs in grouped mode)"


def find_limits(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim in facts.claims.values():
        yield from _check_reservations(claim)
        if claim.status.allocation is not None:
            yield from _check_results(claim)
        else:
            yield from _check_requested(facts, claim, claim.spec)
    for template in facts.templates.values():
        yield from _check_requested(facts, template, template.spec.spec)


# -- reservations and devices


def _check_reservations(claim: ResourceClaim) -> Iterator[CheckProblem]:
    reserved = len(claim.status.reserved_for)
    if reserved < RESERVED_MANY:
        return
    rest = CONSUMERS_MAX - reserved
    message = f"is reserved for {reserved} of at most {CONSUMERS_MAX} pods"
    if rest < 0:
        message, left, severity = f"{message}, {-rest} over", "", AuditSeverity.ERROR
    elif not rest:
        left, severity = "the next pod that uses it stays pending", AuditSeverity.WARNING
    else:
        left, severity = f"{rest} reservations left", AuditSeverity.INFO
    evidence = (left,) if left else ()
    fix = "spread the pods over several claims"
    yield CheckProblem(subject_of(claim), message, evidence, fix, "reservedFor", severity)


def _check_results(claim: ResourceClaim) -> Iterator[CheckProblem]:
    held = len(claim.allocation_results)
    if held >= MAX_ALLOCATION_RESULTS:
        yield _describe_devices(claim, "holds", held, "no API server stores such an allocation")


def _check_requested(facts: AuditFacts, thing: object, spec: ResourceClaimSpec) -> Iterator[CheckProblem]:
    """Yield a problem if a claim or template requests as many devices as a claim can have, or more.

    The smallest subrequest of a prioritized list counts, and for allocation mode All the devices of each
    node; the node with the fewest counts.
    """
    fixed = sum(_smallest(request) for request in spec.devices.requests)
    all_devices = [body for request in spec.devices.requests if (body := _only_all(request)) is not None]
    counts = _count_all(facts, all_devices) if all_devices and fixed <= MAX_ALLOCATION_RESULTS else {}
    if not counts:
        # A template is not a claim yet: it is reported only if its claims cannot be allocated.
        is_claim = isinstance(thing, ResourceClaim)
        if fixed > MAX_ALLOCATION_RESULTS or (is_claim and fixed == MAX_ALLOCATION_RESULTS):
            yield _describe_devices(thing, "requests", fixed, "it cannot be allocated")
        return
    node = min(counts, key=lambda name: (counts[name], name))
    wanted = fixed + counts[node]
    if wanted > MAX_ALLOCATION_RESULTS:
        where = "every node" if len(counts) > 1 else f"node {node}"
        yield _describe_devices(
            thing,
            "requests",
            wanted,
            f"it cannot be allocated on {where}",
            f"all matching devices of node {node}",
        )


def _smallest(request: DeviceRequest) -> int:
    choices = [request.exactly] if request.exactly is not None else request.first_available
    return min((0 if each.allocation_mode == ALL else each.count or 1 for each in choices), default=0)


def _only_all(request: DeviceRequest) -> ExactDeviceRequest | DeviceSubRequest | None:
    """Return a request for all devices, unless other subrequests can serve it."""
    choices = [request.exactly] if request.exactly is not None else request.first_available
    return choices[0] if len(choices) == 1 and choices[0].allocation_mode == ALL else None


def _count_all(facts: AuditFacts, bodies: list[ExactDeviceRequest | DeviceSubRequest]) -> dict[str, int]:
    """Return how many devices match requests for all devices, by node; only nodes that have some."""
    counts: dict[str, int] = {}
    inventory = facts.cluster_state.snapshot.inventory
    for name, node in facts.nodes.items():
        devices_of_node = inventory.devices_for(node)
        if isinstance(devices_of_node, AllocationFault):
            continue
        total = 0
        for body in bodies:
            device_class = facts.classes.get(body.device_class_name)
            if device_class is None:
                return {}
            total += devices_of_node.select(
                tuple(each.cel.expression for each in device_class.spec.selectors if each.cel is not None),
                tuple(each.cel.expression for each in body.selectors if each.cel is not None),
            ).mask.bit_count()
        if total:
            counts[name] = total
    return counts


def _describe_devices(
    thing: object, verb: str, count: int, consequence: str, evidence: str = ""
) -> CheckProblem:
    over = count - MAX_ALLOCATION_RESULTS
    message = f"{verb} {count} of at most {MAX_ALLOCATION_RESULTS} devices"
    if over > 0:
        message += f", {over} over: {consequence}"
    severity = AuditSeverity.INFO
    if over > 0:
        severity = AuditSeverity.ERROR if verb == "holds" else AuditSeverity.WARNING
    found = (evidence,) if evidence else () if over > 0 else ("no further device fits into the claim",)
    return CheckProblem(subject_of(thing), message, found, _FEWER, "results", severity)


# -- lists


class _LongList(NamedTuple):
    """List with more entries than allowed."""

    path: str
    length: int
    limit: int


def find_lists_too_long(facts: AuditFacts) -> Iterator[CheckProblem]:
    long: IdentityCache[list[_LongList]] = IdentityCache()  # of specs and devices, which many objects share
    for claim in facts.claims.values():
        found = long.get(claim.spec, partial(_long_spec_lists, claim.spec))
        allocation = claim.status.allocation
        if found or (allocation is not None and allocation.devices.config):  # few claims
            yield from _describe_lists(claim, [*found, *_allocation_lists(claim)])
    for template in facts.templates.values():
        yield from _describe_lists(template, _spec_lists(template.spec.spec, "spec.spec.devices"))
    for device_class in facts.classes.values():
        yield from _describe_lists(device_class, _class_lists(device_class))
    for each in facts.slices:
        devices = each.spec.devices or ()
        found = long.get(devices, partial(_long_device_lists, devices))
        if found or each.spec.shared_counters:  # few slices
            yield from _describe_lists(each, [*_slice_lists(each.spec), *found])


def _describe_lists(thing: object, lists: Iterable[_LongList]) -> Iterator[CheckProblem]:
    for path, length, limit in lists:
        yield CheckProblem(
            subject_of(thing),
            f"{path} has {length} entries of at most {limit}, {length - limit} over",
            key=path,
        )


def _allocation_lists(claim: ResourceClaim) -> Iterator[_LongList]:
    allocation = claim.status.allocation
    if allocation is not None and (length := len(allocation.devices.config)) > 2 * CONFIGURATIONS_MAX:
        yield _LongList("status.allocation.devices.config", length, 2 * CONFIGURATIONS_MAX)


def _spec_lists(spec: ResourceClaimSpec, root: str) -> Iterator[_LongList]:
    claim = spec.devices
    if (length := len(claim.requests)) > REQUESTS_MAX:
        yield _LongList(f"{root}.requests", length, REQUESTS_MAX)
    if (length := len(claim.constraints)) > CONSTRAINTS_MAX:
        yield _LongList(f"{root}.constraints", length, CONSTRAINTS_MAX)
    if (length := len(claim.config)) > CONFIGURATIONS_MAX:
        yield _LongList(f"{root}.config", length, CONFIGURATIONS_MAX)
    for index, constraint in enumerate(claim.constraints):
        if (length := len(constraint.requests)) > REQUESTS_MAX:
            yield _LongList(f"{root}.constraints[{index}].requests", length, REQUESTS_MAX)
    for index, config in enumerate(claim.config):
        if (length := len(config.requests)) > REQUESTS_MAX:
            yield _LongList(f"{root}.config[{index}].requests", length, REQUESTS_MAX)
    for index, request in enumerate(claim.requests):
        path = f"{root}.requests[{index}]"
        if (length := len(request.first_available)) > ALTERNATIVES_MAX:
            yield _LongList(f"{path}.firstAvailable", length, ALTERNATIVES_MAX)
        if request.exactly is not None and (length := len(request.exactly.selectors)) > SELECTORS_MAX:
            yield _LongList(f"{path}.exactly.selectors", length, SELECTORS_MAX)
        for number, alternative in enumerate(request.first_available):
            if (length := len(alternative.selectors)) > SELECTORS_MAX:
                yield _LongList(f"{path}.firstAvailable[{number}].selectors", length, SELECTORS_MAX)


def _class_lists(device_class: DeviceClass) -> Iterator[_LongList]:
    if (length := len(device_class.spec.selectors)) > SELECTORS_MAX:
        yield _LongList("spec.selectors", length, SELECTORS_MAX)
    if (length := len(device_class.spec.config)) > CONFIGURATIONS_MAX:
        yield _LongList("spec.config", length, CONFIGURATIONS_MAX)


def _slice_lists(spec: ResourceSliceSpec) -> Iterator[_LongList]:
    if (length := len(spec.shared_counters or ())) > COUNTER_SETS_MAX:
        yield _LongList("spec.sharedCounters", length, COUNTER_SETS_MAX)
    for counter_set in spec.shared_counters or ():
        if (length := len(counter_set.counters)) > COUNTERS_MAX:
            yield _LongList(f"spec.sharedCounters[{counter_set.name}].counters", length, COUNTERS_MAX)


def _long_spec_lists(spec: ResourceClaimSpec) -> list[_LongList]:
    return [*_spec_lists(spec, "spec.devices")]


def _long_device_lists(devices: tuple[Device, ...]) -> list[_LongList]:
    found = [entry for device in devices for entry in _device_lists(device)]
    if (length := len(devices)) > max_devices(devices):
        found.insert(0, _LongList("spec.devices", length, max_devices(devices)))
    return found


def _device_lists(device: Device) -> Iterator[_LongList]:
    lengths = (
        (".attributes and capacity", len(device.attributes) + len(device.capacity), KEYS_MAX),
        (".taints", len(device.taints), TAINTS_MAX),
        (".consumesCounters", len(device.consumes_counters), CONSUMPTIONS_MAX),
        (".bindingConditions", len(device.binding_conditions), CONDITIONS_MAX),
        (".requestPolicies", len(device.request_policies), POLICIES_MAX),
    )
    for path, length, limit in lengths:
        if length > limit:
            yield _LongList(f"spec.devices[{device.name}]{path}", length, limit)
    for name, entry in device.capacity.items():
        if entry.request_policy is not None and (n := len(entry.request_policy.valid_values)) > VALUES_MAX:
            path = f"spec.devices[{device.name}].capacity[{name}].requestPolicy.validValues"
            yield _LongList(path, n, VALUES_MAX)


CHECKS = (
    Check(
        "PLM045",
        "claim-limits",
        AuditSeverity.WARNING,
        "a claim is at or above its limits",
        "A claim can be reserved for 256 pods and can have 32 devices. Further pods stay pending; a claim "
        "for more devices cannot be allocated (64 CPUs as separate devices do not fit, one device of 64 "
        "does). Info if a claim has all the devices it can have; an error if it has more, which no API "
        "server stores.",
        "use several claims, or devices with capacity",
        find_limits,
        ("resourceclaims",),
    ),
    Check(
        "PLM047",
        "list-too-long",
        AuditSeverity.ERROR,
        "a list in a claim, template, class or slice has more entries than the API allows",
        "Requests, subrequests, selectors, constraints and configurations of a claim are limited, and so are "
        "the devices of a slice with their attributes, capacities, counters and taints. No API server "
        "accepts the object: the dump was written by hand or by a generator.",
        "split the object",
        find_lists_too_long,
    ),
)
