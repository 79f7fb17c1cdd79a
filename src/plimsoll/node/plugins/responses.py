"""Validation of driver responses.

For NodePrepareResources and NodeUnprepareResources (docs/spec/node-protocols.md, "DRA plugin"): every claim
of the call has an entry, no other claim has one, and each entry is a list of valid devices. Pure. Guarantees
that any response becomes devices or a fault for each requested claim, and that no part of a response is
repeated at excessive length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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

    def read(claim: ClaimRef) -> Devices | DriverFault:
        devices = _read_devices(response.claims[claim.uid].devices)
        if isinstance(devices, str):
            text = f"{PREPARE} returned for ResourceClaim {claim.name}: {devices}"
            return DriverFault(driver, "malformed", text)
        return devices

    return {
        claim.uid: fault or read(claim) for claim, fault in _find_faults(driver, PREPARE, claims, response)
    }


def read_unprepared(
    driver: str, claims: Sequence[ClaimRef], response: Any
) -> Mapping[str, DriverFault | None]:
    """Return None or a fault for each claim, by UID, from a response of either version."""
    return {claim.uid: fault for claim, fault in _find_faults(driver, UNPREPARE, claims, response)}


def _find_faults(
    driver: str, method: str, claims: Sequence[ClaimRef], response: Any
) -> Iterator[tuple[ClaimRef, DriverFault | None]]:
    """Yield every claim with the fault in the response: of all claims if some were not requested."""
    asked = {claim.uid for claim in claims}
    unexpected = sorted(set(response.claims) - asked)
    count = len(asked - set(response.claims))
    for claim in claims:
        if unexpected:
            text = f"{method} returned result for unknown claim UID {truncate(unexpected[0])}"
            yield claim, DriverFault(driver, "malformed", text)
        elif claim.uid not in response.claims:
            yield claim, DriverFault(driver, "skipped", f"{method} skipped {count} ResourceClaims")
        elif error := response.claims[claim.uid].error:
            yield claim, DriverFault(driver, "refused", truncate(error, MAX_TEXT_LENGTH))
        else:
            yield claim, None


# DIFF: the kubelet accepts everything, and invalid devices fail containers later, or go unnoticed:
# test_malformed_responses_are_faults.
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
