"""Devices of a slice (section 5 of the API semantics)."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.names import LABEL_MAX
from plimsoll.api.resource import Counter, Device, DeviceCounterConsumption
from plimsoll.apiserver.validation.device_attributes import check_attribute, count_values, is_plain
from plimsoll.apiserver.validation.device_capacity import check_exclusive_capacity, check_shared_capacity
from plimsoll.apiserver.validation.device_taints import check_taint
from plimsoll.apiserver.validation.equality import same
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    check_list,
    check_map,
    check_set,
    check_unique,
    invalid,
    required,
)
from plimsoll.apiserver.validation.name_formats import check_label, check_label_key, check_qualified_name
from plimsoll.apiserver.validation.node_allocatable import check_device_forms
from plimsoll.apiserver.validation.node_selectors import check_node_name, check_node_selector

KEYS_MAX = 32
VALUES_MAX = 48
TAINTS_MAX = 16
CONSUMPTIONS_MAX = 2
COUNTERS_MAX = 32
CONDITIONS_MAX = 4
_LONGEST_KEY = 63 + 1 + 32


def check_device(device: Device, old: Device | None, path: Path, *, selects_nodes: bool) -> Problems:
    """A device; `old` is the one of the same name before the update.

    `selects_nodes` says that each device of the slice names its own nodes (perDeviceNodeSelection).
    """
    yield from check_label(device.name, path.child("name"))
    keys = len(device.attributes) + len(device.capacity)
    if keys > KEYS_MAX:
        yield invalid(path, keys, f"must have at most {KEYS_MAX} attributes and capacities together")
    values = count_values(device.attributes.values())
    if values > VALUES_MAX:
        yield invalid(path, values, f"must have at most {VALUES_MAX} attribute values, list items included")
    yield from check_map(
        device.attributes,
        None,
        _LONGEST_KEY,
        check_qualified_name,
        check_attribute,
        path.child("attributes"),
        is_plain,
    )
    yield from check_map(
        device.capacity,
        None,
        _LONGEST_KEY,
        check_qualified_name,
        check_shared_capacity if device.allow_multiple_allocations else check_exclusive_capacity,
        path.child("capacity"),
        lambda capacity: capacity.request_policy is None,
    )
    if device.taints and (old is None or not same(old.taints, device.taints)):
        yield from check_list(device.taints, TAINTS_MAX, check_taint, path.child("taints"))
    if device.consumes_counters:
        yield from check_set(
            device.consumes_counters,
            CONSUMPTIONS_MAX,
            _check_consumption,
            lambda consumption: consumption.counter_set,
            path.child("consumesCounters"),
        )
    yield from _check_nodes(device, path, selects_nodes)
    if device.binding_conditions or device.binding_failure_conditions:
        yield from check_binding_conditions(
            device.binding_conditions, device.binding_failure_conditions, path
        )
    yield from check_device_forms(device, path)


def _check_nodes(device: Device, path: Path, selects_nodes: bool) -> Problems:
    """With per-device selection exactly one way to name nodes, otherwise none."""
    given = [
        name
        for name, value in (
            ("nodeName", device.node_name),
            ("nodeSelector", device.node_selector),
            ("allNodes", device.all_nodes),
        )
        if value is not None
    ]
    if not selects_nodes:
        if given:
            detail = f"{' and '.join(given)} need perDeviceNodeSelection: true in the spec"
            yield invalid(path, ", ".join(given), detail)
        return
    if device.node_name == "":
        yield invalid(path.child("nodeName"), "", "must not be empty; leave it out instead")
    elif device.node_name is not None:
        yield from check_node_name(device.node_name, path.child("nodeName"))
    if device.node_selector is not None:
        yield from check_node_selector(device.node_selector, path.child("nodeSelector"))
    if device.all_nodes is False:
        yield invalid(path.child("allNodes"), False, "must be true or left out")
    count = sum((bool(device.node_name), device.node_selector is not None, bool(device.all_nodes)))
    detail = "must have exactly one of nodeName, nodeSelector and allNodes, as perDeviceNodeSelection is on"
    if count == 0:
        yield required(path, detail)
    elif count > 1:
        yield invalid(path, ", ".join(given), detail)


def _check_consumption(consumption: DeviceCounterConsumption, path: Path) -> Problems:
    at = path.child("counterSet")
    if consumption.counter_set:
        yield from check_label(consumption.counter_set, at)
    else:
        yield required(at, "must be the name of a counter set")
    if consumption.counters:
        yield from check_counters(consumption.counters, path.child("counters"))
    else:
        yield required(path.child("counters"), "must have at least one counter")


def check_counters(counters: dict[str, Counter], path: Path) -> Problems:
    """Counters by name; any amount is taken, and whether a consumed counter exists is not asked."""
    return check_map(counters, COUNTERS_MAX, LABEL_MAX, check_label, lambda counter, at: (), path)


def check_binding_conditions(conditions: Sequence[str], failures: Sequence[str], path: Path) -> Problems:
    """Conditions to wait for before binding: both lists or neither, nothing twice, nothing in both."""
    at, failures_at = path.child("bindingConditions"), path.child("bindingFailureConditions")
    yield from check_list(conditions, CONDITIONS_MAX, check_label_key, at)
    yield from check_list(failures, CONDITIONS_MAX, check_label_key, failures_at)
    yield from check_unique(conditions, at)
    yield from check_unique(failures, failures_at)
    awaited = frozenset(conditions)
    for place, failure in enumerate(failures):
        if failure in awaited:
            yield invalid(failures_at.index(place), failure, "must not also be in bindingConditions")
    if failures and not conditions:
        yield invalid(at, None, "must not be empty when bindingFailureConditions are given")
    if conditions and not failures:
        yield invalid(failures_at, None, "must not be empty when bindingConditions are given")
