"""Devices that a request could get by their driver, and the conditions that its selectors set for them.

Devices of other drivers are no candidates: a NIC is not a GPU that lacks an attribute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from plimsoll.allocator import AllocationFault, Refusal
from plimsoll.allocator.devices.node_devices import NodeDevices, bit_numbers
from plimsoll.allocator.reasons.refusal import RefusalRule, Removal, RequestRefusal
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.resource import DeviceSubRequest, ExactDeviceRequest, expressions_of
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.device_attributes import (
    SHAREABLE,
    SelectorCondition,
    is_for_driver,
    order_by_nearness,
    path_name,
    read_value,
    split_conditions,
    value_text,
)
from plimsoll.tools.explain.pod_view import PodView
from plimsoll.tools.explain.text import StatementKind, pluralize
from plimsoll.tools.explain.tree import Statement

SELECTOR_RULES = (RefusalRule.CLASS_SELECTOR, RefusalRule.REQUEST_SELECTOR)


@dataclass(frozen=True, slots=True)
class RequestSelectors:
    """Class and CEL expressions of one request or subrequest."""

    name: str
    device_class: str = ""
    class_selectors: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()


def read_request_selectors(
    view: PodView, name: str, body: ExactDeviceRequest | DeviceSubRequest
) -> RequestSelectors:
    found = view.snapshot.classes.get(body.device_class_name)
    of_class = found.spec.selectors if found is not None else ()
    return RequestSelectors(
        name, body.device_class_name, expressions_of(of_class), expressions_of(body.selectors)
    )


def find_request_selectors(view: PodView, refused: RequestRefusal) -> RequestSelectors:
    """Return the selectors of the request that was refused."""
    for claim in view.pod_info.claims:
        if claim.metadata.full_name == refused.claim:
            for name, body in device_requests(claim):
                if name == refused.request:
                    return read_request_selectors(view, name, body)
    return RequestSelectors(refused.request)


# -- drivers


def may_serve(selectors: RequestSelectors, driver: str) -> bool:
    """Return whether devices of a driver can match a request, by the conditions on the driver alone."""
    return all(is_for_driver(condition.text, driver) for condition in _driver_conditions(selectors))


def driver_names(selectors: RequestSelectors) -> list[str]:
    """Return the drivers that a request names, or the conditions that they must meet."""
    return [each.wanted or each.text for each in _driver_conditions(selectors)]


def _driver_conditions(selectors: RequestSelectors) -> list[SelectorCondition]:
    expressions = (*selectors.class_selectors, *selectors.selectors)
    return [each for text in expressions for each in split_conditions(text) if each.is_about_driver]


def candidate_mask(selectors: RequestSelectors, devices: NodeDevices) -> int:
    """Return the devices of a node whose driver may serve a request."""
    found = 0
    for pool, numbers in devices.index.items():
        if may_serve(selectors, pool.driver):
            found |= sum(1 << number for number in numbers.values())
    return found


def without_other_drivers(view: PodView, reasons: Sequence[NodeReason], row: int) -> tuple[NodeReason, ...]:
    """Return the reasons of a node without the devices and incomplete pools of drivers that cannot serve the
    requests.
    """
    return tuple(
        replace(reason, cause=_narrowed(view, reason.cause, row))
        if isinstance(reason.cause, Refusal)
        else reason
        for reason in reasons
    )


def _narrowed(view: PodView, refusal: Refusal, row: int) -> Refusal:
    devices = view.snapshot.inventory.devices_for(view.node(row))
    if isinstance(devices, AllocationFault):
        return refusal
    unserved = [request for request in refusal.requests if not request.served]
    asked = [find_request_selectors(view, request) for request in unserved]
    return replace(
        refusal,
        requests=tuple(_narrowed_request(view, request, devices) for request in refusal.requests),
        pools=tuple(
            pool
            for pool in refusal.pools
            if any(may_serve(selectors, pool.pool.driver) for selectors in asked)
        ),
    )


def _narrowed_request(view: PodView, request: RequestRefusal, devices: NodeDevices) -> RequestRefusal:
    selectors = find_request_selectors(view, request)
    candidates = candidate_mask(selectors, devices)
    if candidates == devices.all:
        return request
    removals: list[Removal] = []
    for removal in request.removals:
        if removal.rule in SELECTOR_RULES:
            gone = sum((mask & candidates).bit_count() for _, mask in _removed(selectors, devices, removal))
            removal = replace(removal, count=gone)
        if removal.count:
            removals.append(removal)
    return replace(request, devices=candidates.bit_count(), removals=tuple(removals))


def _removed(
    selectors: RequestSelectors, devices: NodeDevices, removal: Removal
) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the selectors of the class or request, and the devices that each removes."""
    first = len(selectors.class_selectors)
    of_class = removal.rule is RefusalRule.CLASS_SELECTOR
    before = devices.all
    for number, after in enumerate(devices.select(selectors.class_selectors, selectors.selectors).survivors):
        if before & ~after and (number < first) == of_class:
            yield (number if of_class else number - first), before & ~after
        before = after


