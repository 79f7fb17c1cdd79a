"""Device rules in the three wire forms (KEP-5517, device API, and its earlier draft; docs/spec/keps.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from plimsoll.api.forms.internal import DeviceRule, Form, FormWriteResult, record_loss, record_overhead_loss
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    Device,
    NativeResourceMapping,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
    QuantitySource,
    ResourceMapping,
    ResourceOverhead,
)

ONE = Quantity.of(1)
#: Fields of a device with its mappings, one per form.
MAPPING_FIELDS = ("nodeAllocatableResources", "nodeAllocatableResourceMappings", "nativeResourceMappings")


def device_forms(device: Device) -> tuple[Form, ...]:
    """Return the forms a device uses, newest first: none, one, or (invalid) several."""
    newer, older = device.node_allocatable_resources, device.node_allocatable_resource_mappings
    draft = device.native_resource_mappings
    if not (newer or older or draft):  # most devices
        return ()
    present = ((Form.V1_37, newer), (Form.V1_36, older), (Form.DRAFT, draft))
    return tuple(form for form, value in present if value)


def read_device(device: Device) -> dict[str, DeviceRule]:
    """Read the rules of a device by resource name; the newest form wins."""
    if device.node_allocatable_resources:
        return {name: _read_1_37(r) for name, r in device.node_allocatable_resources.items()}
    if device.node_allocatable_resource_mappings:
        return {
            name: DeviceRule(m.capacity_key, m.allocation_multiplier, policy=m.accounting_policy)
            for name, m in device.node_allocatable_resource_mappings.items()
        }
    return {name: _read_draft(m) for name, m in device.native_resource_mappings.items()}


def _read_1_37(resource: NodeAllocatableResource) -> DeviceRule:
    mapping = resource.mapping or ResourceMapping()
    overhead = resource.overhead or ResourceOverhead()
    by_capacity = mapping.capacity_key is not None
    return DeviceRule(
        mapping.capacity_key,
        mapping.capacity_multiplier if by_capacity else mapping.device_multiplier,
        resource.mapping is not None,
        overhead.per_pod,
        overhead.per_container,
        resource.accounting_policy,
    )


def _read_draft(mapping: NativeResourceMapping) -> DeviceRule:
    source = mapping.quantity_from
    if source is None:
        return DeviceRule(mapped=False, policy=mapping.accounting_policy)
    return DeviceRule(source.capacity, source.per_instance_quantity, policy=mapping.accounting_policy)


def write_device(device: Device, rules: Mapping[str, DeviceRule], form: Form) -> FormWriteResult[Device]:
    """Return the device with its rules in this form only."""
    losses: list[str] = []
    write = _DEVICE_WRITERS[form]
    entries = {name: write(rule, f"{device.name}: {name}", losses) for name, rule in rules.items()}
    fields: dict[str, Any] = {
        "node_allocatable_resource_mappings": {},
        "node_allocatable_resources": {},
        "native_resource_mappings": {},
    }
    fields[_DEVICE_FIELDS[form]] = {name: entry for name, entry in entries.items() if entry is not None}
    return FormWriteResult(replace(device, **fields), tuple(losses))


def _write_device_1_36(
    rule: DeviceRule, where: str, losses: list[str]
) -> NodeAllocatableResourceMapping | None:
    record_overhead_loss(rule.per_pod, rule.per_container, where, losses)
    if not rule.mapped:
        record_loss(rule.policy, f"{where}: accountingPolicy {rule.policy} without a mapping", losses)
        return None
    return NodeAllocatableResourceMapping(
        capacity_key=rule.capacity_key,
        allocation_multiplier=rule.multiplier,
        accounting_policy=rule.policy,
    )


def _write_device_1_37(rule: DeviceRule, where: str, losses: list[str]) -> NodeAllocatableResource:
    mapping = overhead = None
    if rule.mapped and rule.capacity_key is not None:
        # 1.37 requires the multiplier; in 1.36 and the draft an absent one means 1.
        mapping = ResourceMapping(
            capacity_key=rule.capacity_key,
            capacity_multiplier=ONE if rule.multiplier is None else rule.multiplier,
        )
    elif rule.mapped:
        mapping = ResourceMapping(device_multiplier=rule.multiplier)
    if rule.per_pod is not None or rule.per_container is not None:
        overhead = ResourceOverhead(per_pod=rule.per_pod, per_container=rule.per_container)
    return NodeAllocatableResource(mapping=mapping, overhead=overhead, accounting_policy=rule.policy)


def _write_device_draft(rule: DeviceRule, where: str, losses: list[str]) -> NativeResourceMapping:
    record_overhead_loss(rule.per_pod, rule.per_container, where, losses)
    if not rule.mapped:
        return NativeResourceMapping(accounting_policy=rule.policy)
    if rule.capacity_key is None:
        source = QuantitySource(per_instance_quantity=rule.multiplier)
    else:
        source = QuantitySource(capacity=rule.capacity_key)
        if rule.multiplier is not None and rule.multiplier != ONE:
            losses.append(f"{where}: multiplier {rule.multiplier} of capacity {rule.capacity_key}")
    return NativeResourceMapping(quantity_from=source, accounting_policy=rule.policy)


_DEVICE_FIELDS = {
    Form.V1_36: "node_allocatable_resource_mappings",
    Form.V1_37: "node_allocatable_resources",
    Form.DRAFT: "native_resource_mappings",
}
_DEVICE_WRITERS: dict[Form, Callable[[DeviceRule, str, list[str]], Any]] = {
    Form.V1_36: _write_device_1_36,
    Form.V1_37: _write_device_1_37,
    Form.DRAFT: _write_device_draft,
}
