"""The status of claims (section 7 of the API semantics).

Owns what a write to `/status` does to the object first (`forget_released_devices`) and the checks after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from plimsoll.api.names import byte_length
from plimsoll.api.resource import (
    RESULTS_MAX,
    AllocatedDeviceStatus,
    AllocationConfiguration,
    AllocationDevice,
    AllocationResult,
    ClaimConsumer,
    NetworkDeviceData,
    ResourceClaim,
    ResourceClaimStatus,
)
from plimsoll.apiserver.validation.claim_configuration import (
    CONFIGURATIONS_MAX,
    RequestNames,
    check_configuration,
    check_raw_object,
    check_request_reference,
    check_request_references,
    gather_request_names,
)
from plimsoll.apiserver.validation.conditions import check_conditions
from plimsoll.apiserver.validation.devices import check_binding_conditions
from plimsoll.apiserver.validation.equality import same
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    check_list,
    check_set,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import (
    check_driver,
    check_format,
    check_label,
    check_pool,
    interface_address,
    normal_uuid,
)
from plimsoll.apiserver.validation.node_selectors import check_node_selector
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.resource_claims import refuse_admin

CONSUMERS_MAX = 256
CONDITIONS_MAX = 8
ADDRESSES_MAX = 16
INTERFACE_MAX = 256
HARDWARE_MAX = 128

_STATUS = Path("status")
_SOURCES = ("FromClaim", "FromClass")

#: Driver, pool, device and share: what tells allocated devices apart.
DeviceKey: TypeAlias = tuple[str, str, str, str]


def check_claim_status(claim: ResourceClaim, old: ResourceClaim) -> Problems:
    """What a status write may leave behind."""
    status, before = claim.status, old.status
    allocation, path = status.allocation, _STATUS.child("allocation")
    yield from check_set(
        status.reserved_for,
        CONSUMERS_MAX,
        _check_consumer,
        lambda consumer: consumer.uid,
        _STATUS.child("reservedFor"),
    )
    allocated = frozenset(map(_key, allocation.devices.results)) if allocation is not None else frozenset()

    def check_device(device: AllocatedDeviceStatus, at: Path) -> Problems:
        return _check_device_status(device, allocated, at)

    yield from check_set(status.devices, None, check_device, _key, _STATUS.child("devices"))
    yield from _check_reservations(status, before, claim.metadata.deletion_timestamp is not None)
    if allocation is not None and before.allocation is not None:
        # What was allocated stays, and is not held to rules that may have come later.
        if not same(before.allocation, allocation):
            yield invalid(path, None, f"{IMMUTABLE}, only removed as a whole")
    elif allocation is not None:
        yield from _check_allocation(allocation, gather_request_names(claim.spec.devices), path)


def check_admin_results(
    claim: ResourceClaim, old: ResourceClaim, namespace_labels: Mapping[str, str] | None
) -> Problems:
    """Admin access in a new allocation needs a namespace that allows it; the first result is reported."""
    if _first_admin(old.status) is not None:
        return
    place = _first_admin(claim.status)
    if place is not None:
        path = _STATUS.child("allocation", "devices", "results").index(place).child("adminAccess")
        yield from refuse_admin(path, claim.metadata.namespace, namespace_labels)


def _first_admin(status: ResourceClaimStatus) -> int | None:
    results: Sequence[AllocationDevice] = (
        status.allocation.devices.results if status.allocation is not None else ()
    )
    return next((place for place, result in enumerate(results) if result.admin_access), None)


def forget_released_devices(tree: Tree, old: Tree) -> None:
    """Take out of `status.devices` what was allocated before and is not any more; changes `tree`."""
    status = part(tree, "status")
    if "devices" not in status:
        return
    released = _tree_keys(old) - _tree_keys(tree)
    kept = [device for device in status["devices"] if _tree_key(device) not in released]
    if kept:
        status["devices"] = kept
    else:
        del status["devices"]


def _tree_keys(tree: Tree) -> set[DeviceKey]:
    return set(map(_tree_key, part(tree, "status", "allocation", "devices").get("results", ())))


def _tree_key(device: Tree) -> DeviceKey:
    return (
        device.get("driver", ""),
        device.get("pool", ""),
        device.get("device", ""),
        device.get("shareID", ""),
    )


def _key(device: AllocationDevice | AllocatedDeviceStatus) -> DeviceKey:
    return device.driver, device.pool, device.device, device.share_id or ""


# -- reservations


def _check_consumer(consumer: ClaimConsumer, path: Path) -> Problems:
    for name, value in (("resource", consumer.resource), ("name", consumer.name), ("uid", consumer.uid)):
        if not value:
            yield required(path.child(name), f"must be the {name} of who uses the claim")


def _check_reservations(status: ResourceClaimStatus, old: ResourceClaimStatus, deleting: bool) -> Problems:
    path = _STATUS.child("reservedFor")
    if not status.reserved_for:
        return
    if status.allocation is None:
        yield forbidden(path, "a claim can be reserved only while it is allocated")
    elif deleting and not set(status.reserved_for) <= set(old.reserved_for):
        yield forbidden(path, "no new user can be added while the claim is being deleted")


# -- allocation


def _check_allocation(allocation: AllocationResult, names: RequestNames, path: Path) -> Problems:
    """A new allocation; whether its devices exist, are free or hold what is consumed is not asked."""

    def check_result(result: AllocationDevice, at: Path) -> Problems:
        yield from check_request_reference(result.request, names, at.child("request"))
        yield from _check_identity(result, at)
        yield from check_binding_conditions(result.binding_conditions, result.binding_failure_conditions, at)

    def check_config(config: AllocationConfiguration, at: Path) -> Problems:
        if not config.source:
            yield required(at.child("source"), f"must be one of {', '.join(_SOURCES)}")
        elif config.source not in _SOURCES:
            yield not_supported(at.child("source"), config.source, _SOURCES)
        yield from check_request_references(config.requests, names, at.child("requests"))
        yield from check_configuration(config.opaque, at)

    devices = path.child("devices")
    yield from check_list(allocation.devices.results, RESULTS_MAX, check_result, devices.child("results"))
    # Both the class and the claim may bring their full number.
    yield from check_list(
        allocation.devices.config, 2 * CONFIGURATIONS_MAX, check_config, devices.child("config")
    )
    if allocation.node_selector is not None:
        yield from check_node_selector(allocation.node_selector, path.child("nodeSelector"))


def _check_identity(device: AllocationDevice | AllocatedDeviceStatus, path: Path) -> Problems:
    yield from check_driver(device.driver, path.child("driver"))
    yield from check_pool(device.pool, path.child("pool"))
    yield from check_label(device.device, path.child("device"))
    if device.share_id is not None:
        yield from check_format(device.share_id, path.child("shareID"), normal_uuid)


# -- what drivers report


def _check_device_status(
    device: AllocatedDeviceStatus, allocated: frozenset[DeviceKey], path: Path
) -> Problems:
    yield from _check_identity(device, path)
    if _key(device) not in allocated:
        detail = "must be a device of the allocation: same driver, pool, device and shareID"
        yield invalid(path, "/".join(filter(None, _key(device))), detail)
    yield from check_conditions(device.conditions, CONDITIONS_MAX, path.child("conditions"))
    if device.data is not None:
        yield from check_raw_object(device.data, path.child("data"))
    if device.network_data is not None:
        yield from _check_network(device.network_data, path.child("networkData"))


def _check_network(data: NetworkDeviceData, path: Path) -> Problems:
    if byte_length(data.interface_name) > INTERFACE_MAX:
        yield too_long(path.child("interfaceName"), INTERFACE_MAX)
    if byte_length(data.hardware_address) > HARDWARE_MAX:
        yield too_long(path.child("hardwareAddress"), HARDWARE_MAX)

    def check_address(address: str, at: Path) -> Problems:
        return check_format(address, at, interface_address)

    yield from check_set(data.ips, ADDRESSES_MAX, check_address, lambda address: address, path.child("ips"))