def describe_selectors(
    selectors: RequestSelectors, devices: NodeDevices, removal: Removal
) -> Iterator[Statement]:
    """Yield the number of candidates that each selector removes, with the conditions that the nearest of them
    do not meet.
    """
    of_class = removal.rule is RefusalRule.CLASS_SELECTOR
    candidates = candidate_mask(selectors, devices)
    for index, gone in _removed(selectors, devices, removal):
        gone &= candidates
        if not gone:
            continue
        expression = (selectors.class_selectors if of_class else selectors.selectors)[index]
        facts: dict[str, object] = {
            "count": gone.bit_count(),
            "expression": expression,
            "index": index,
            "device_class": selectors.device_class,
        }
        kind = StatementKind.CLASS_SELECTOR if of_class else StatementKind.REQUEST_SELECTOR
        yield Statement(kind, facts, tuple(_describe_conditions(expression, devices, gone)))


def _describe_conditions(expression: str, devices: NodeDevices, gone: int) -> Iterator[Statement]:
    """Yield the conditions that the nearest devices fail: those of one driver that fail the fewest."""
    unmet: dict[int, list[SelectorCondition]] = {number: [] for number in bit_numbers(gone)}
    for condition in split_conditions(expression):
        found = devices.select((condition.text,), ())
        for number in bit_numbers(gone & ~(found.survivors[0] if found.survivors else 0)):
            unmet[number].append(condition)
    nearest = min(unmet, key=lambda number: len(unmet[number]))
    driver = devices.entries[nearest].id.driver
    alike = [number for number in unmet if devices.entries[number].id.driver == driver]
    for condition in unmet[nearest]:
        failing = [number for number in alike if condition in unmet[number]]
        yield _describe_condition(condition, devices, driver, failing)


def _describe_condition(
    condition: SelectorCondition, devices: NodeDevices, driver: str, failing: list[int]
) -> Statement:
    entries = [devices.entries[number] for number in failing]
    facts: dict[str, object] = {
        "devices": pluralize(len(failing), "device"),
        "driver": driver,
        "node": devices.node.metadata.name,
        "wanted": condition.wanted or condition.text,
    }
    if condition.reads == (SHAREABLE,) and condition.wanted in ("true", "false"):
        is_wanted = condition.wanted == "true"
        return Statement(StatementKind.WANTS_SHARED if is_wanted else StatementKind.WANTS_EXCLUSIVE, facts)
    if not condition.reads:
        return Statement(StatementKind.CONDITION, facts)
    shown = []
    for path in condition.reads:
        values = Counter(
            "" if value is None else value_text(value)
            for value in (read_value(path, driver, entry.device) for entry in entries)
        )
        absent = values.pop("", 0)
        texts = [f"{text} ({values[text]})" for text in order_by_nearness(list(values), condition.constant)]
        texts += [f"none ({absent})"] if absent else []
        shown.append((path_name(path, driver), tuple(texts)))
    if not condition.wanted:
        texts = [f"{name} {', '.join(values[:3])}" for name, values in shown]
        return Statement(StatementKind.CONDITION_VALUES, facts | {"values": tuple(texts)})
    ((name, present),) = shown
    return Statement(StatementKind.ATTRIBUTE, facts | {"attribute": name, "values": present})
