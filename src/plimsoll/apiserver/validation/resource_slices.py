"""Validation of ResourceSlice (docs/spec/api.md, "ResourceSlice")."""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.gates import Gates
from plimsoll.api.resource import CounterSet, Device, ResourcePool, ResourceSliceSpec, find_attribute
from plimsoll.apiserver.validation.device_attributes import has_lists
from plimsoll.apiserver.validation.devices import (
    validate_counters,
    validate_device,
    validate_skipped_operations,
)
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid, required, validate_set
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import (
    validate_driver,
    validate_fully_qualified_name,
    validate_label,
    validate_pool,
)
from plimsoll.apiserver.validation.node_selectors import validate_node_name, validate_node_selector

DEVICES_MAX = 128
DEVICES_MAX_WITH_EXTRAS = 64
COUNTER_SETS_MAX = 8

_SPEC = FieldPath("spec")


def validate_slice_spec(
    spec: ResourceSliceSpec, old: ResourceSliceSpec | None, gates: Gates | None = None
) -> FieldErrors:
    """Validate the spec of a slice; with `old` also its immutable fields."""
    gates = gates or Gates.default()
    yield from validate_driver(spec.driver, _SPEC.child("driver"))
    yield from _validate_pool(spec.pool, _SPEC.child("pool"))
    if old is not None:
        if spec.pool.name != old.pool.name:
            yield invalid(_SPEC.child("pool", "name"), spec.pool.name, IMMUTABLE)
        if spec.driver != old.driver:
            yield invalid(_SPEC.child("driver"), spec.driver, IMMUTABLE)
        if spec.node_name != old.node_name:
            yield invalid(_SPEC.child("nodeName"), spec.node_name, IMMUTABLE)
    yield from _validate_nodes(spec)
    if spec.shared_counters is not None and spec.devices is not None:
        yield invalid(_SPEC, None, "must have sharedCounters or devices, not both, not even empty")
    yield from _validate_devices(spec, old, gates.enabled("DRAFractionalCapacityRange"))
    yield from validate_set(
        spec.shared_counters or (),
        COUNTER_SETS_MAX,
        _validate_counter_set,
        lambda counter_set: counter_set.name,
        _SPEC.child("sharedCounters"),
    )
    if spec.partition_type_attribute is not None:
        yield from _validate_partition_type(spec, spec.partition_type_attribute)
    if spec.skip_node_operations:
        yield from validate_skipped_operations(spec.skip_node_operations, _SPEC)


def _validate_partition_type(spec: ResourceSliceSpec, name: str) -> FieldErrors:
    """Validate that the devices that consume counters have the attribute that names their type."""
    path = _SPEC.child("partitionTypeAttribute")
    counting = [
        (index, device) for index, device in enumerate(spec.devices or ()) if device.consumes_counters
    ]
    if not counting:
        yield invalid(path, name, "needs devices that consume counters")
        return
    errors = list(validate_fully_qualified_name(name, path))
    if errors:
        yield from errors
        return
    for index, device in counting:
        at = _SPEC.child("devices").index(index).child("attributes").key(name)
        attribute = find_attribute(device, spec.driver, name)
        if attribute is None:
            yield required(at, "is named by partitionTypeAttribute, and the device consumes counters")
        elif attribute.string_value is None:
            yield invalid(at, name, "must be a string, because partitionTypeAttribute names it")


def _validate_pool(pool: ResourcePool, path: FieldPath) -> FieldErrors:
    yield from validate_pool(pool.name, path.child("name"))
    if pool.resource_slice_count <= 0:
        yield invalid(path.child("resourceSliceCount"), pool.resource_slice_count, "must be larger than zero")
    if pool.generation < 0:
        yield invalid(path.child("generation"), pool.generation, "must not be negative")


def _validate_nodes(spec: ResourceSliceSpec) -> FieldErrors:
    """Require exactly one way of selecting the nodes of the devices."""
    given = []
    if spec.node_name:
        given.append("nodeName")
        yield from validate_node_name(spec.node_name, _SPEC.child("nodeName"))
    elif spec.node_name is not None:
        yield invalid(_SPEC.child("nodeName"), "", "must not be empty; leave it out instead")
    if spec.node_selector is not None:
        given.append("nodeSelector")
        at = _SPEC.child("nodeSelector")
        yield from validate_node_selector(spec.node_selector, at)
        terms = len(spec.node_selector.node_selector_terms)
        if terms != 1:
            yield invalid(at.child("nodeSelectorTerms"), terms, "must have exactly one term")
    for name, value in (
        ("allNodes", spec.all_nodes),
        ("perDeviceNodeSelection", spec.per_device_node_selection),
    ):
        if value:
            given.append(name)
        elif value is not None:
            yield invalid(_SPEC.child(name), value, "must be true or left out")
    detail = "must have exactly one of nodeName, nodeSelector, allNodes and perDeviceNodeSelection"
    if not given:
        yield required(_SPEC, detail)
    elif len(given) > 1:
        yield invalid(_SPEC, ", ".join(given), detail)


def _validate_devices(
    spec: ResourceSliceSpec, old: ResourceSliceSpec | None, fractional: bool
) -> FieldErrors:
    devices = spec.devices or ()
    before: dict[str, Device] = {}
    for device in (old.devices if old is not None else None) or ():
        before.setdefault(device.name, device)
    selects_nodes = bool(spec.per_device_node_selection)

    def validate_one(device: Device, path: FieldPath) -> FieldErrors:
        return validate_device(
            device, before.get(device.name), path, selects_nodes=selects_nodes, fractional=fractional
        )

    limit = max_devices(devices)
    return validate_set(devices, limit, validate_one, lambda device: device.name, _SPEC.child("devices"))


def max_devices(devices: Iterable[Device]) -> int:
    """Return how many devices a slice with such devices can have."""
    return DEVICES_MAX_WITH_EXTRAS if any(map(_has_extras, devices)) else DEVICES_MAX


def _has_extras(device: Device) -> bool:
    """Report whether a device has taints, counters or list attributes, with which fewer devices fit into a
    slice.
    """
    return bool(device.taints or device.consumes_counters or any(map(has_lists, device.attributes.values())))


def _validate_counter_set(counter_set: CounterSet, path: FieldPath) -> FieldErrors:
    if counter_set.name:
        yield from validate_label(counter_set.name, path.child("name"))
    else:
        yield required(path.child("name"), "must be the name of the counter set")
    if counter_set.counters:
        yield from validate_counters(counter_set.counters, path.child("counters"))
    else:
        yield required(path.child("counters"), "must have at least one counter")
