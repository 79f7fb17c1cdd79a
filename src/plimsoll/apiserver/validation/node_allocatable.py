"""Validation of node-allocatable resources of devices and classes, in the three wire forms.

Covers `nodeAllocatableResourceMappings` (1.36; docs/spec/api.md, "ResourceSlice"), `nodeAllocatableResources`
(1.37; docs/spec/accounting.md, "Changes in 1.37"), `nativeResourceMappings` (the earlier draft of KEP-5517)
and the accounting policies (KEP-5517; docs/spec/accounting.md, "Accounting policies").

- DIFF: a device in more than one form is rejected (test_a_device_uses_one_form).
- DIFF: a mapping to `pods` is rejected, because claims are not charged for it (test_pods_cannot_be_mapped).
- DIFF: the 1.37 and draft forms and the accounting policies are validated; Kubernetes 1.36 has none
  of these fields (test_newer_form_of_a_device, test_draft_form_of_a_device,
  test_accounting_policy_of_a_mapping, test_accounting_policies_of_a_class).
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.forms import POLICIES, device_forms
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    Device,
    DeviceClassSpec,
    NativeResourceMapping,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
    ResourceMapping,
)
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import is_node_allocatable

_NAME_RULE = "must be a resource of the node, such as cpu, memory or hugepages-2Mi"


def validate_resource_name(name: str, path: FieldPath) -> FieldErrors:
    if not is_node_allocatable(name):
        yield invalid(path, name, _NAME_RULE)


def validate_newer_resource_name(name: str, path: FieldPath) -> FieldErrors:
    """Validate a resource name of the 1.37 form, which is limited to cpu, memory and hugepages."""
    if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
        yield invalid(path, name, "must be cpu, memory or a hugepages-<size>")


def validate_policy(policy: str, path: FieldPath) -> FieldErrors:
    if policy and policy not in POLICIES:
        yield not_supported(path, policy, POLICIES)


def validate_not_negative(amount: Quantity | None, path: FieldPath) -> FieldErrors:
    if amount is not None and amount.sign() < 0:
        yield invalid(path, amount, "must not be negative")


def _validate_positive(amount: Quantity | None, path: FieldPath) -> FieldErrors:
    if amount is not None and amount.sign() <= 0:
        yield invalid(path, amount, "must be larger than zero")


# -- devices


def validate_device_forms(device: Device, path: FieldPath) -> FieldErrors:
    """Validate the mappings of a device in any form, and that it uses only one form."""
    forms = device_forms(device)
    if len(forms) > 1:
        listed = ", ".join(form.value for form in forms)
        detail = (
            "must have one of nodeAllocatableResources, nodeAllocatableResourceMappings "
            "and nativeResourceMappings"
        )
        yield invalid(path, f"forms {listed}", detail)
    at = path.child("nodeAllocatableResourceMappings")
    for name, mapping in device.node_allocatable_resource_mappings.items():
        yield from _validate_mapped_name(name, at.key(name))
        yield from _validate_mapping(mapping, device, at.key(name))
    at = path.child("nodeAllocatableResources")
    for name, resource in device.node_allocatable_resources.items():
        yield from validate_newer_resource_name(name, at.key(name))
        yield from _validate_resource(resource, device, at.key(name))
    at = path.child("nativeResourceMappings")
    for name, native in device.native_resource_mappings.items():
        yield from _validate_mapped_name(name, at.key(name))
        yield from _validate_native(native, device, at.key(name))


def _validate_mapped_name(name: str, path: FieldPath) -> FieldErrors:
    yield from validate_resource_name(name, path)
    if name == "pods":
        yield invalid(path, name, "must not be pods, which devices cannot be charged for")


def _validate_capacity_key(key: str, device: Device, path: FieldPath) -> FieldErrors:
    """Require the key in the device's capacity exactly as written; no domain is added to it."""
    if not key:
        yield invalid(path, "", "must not be empty; leave it out instead")
    elif key not in device.capacity:
        yield not_found(path, key, "must be a capacity of the device, spelled the same")


