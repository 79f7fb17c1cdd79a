"""Validation of the devices of a ResourceSlice (docs/spec/api.md, "ResourceSlice")."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plimsoll.api.names import LABEL_MAX
from plimsoll.api.resource import (
    ALL_NODE_OPERATIONS,
    NODE_PREPARE,
    NODE_UNPREPARE,
    Counter,
    Device,
    DeviceCounterConsumption,
)
from plimsoll.apiserver.validation.device_attributes import count_values, is_plain, validate_attribute
from plimsoll.apiserver.validation.device_capacity import (
    validate_exclusive_capacity,
    validate_request_policies,
    validate_shared_capacity,
)
from plimsoll.apiserver.validation.device_taints import validate_taint
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    invalid,
    not_supported,
    required,
    validate_list,
    validate_map,
    validate_set,
    validate_unique,
)
from plimsoll.apiserver.validation.name_formats import (
    validate_label,
    validate_label_key,
    validate_qualified_name,
)
from plimsoll.apiserver.validation.node_allocatable import validate_device_forms
from plimsoll.apiserver.validation.node_selectors import validate_node_name, validate_node_selector

KEYS_MAX = 32
VALUES_MAX = 48
TAINTS_MAX = 16
CONSUMPTIONS_MAX = 2
COUNTERS_MAX = 32
CONDITIONS_MAX = 4
GROUPS_MAX = 2
NODE_OPERATIONS = (ALL_NODE_OPERATIONS, NODE_PREPARE, NODE_UNPREPARE)
_LONGEST_KEY = 63 + 1 + 32


def validate_device(
    device: Device, old: Device | None, path: FieldPath, *, selects_nodes: bool, fractional: bool = False
) -> FieldErrors:
    """Validate a device; `old` is the device of the same name before the update.

    `selects_nodes` is true if each device of the slice selects its own nodes (perDeviceNodeSelection);
    `fractional` is the gate DRAFractionalCapacityRange.
    """
    yield from validate_label(device.name, path.child("name"))
    keys = len(device.attributes) + len(device.capacity)
    if keys > KEYS_MAX:
        yield invalid(path, keys, f"must have at most {KEYS_MAX} attributes and capacities together")
    values = count_values(device.attributes.values())
    if values > VALUES_MAX:
        yield invalid(path, values, f"must have at most {VALUES_MAX} attribute values, list items included")
    yield from validate_map(
        device.attributes,
        None,
        _LONGEST_KEY,
        validate_qualified_name,
        validate_attribute,
        path.child("attributes"),
        is_plain,
    )
    yield from validate_map(
        device.capacity,
        None,
        _LONGEST_KEY,
        validate_qualified_name,
        partial(validate_shared_capacity, device, fractional)
        if device.allow_multiple_allocations
        else validate_exclusive_capacity,
        path.child("capacity"),
        lambda capacity: capacity.request_policy is None,
    )
    if device.request_policies:
        yield from validate_request_policies(device, fractional, path.child("requestPolicies"))
    if device.taints and (old is None or not semantic_equal(old.taints, device.taints)):
        yield from validate_list(device.taints, TAINTS_MAX, validate_taint, path.child("taints"))
    if device.consumes_counters:
        yield from validate_set(
            device.consumes_counters,
            CONSUMPTIONS_MAX,
            _validate_consumption,
            lambda consumption: consumption.counter_set,
            path.child("consumesCounters"),
        )
    yield from _validate_nodes(device, path, selects_nodes)
    if device.binding_conditions or device.binding_failure_conditions:
        yield from validate_binding_conditions(
            device.binding_conditions, device.binding_failure_conditions, path
        )
    yield from validate_device_forms(device, path)


def _validate_nodes(device: Device, path: FieldPath, selects_nodes: bool) -> FieldErrors:
    """Require exactly one node selection with per-device node selection, and none without it."""
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
        yield from validate_node_name(device.node_name, path.child("nodeName"))
    if device.node_selector is not None:
        yield from validate_node_selector(device.node_selector, path.child("nodeSelector"))
    if device.all_nodes is False:
        yield invalid(path.child("allNodes"), False, "must be true or left out")
    count = sum((bool(device.node_name), device.node_selector is not None, bool(device.all_nodes)))
    detail = "must have exactly one of nodeName, nodeSelector and allNodes, as perDeviceNodeSelection is on"
    if count == 0:
        yield required(path, detail)
    elif count > 1:
        yield invalid(path, ", ".join(given), detail)


def _validate_consumption(consumption: DeviceCounterConsumption, path: FieldPath) -> FieldErrors:
    at = path.child("counterSet")
    if consumption.counter_set:
        yield from validate_label(consumption.counter_set, at)
    else:
        yield required(at, "must be the name of a counter set")
    if consumption.counters:
        yield from validate_counters(consumption.counters, path.child("counters"))
    else:
        yield required(path.child("counters"), "must have at least one counter")
    groups = consumption.compatibility_groups
    yield from validate_set(groups, GROUPS_MAX, validate_label, str, path.child("compatibilityGroups"))


def validate_counters(counters: dict[str, Counter], path: FieldPath) -> FieldErrors:
    """Validate counters by name; any value is accepted, and the existence of consumed counters is not
    checked.
    """
    return validate_map(counters, COUNTERS_MAX, LABEL_MAX, validate_label, lambda counter, at: (), path)


def validate_skipped_operations(operations: Sequence[str], path: FieldPath) -> FieldErrors:
    """Validate the node operations that a slice or an allocated device skips."""
    at = path.child("skipNodeOperations")

    def validate_operation(operation: str, where: FieldPath) -> FieldErrors:
        if operation not in NODE_OPERATIONS:
            yield not_supported(where, operation, NODE_OPERATIONS)

    yield from validate_set(operations, None, validate_operation, str, at)
    if NODE_PREPARE in operations and not {NODE_UNPREPARE, ALL_NODE_OPERATIONS} & set(operations):
        yield invalid(at, ", ".join(operations), f"must have {NODE_UNPREPARE} with {NODE_PREPARE}")


def validate_binding_conditions(
    conditions: Sequence[str], failures: Sequence[str], path: FieldPath
) -> FieldErrors:
    """Validate binding conditions: both lists or neither, without duplicates within or across them."""
    at, failures_at = path.child("bindingConditions"), path.child("bindingFailureConditions")
    yield from validate_list(conditions, CONDITIONS_MAX, validate_label_key, at)
    yield from validate_list(failures, CONDITIONS_MAX, validate_label_key, failures_at)
    yield from validate_unique(conditions, at)
    yield from validate_unique(failures, failures_at)
    awaited = frozenset(conditions)
    for index, failure in enumerate(failures):
        if failure in awaited:
            yield invalid(failures_at.index(index), failure, "must not also be in bindingConditions")
    if failures and not conditions:
        yield invalid(at, None, "must not be empty when bindingFailureConditions are given")
    if conditions and not failures:
        yield invalid(failures_at, None, "must not be empty when bindingConditions are given")
