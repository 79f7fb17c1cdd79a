"""Validation of ResourceClaim status (docs/spec/api.md, "ResourceClaim status").

Covers the preparation of a status write (`drop_deallocated_status_devices`) and the validation after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from plimsoll.api.names import byte_length
from plimsoll.api.resource import (
    MAX_ALLOCATION_RESULTS,
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from plimsoll.apiserver.validation.claim_configuration import (
    CONFIGURATIONS_MAX,
    RequestNames,
    collect_request_names,
    validate_configuration,
    validate_raw_object,
    validate_request_reference,
    validate_request_references,
)
from plimsoll.apiserver.validation.conditions import validate_conditions
from plimsoll.apiserver.validation.devices import validate_binding_conditions, validate_skipped_operations
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    validate_list,
    validate_set,
)
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import (
    canonical_uuid,
    interface_address,
    validate_driver,
    validate_format,
    validate_label,
    validate_pool,
)
from plimsoll.apiserver.validation.node_selectors import validate_node_selector
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.resource_claims import validate_admin_access

CONSUMERS_MAX = 256
CONDITIONS_MAX = 8
ADDRESSES_MAX = 16
INTERFACE_MAX = 256
HARDWARE_MAX = 128

_STATUS = FieldPath("status")
_SOURCES = ("FromClaim", "FromClass")

#: Identity of an allocated device: driver, pool, device and share ID.
DeviceKey: TypeAlias = tuple[str, str, str, str]


def validate_claim_status(claim: ResourceClaim, old: ResourceClaim) -> FieldErrors:
    """Validate the status of a claim after a write to its status subresource."""
    status, before = claim.status, old.status
    allocation, path = status.allocation, _STATUS.child("allocation")
    yield from validate_set(
        status.reserved_for,
        CONSUMERS_MAX,
        _validate_consumer,
        lambda consumer: consumer.uid,
        _STATUS.child("reservedFor"),
    )
    allocated = frozenset(map(_key, allocation.devices.results)) if allocation is not None else frozenset()

    def validate_device(device: AllocatedDeviceStatus, at: FieldPath) -> FieldErrors:
        return _validate_device_status(device, allocated, at)

    yield from validate_set(status.devices, None, validate_device, _key, _STATUS.child("devices"))
    yield from _validate_reservations(status, before, claim.metadata.deletion_timestamp is not None)
    if allocation is not None and before.allocation is not None:
        # An existing allocation is immutable and not validated against newer rules.
        if not semantic_equal(before.allocation, allocation):
            yield invalid(path, None, f"{IMMUTABLE}, only removed as a whole")
    elif allocation is not None:
        yield from _validate_allocation(allocation, collect_request_names(claim.spec.devices), path)


def validate_admin_results(
    claim: ResourceClaim, old: ResourceClaim, namespace_labels: Mapping[str, str] | None
) -> FieldErrors:
    """Validate that the namespace permits admin access in a new allocation; only the first result is
    reported.
    """
    if _first_admin(old.status) is not None:
        return
    index = _first_admin(claim.status)
    if index is not None:
        path = _STATUS.child("allocation", "devices", "results").index(index).child("adminAccess")
        yield from validate_admin_access(path, claim.metadata.namespace, namespace_labels)


def _first_admin(status: ResourceClaimStatus) -> int | None:
    results: Sequence[DeviceRequestAllocationResult] = (
        status.allocation.devices.results if status.allocation is not None else ()
    )
    return next((index for index, result in enumerate(results) if result.admin_access), None)


def drop_deallocated_status_devices(tree: Tree, old: Tree) -> None:
    """Drop from `status.devices` the devices that are no longer allocated; modifies `tree`."""
    status = subtree(tree, "status")
    if "devices" not in status:
        return
    released = _tree_keys(old) - _tree_keys(tree)
    kept = [device for device in status["devices"] if _tree_key(device) not in released]
    if kept:
        status["devices"] = kept
    else:
        del status["devices"]


def _tree_keys(tree: Tree) -> set[DeviceKey]:
    return set(map(_tree_key, subtree(tree, "status", "allocation", "devices").get("results", ())))


def _tree_key(device: Tree) -> DeviceKey:
    return (
        device.get("driver", ""),
        device.get("pool", ""),
        device.get("device", ""),
        device.get("shareID", ""),
    )


def _key(device: DeviceRequestAllocationResult | AllocatedDeviceStatus) -> DeviceKey:
    return device.driver, device.pool, device.device, device.share_id or ""


# -- reservations


def _validate_consumer(consumer: ResourceClaimConsumerReference, path: FieldPath) -> FieldErrors:
    for name, value in (("resource", consumer.resource), ("name", consumer.name), ("uid", consumer.uid)):
        if not value:
            yield required(path.child(name), f"must be the {name} of the consumer")


def _validate_reservations(
    status: ResourceClaimStatus, old: ResourceClaimStatus, deleting: bool
) -> FieldErrors:
    path = _STATUS.child("reservedFor")
    if not status.reserved_for:
        return
    if status.allocation is None:
        yield forbidden(path, "a claim can be reserved only while it is allocated")
    elif deleting and not set(status.reserved_for) <= set(old.reserved_for):
        yield forbidden(path, "no consumer can be added while the claim is being deleted")


# -- allocation


def _validate_allocation(allocation: AllocationResult, names: RequestNames, path: FieldPath) -> FieldErrors:
    """Validate a new allocation; does not check that its devices exist, are free or have the consumed
    capacity.
    """

    def validate_result(result: DeviceRequestAllocationResult, at: FieldPath) -> FieldErrors:
        yield from validate_request_reference(result.request, names, at.child("request"))
        yield from _validate_identity(result, at)
        yield from validate_binding_conditions(
            result.binding_conditions, result.binding_failure_conditions, at
        )
        yield from validate_skipped_operations(result.skip_node_operations, at)

    def validate_config(config: DeviceAllocationConfiguration, at: FieldPath) -> FieldErrors:
        if not config.source:
            yield required(at.child("source"), f"must be one of {', '.join(_SOURCES)}")
        elif config.source not in _SOURCES:
            yield not_supported(at.child("source"), config.source, _SOURCES)
        yield from validate_request_references(config.requests, names, at.child("requests"))
        yield from validate_configuration(config.opaque, at)

    devices = path.child("devices")
    yield from validate_list(
        allocation.devices.results, MAX_ALLOCATION_RESULTS, validate_result, devices.child("results")
    )
    # Class and claim can each contribute the maximum number.
    yield from validate_list(
        allocation.devices.config, 2 * CONFIGURATIONS_MAX, validate_config, devices.child("config")
    )
    if allocation.node_selector is not None:
        yield from validate_node_selector(allocation.node_selector, path.child("nodeSelector"))


def _validate_identity(
    device: DeviceRequestAllocationResult | AllocatedDeviceStatus, path: FieldPath
) -> FieldErrors:
    yield from validate_driver(device.driver, path.child("driver"))
    yield from validate_pool(device.pool, path.child("pool"))
    yield from validate_label(device.device, path.child("device"))
    if device.share_id is not None:
        yield from validate_format(device.share_id, path.child("shareID"), canonical_uuid)


# -- device status


def _validate_device_status(
    device: AllocatedDeviceStatus, allocated: frozenset[DeviceKey], path: FieldPath
) -> FieldErrors:
    yield from _validate_identity(device, path)
    if _key(device) not in allocated:
        detail = "must be a device of the allocation: same driver, pool, device and shareID"
        yield invalid(path, "/".join(filter(None, _key(device))), detail)
    yield from validate_conditions(device.conditions, CONDITIONS_MAX, path.child("conditions"))
    if device.data is not None:
        yield from validate_raw_object(device.data, path.child("data"))
    if device.network_data is not None:
        yield from _validate_network(device.network_data, path.child("networkData"))


def _validate_network(data: NetworkDeviceData, path: FieldPath) -> FieldErrors:
    if byte_length(data.interface_name) > INTERFACE_MAX:
        yield too_long(path.child("interfaceName"), INTERFACE_MAX)
    if byte_length(data.hardware_address) > HARDWARE_MAX:
        yield too_long(path.child("hardwareAddress"), HARDWARE_MAX)

    def validate_address(address: str, at: FieldPath) -> FieldErrors:
        return validate_format(address, at, interface_address)

    yield from validate_set(
        data.ips, ADDRESSES_MAX, validate_address, lambda address: address, path.child("ips")
    )