def _validate_mapping(
    mapping: NodeAllocatableResourceMapping, device: Device, path: FieldPath
) -> FieldErrors:
    yield from _validate_positive(mapping.allocation_multiplier, path.child("allocationMultiplier"))
    if mapping.capacity_key is not None:
        yield from _validate_capacity_key(mapping.capacity_key, device, path.child("capacityKey"))
    yield from validate_policy(mapping.accounting_policy, path.child("accountingPolicy"))


def _validate_resource(resource: NodeAllocatableResource, device: Device, path: FieldPath) -> FieldErrors:
    if resource.mapping is None and resource.overhead is None:
        yield required(path, "must have mapping or overhead")
    if resource.mapping is not None:
        yield from _validate_newer_mapping(resource.mapping, device, path.child("mapping"))
    overhead, at = resource.overhead, path.child("overhead")
    if overhead is not None:
        if overhead.per_pod is None and overhead.per_container is None:
            yield required(at, "must have perPod or perContainer")
        yield from validate_not_negative(overhead.per_pod, at.child("perPod"))
        yield from validate_not_negative(overhead.per_container, at.child("perContainer"))
    yield from validate_policy(resource.accounting_policy, path.child("accountingPolicy"))


def _validate_newer_mapping(mapping: ResourceMapping, device: Device, path: FieldPath) -> FieldErrors:
    """Validate a mapping: a quantity per unit of a capacity, or a quantity per device."""
    if mapping.capacity_key is not None:
        yield from _validate_capacity_key(mapping.capacity_key, device, path.child("capacityKey"))
        if mapping.capacity_multiplier is None:
            yield required(path.child("capacityMultiplier"), "must be given along with capacityKey")
        if mapping.device_multiplier is not None:
            yield forbidden(path.child("deviceMultiplier"), "must not be given along with capacityKey")
    elif mapping.capacity_multiplier is not None:
        yield required(path.child("capacityKey"), "must be given along with capacityMultiplier")
    elif mapping.device_multiplier is None:
        yield required(path, "must have capacityKey and capacityMultiplier, or deviceMultiplier")
    yield from _validate_positive(mapping.capacity_multiplier, path.child("capacityMultiplier"))
    yield from _validate_positive(mapping.device_multiplier, path.child("deviceMultiplier"))


def _validate_native(mapping: NativeResourceMapping, device: Device, path: FieldPath) -> FieldErrors:
    source, at = mapping.quantity_from, path.child("quantityFrom")
    detail = "must have exactly one of perInstanceQuantity and capacity"
    if source is None or (source.per_instance_quantity is None and source.capacity is None):
        yield required(at, detail)
    else:
        if source.per_instance_quantity is not None and source.capacity is not None:
            yield invalid(at, "both", detail)
        yield from _validate_positive(source.per_instance_quantity, at.child("perInstanceQuantity"))
        if source.capacity is not None:
            yield from _validate_capacity_key(source.capacity, device, at.child("capacity"))
    yield from validate_policy(mapping.accounting_policy, path.child("accountingPolicy"))


# -- classes


def validate_class_policies(spec: DeviceClassSpec, path: FieldPath) -> FieldErrors:
    """Validate the accounting policies of a class, in the current or the draft's field, but not both."""
    yield from _validate_policies(
        spec.node_allocatable_resource_accounting_policies,
        path.child("nodeAllocatableResourceAccountingPolicies"),
    )
    at = path.child("nativeResourceAccountingPolicies")
    yield from _validate_policies(spec.native_resource_accounting_policies, at)
    if spec.native_resource_accounting_policies and spec.node_allocatable_resource_accounting_policies:
        yield invalid(at, None, "must not be given along with nodeAllocatableResourceAccountingPolicies")
    if spec.manages_native_resources is not None and spec.manages_node_allocatable_resources is not None:
        detail = "must not be given along with managesNodeAllocatableResources"
        yield invalid(path.child("managesNativeResources"), spec.manages_native_resources, detail)


def _validate_policies(policies: Mapping[str, str], path: FieldPath) -> FieldErrors:
    for name, policy in policies.items():
        yield from validate_resource_name(name, path.key(name))
        if policy not in POLICIES:
            yield not_supported(path.key(name), policy, POLICIES)
