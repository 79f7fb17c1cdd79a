"""Validation of driver responses.

For NodePrepareResources and NodeUnprepareResources (docs/spec/node-protocols.md, "DRA plugin"): every claim
of the call has an entry, no other claim has one, and each entry is a list of valid devices. Pure. Guarantees
that any response becomes devices or a fault for each requested claim, and that no part of a response is
repeated at excessive length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.node.claim_info import PREPARE, UNPREPARE, ClaimRef, Devices, DriverFault, PreparedDevice
from plimsoll.node.plugins.plugin_info import quote, truncate
from plimsoll.protocols.cdi.names import parse_name

#: An allocation has at most 32 results; a driver may return more than one device for each.
MAX_DEVICES = 256
#: For one device.
MAX_NAMES = 64
MAX_TEXT_LENGTH = 1024
_MAX_CDI_LENGTH = 512

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DEVICE = re.compile(_LABEL)
_REQUEST = re.compile(f"{_LABEL}(/{_LABEL})?")
_POOL = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[a-z0-9]([a-z0-9.-]*[a-z0-9])?)*")
_MAX_POOL_LENGTH = 253
_SHARE = re.compile(r"[A-Za-z0-9-]{1,64}")


def read_prepared(
    driver: str, claims: Sequence[ClaimRef], response: Any
) -> Mapping[str, Devices | DriverFault]:
    """Return devices or a fault for each claim, by UID, from a response of either version."""
    unexpected = _find_unexpected(driver, PREPARE, claims, response)
    if unexpected is not None:
        return {claim.uid: unexpected for claim in claims}
    skipped = _skipped(driver, PREPARE, claims, response)
    found: dict[str, Devices | DriverFault] = {}
    for claim in claims:
        if claim.uid not in response.claims:
            found[claim.uid] = skipped
            continue
        entry = response.claims[claim.uid]
        if entry.error:
            found[claim.uid] = DriverFault(driver, "refused", truncate(entry.error, MAX_TEXT_LENGTH))
            continue
        devices = _read_devices(entry.devices)
        if isinstance(devices, str):
            devices_fault = f"{PREPARE} returned for ResourceClaim {claim.name}: {devices}"
            found[claim.uid] = DriverFault(driver, "malformed", devices_fault)
        else:
            found[claim.uid] = devices
    return found


def read_unprepared(
    driver: str, claims: Sequence[ClaimRef], response: Any
) -> Mapping[str, DriverFault | None]:
    """Return None or a fault for each claim, by UID, from a response of either version."""
    unexpected = _find_unexpected(driver, UNPREPARE, claims, response)
    if unexpected is not None:
        return {claim.uid: unexpected for claim in claims}
    skipped = _skipped(driver, UNPREPARE, claims, response)
    found: dict[str, DriverFault | None] = {}
    for claim in claims:
        if claim.uid not in response.claims:
            found[claim.uid] = skipped
        elif error := response.claims[claim.uid].error:
            found[claim.uid] = DriverFault(driver, "refused", truncate(error, MAX_TEXT_LENGTH))
        else:
            found[claim.uid] = None
    return found


def _find_unexpected(
    driver: str, method: str, claims: Sequence[ClaimRef], response: Any
) -> DriverFault | None:
    """Return a fault if the response contains claims that were not requested."""
    asked = {claim.uid for claim in claims}
    for uid in sorted(response.claims):
        if uid not in asked:
            text = f"{method} returned result for unknown claim UID {truncate(uid)}"
            return DriverFault(driver, "malformed", text)
    return None


def _skipped(driver: str, method: str, claims: Sequence[ClaimRef], response: Any) -> DriverFault:
    count = len({claim.uid for claim in claims} - set(response.claims))
    return DriverFault(driver, "skipped", f"{method} skipped {count} ResourceClaims")


# DIFF: the kubelet accepts everything, and invalid devices fail containers later, or go unnoticed:
# test_answers_that_cannot_be_used.
def _read_devices(devices: Sequence[Any]) -> Devices | str:
    """Return the devices of one claim, or an error message."""
    if len(devices) > MAX_DEVICES:
        return f"{len(devices)} devices, at most {MAX_DEVICES} are accepted"
    found = []
    for place, device in enumerate(devices):
        read = _read_device(device)
        if isinstance(read, str):
            return f"device {place}: {read}"
        found.append(read)
    return tuple(found)


def _read_device(device: Any) -> PreparedDevice | str:
    pool, name = device.pool_name, device.device_name
    if pool and (len(pool) > _MAX_POOL_LENGTH or not _POOL.fullmatch(pool)):
        return f"{quote(pool)} is not the name of a pool"
    if name and not _DEVICE.fullmatch(name):
        return f"{quote(name)} is not the name of a device"
    requests, cdi = device.request_names, device.cdi_device_ids
    if len(requests) > MAX_NAMES or len(cdi) > MAX_NAMES:
        return (
            f"{max(len(requests), len(cdi))} request names or CDI devices, at most {MAX_NAMES} are accepted"
        )
    for request in requests:
        if not _REQUEST.fullmatch(request):
            return f"{quote(request)} is not the name of a request"
    for qualified in cdi:
        if len(qualified) > _MAX_CDI_LENGTH or parse_name(qualified) is None:
            return f"{quote(qualified)} is not the name of a CDI device"
    share = _share_id(device)
    if share is not None and not _SHARE.fullmatch(share):
        return f"{quote(share)} is not a share ID"
    return PreparedDevice(pool, name, tuple(requests), tuple(cdi), share)


def _share_id(device: Any) -> str | None:
    """Return the share ID, a field that only v1 has."""
    if "share_id" not in device.DESCRIPTOR.fields_by_name or not device.HasField("share_id"):
        return None
    share: str = device.share_id
    return share
