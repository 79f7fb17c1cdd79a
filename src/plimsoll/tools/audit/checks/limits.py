"""Checks of the limits of the API: devices and reservations of a claim.

A claim at a limit is worth knowing: the next device or pod does not fit. See docs/spec/api.md, "Limits".
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.allocator import AllocationFault
from plimsoll.api.resource import (
    ALL,
    MAX_ALLOCATION_RESULTS,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    expressions_of,
)
from plimsoll.apiserver.validation.resource_claim_status import CONSUMERS_MAX
from plimsoll.tools.audit.facts import AuditFacts, subject_of
from plimsoll.tools.audit.findings import CheckProblem
from plimsoll.tools.findings import Severity

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
        message, left, severity = f"{message}, {-rest} over", "", Severity.ERROR
    elif not rest:
        left, severity = "the next pod that uses it stays pending", Severity.WARNING
    else:
        left, severity = f"{rest} reservations left", Severity.INFO
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
                expressions_of(device_class.spec.selectors),
                expressions_of(body.selectors),
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
    severity = Severity.INFO
    if over > 0:
        severity = Severity.ERROR if verb == "holds" else Severity.WARNING
    found = (evidence,) if evidence else () if over > 0 else ("no further device fits into the claim",)
    return CheckProblem(subject_of(thing), message, found, _FEWER, "results", severity)


CHECKS = {
    "PLM045": find_limits,
}
