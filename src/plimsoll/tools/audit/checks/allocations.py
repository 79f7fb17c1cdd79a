"""Checks of allocations against their claims: number of devices, selectors, constraints, capacity, node.

The rules are those of the search (`allocator/allocation_check.py`). See docs/spec/allocator.md, "Search",
"Constraints" and "Consumable capacity".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from plimsoll.allocator.allocation_check import (
    AlternativesMixed,
    ConstraintBroken,
    ConsumedTooLittle,
    CountMismatch,
    CountViolation,
    PublishedDevice,
    SelectorUnmet,
    UnknownRequest,
    Violation,
    find_misplaced_devices,
    find_violations,
)
from plimsoll.api.core import Node, Pod
from plimsoll.api.node_selection import NAME_FIELD, selector_matches
from plimsoll.api.resource import ResourceClaim
from plimsoll.cel import ProgramCache
from plimsoll.tools.amounts import format_quantity
from plimsoll.tools.audit.facts import AuditFacts, HeldDevice, shared, subject_of
from plimsoll.tools.audit.findings import MAX_LISTED, CheckProblem, list_first
from plimsoll.tools.audit.remedies import allocate_again
from plimsoll.tools.columns import format_count
from plimsoll.tools.findings import Severity


@shared
def _violations(facts: AuditFacts) -> tuple[tuple[ResourceClaim, Violation], ...]:
    """Return the violations of all allocated claims, computed once for all checks."""
    programs, features = ProgramCache(), facts.cluster_state.snapshot.features
    correct: set[tuple[object, ...]] = set()  # contents of allocations without violations
    found: list[tuple[ResourceClaim, Violation]] = []
    for key, claim in facts.claims.items():
        content = _allocation_content(claim, facts.allocated.get(key, ()))
        if content in correct:
            continue
        violations = [*find_violations(claim, facts.find_device, facts.classes, features, programs)]
        found += ((claim, violation) for violation in violations)
        if not violations:
            correct.add(content)
    return tuple(found)


def _allocation_content(claim: ResourceClaim, held: Iterable[HeldDevice]) -> tuple[object, ...]:
    """Return everything that `find_violations` depends on, apart from names: the spec, and the content of
    the allocated devices. Parts are compared by identity; claims of one template share their spec, and
    machines of one type their devices.
    """
    content: list[object] = [id(claim.spec), claim.status.allocation is None]
    for each in held:
        result = each.result
        devices = 0 if each.slice is None else id(each.slice.spec.devices)
        consumed = [(name, amount.nano) for name, amount in result.consumed_capacity.items()]
        content.append((result.request, result.driver, devices, result.device, *consumed))
    return tuple(content)


# -- number of devices


def find_wrong_counts(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim, violation in _violations(facts):
        if isinstance(violation, CountMismatch | UnknownRequest | AlternativesMixed):
            message = _describe_count(violation)
            yield CheckProblem(
                subject_of(claim),
                message,
                facts.describe_users(claim),
                allocate_again(facts, claim),
                violation.request,
            )


def _describe_count(violation: CountViolation) -> str:
    match violation:
        case UnknownRequest(request, allocated):
            return f"holds {format_count(allocated, 'device')} for request {request}, which it does not have"
        case AlternativesMixed(request, subrequests):
            names = " and ".join(subrequests)
            return f"holds devices of {names}: request {request} can be served by one of them"
        case CountMismatch(request, allocated, None):
            return f"holds {allocated} devices for request {request}: at least 1 is missing"
        case CountMismatch(request, allocated, int(requested)):
            difference = allocated - requested
            text = f"{difference} over" if difference > 0 else f"{-difference} missing"
            return f"holds {format_count(allocated, 'device')} for request {request} of {requested}: {text}"
    raise AssertionError(violation)


# -- selectors and constraints


def find_selectors_unmet(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim, violation in _violations(facts):
        if not isinstance(violation, SelectorUnmet):
            continue
        of_class = violation.device_class
        source = f"class {of_class}" if of_class else f"request {violation.request}"
        outcome = f"fails: {violation.error}" if violation.error else "does not match it"
        yield CheckProblem(
            subject_of(claim),
            f"holds device {violation.device.device} for request {violation.request}, "
            f"but selector {violation.index} of {source} {outcome}",
            (
                f"selector: {' '.join(violation.expression.split())}",
                f"device {violation.device}",
                *facts.describe_users(claim),
            ),
            allocate_again(facts, claim),
            key=f"{violation.device}/{source}/{violation.index}",
            severity=Severity.WARNING if of_class else None,
        )


def find_constraints_broken(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim, violation in _violations(facts):
        if isinstance(violation, ConstraintBroken):
            yield CheckProblem(
                subject_of(claim),
                _describe_constraint(violation),
                (*list_first(_describe_values(violation)), *facts.describe_users(claim)),
                allocate_again(facts, claim),
                key=str(violation.index),
            )


def _describe_constraint(violation: ConstraintBroken) -> str:
    constraint = violation.constraint
    missing = sum(values is None for _, values in violation.values)
    devices = format_count(len(violation.values), "device")
    distinct = len({value for _, values in violation.values for value in values or ()})
    if constraint.match_attribute is not None:
        rule = f"matchAttribute {constraint.match_attribute}"
        problem = f"{devices} with {format_count(distinct, 'different value')} instead of 1 in common"
    else:
        rule = f"distinctAttribute {constraint.distinct_attribute}"
        problem = f"{devices} with only {format_count(distinct, 'different value')}"
    if missing:
        problem = f"{missing} of {devices} without the attribute"
    return f"violates constraint {violation.index} ({rule}): {problem}"


def _describe_values(violation: ConstraintBroken) -> Iterator[str]:
    for id, values in violation.values:
        text = "not set" if values is None else ", ".join(map(str, values)) or "not comparable"
        yield f"device {id}: {text}"


# -- capacity


def find_consumed_too_little(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim, violation in _violations(facts):
        if not isinstance(violation, ConsumedTooLittle):
            continue
        consumed, needed, requested = violation.consumed, violation.needed, violation.requested
        missing = format_quantity(needed - consumed)
        source = "the default of the device"
        if requested is not None:
            source = "requested"
            if requested != needed:
                source = f"{format_quantity(requested)} requested, rounded by the policy"
        yield CheckProblem(
            subject_of(claim),
            f"consumes {format_quantity(consumed)} of capacity {violation.capacity} "
            f"of device {violation.device.device}, "
            f"but needs {format_quantity(needed)} ({source}): {missing} missing",
            (
                f"device {violation.device}, request {violation.request}",
                "the missing amount can be allocated to other claims",
                *facts.describe_users(claim),
            ),
            allocate_again(facts, claim),
            key=f"{violation.device}/{violation.capacity}/{violation.share}",
            severity=None if requested is not None and consumed < requested else Severity.WARNING,
        )


# -- nodes


def find_devices_of_other_nodes(facts: AuditFacts) -> Iterator[CheckProblem]:
    for key, held in facts.allocated.items():
        if _is_local(held, facts.users.get(key, ())):
            continue
        claim = held[0].claim
        for node, pod in _nodes_of(facts, claim):
            misplaced = [*find_misplaced_devices(claim, node, facts.find_device)]
            if not misplaced:
                continue
            evidence = []
            for id in misplaced[:MAX_LISTED]:
                device = facts.find_device(id)
                assert device is not None
                evidence.append(f"device {id} is {_describe_location(device)}")
            if pod is not None:
                evidence.append(f"used by Pod/{pod.metadata.full_name} on {node.metadata.name}")
            names = ", ".join(id.device for id in misplaced)
            yield CheckProblem(
                subject_of(claim),
                f"holds {format_count(len(misplaced), 'device')} that node {node.metadata.name} "
                f"cannot use: {names}",
                tuple(evidence),
                allocate_again(facts, claim),
                key=node.metadata.name,
            )


def _is_local(held: Iterable[HeldDevice], users: Sequence[Pod]) -> bool:
    """Return whether all devices of a claim are local to the node of its only pod, as most are."""
    node = users[0].spec.node_name if len(users) == 1 else ""
    if not node:
        return False
    for each in held:
        if each.slice is None:
            return False
        spec = each.slice.spec
        if spec.node_name != node or spec.per_device_node_selection:
            return False
    return True


def _nodes_of(facts: AuditFacts, claim: ResourceClaim) -> Iterator[tuple[Node, Pod | None]]:
    """Yield the nodes where a claim is used, or else those that its allocation names.

    A pod on a node that the allocation does not select is reported by PLM044.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return
    selector = allocation.node_selector
    found: dict[str, Pod | None] = {}
    for pod in facts.users.get(claim.metadata.key, []):
        if pod.spec.node_name:
            found.setdefault(pod.spec.node_name, pod)
    if not found and selector is not None:
        for term in selector.node_selector_terms:
            for field in term.match_fields:
                if field.key == NAME_FIELD and field.operator == "In":
                    found.update(dict.fromkeys(field.values))
    for name, user in found.items():
        node = facts.nodes.get(name)
        if node is not None and (selector is None or selector_matches(selector, node) is True):
            yield node, user


def _describe_location(device: PublishedDevice) -> str:
    spec = device.view.slice.spec
    source = device.device if spec.per_device_node_selection else spec
    return f"on node {source.node_name}" if source.node_name else "on nodes with other labels"


CHECKS = {
    "PLM030": find_wrong_counts,
    "PLM031": find_selectors_unmet,
    "PLM032": find_constraints_broken,
    "PLM033": find_consumed_too_little,
    "PLM034": find_devices_of_other_nodes,
}
