"""What drivers answer, read with care.

Owns the judgement of answers to NodePrepareResources and NodeUnprepareResources (section 2 of the node
protocols): every claim of the call has an entry, no other claim has one, and what is in it is a list of
devices that can be used. Pure. Promises: whatever a driver answers becomes devices or a fault for each claim
asked for; nothing of an answer is repeated at greater length than is useful.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.node.claim_info import ClaimRef, Devices, DriverFault, PreparedDevice
from plimsoll.node.plugins.plugin_info import cut, quote
from plimsoll.protocols.cdi.names import parse_name

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"

#: An allocation has 32 results at most; a driver may make more than one device of each.
MOST_DEVICES = 256
#: Of one device.
MOST_NAMES = 64
LONGEST_TEXT = 1024
_LONGEST_CDI = 512

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DEVICE = re.compile(_LABEL)
_REQUEST = re.compile(f"{_LABEL}(/{_LABEL})?")
_POOL = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(/[a-z0-9]([a-z0-9.-]*[a-z0-9])?)*")
_LONGEST_POOL = 253
_SHARE = re.compile(r"[A-Za-z0-9-]{1,64}")


def read_prepared(
    driver: str, claims: Sequence[ClaimRef], answer: Any
) -> Mapping[str, Devices | DriverFault]:
    """Devices or a fault for each claim, by UID, from an answer of either version."""
    strange = _strange(driver, PREPARE, claims, answer)
    if strange is not None:
        return {claim.uid: strange for claim in claims}
    skipped = _skipped(driver, PREPARE, claims, answer)
    found: dict[str, Devices | DriverFault] = {}
    for claim in claims:
        if claim.uid not in answer.claims:
            found[claim.uid] = skipped
            continue
        entry = answer.claims[claim.uid]
        if entry.error:
            found[claim.uid] = DriverFault(driver, "refused", cut(entry.error, LONGEST_TEXT))
            continue
        devices = _read_devices(entry.devices)
        if isinstance(devices, str):
            devices_fault = f"{PREPARE} returned for ResourceClaim {claim.name}: {devices}"
            found[claim.uid] = DriverFault(driver, "malformed", devices_fault)
        else:
            found[claim.uid] = devices
    return found


def read_released(driver: str, claims: Sequence[ClaimRef], answer: Any) -> Mapping[str, DriverFault | None]:
    """None or a fault for each claim, by UID, from an answer of either version."""
    strange = _strange(driver, UNPREPARE, claims, answer)
    if strange is not None:
        return {claim.uid: strange for claim in claims}
    skipped = _skipped(driver, UNPREPARE, claims, answer)
    found: dict[str, DriverFault | None] = {}
    for claim in claims:
        if claim.uid not in answer.claims:
            found[claim.uid] = skipped
        elif error := answer.claims[claim.uid].error:
            found[claim.uid] = DriverFault(driver, "refused", cut(error, LONGEST_TEXT))
        else:
            found[claim.uid] = None
    return found


def _strange(driver: str, method: str, claims: Sequence[ClaimRef], answer: Any) -> DriverFault | None:
    """Who answers for claims nobody asked for has not understood the question."""
    asked = {claim.uid for claim in claims}
    for uid in sorted(answer.claims):
        if uid not in asked:
            text = f"{method} returned result for unknown claim UID {cut(uid)}"
            return DriverFault(driver, "malformed", text)
    return None


def _skipped(driver: str, method: str, claims: Sequence[ClaimRef], answer: Any) -> DriverFault:
    count = len({claim.uid for claim in claims} - set(answer.claims))
    return DriverFault(driver, "skipped", f"{method} skipped {count} ResourceClaims")


# DIFF: the kubelet hands everything on, and what cannot be used fails containers later, or nobody notices:
# test_answers_that_cannot_be_used.
def _read_devices(devices: Sequence[Any]) -> Devices | str:
    """The devices of one claim, or what is wrong with them."""
    if len(devices) > MOST_DEVICES:
        return f"{len(devices)} devices, at most {MOST_DEVICES} are taken"
    found = []
    for place, device in enumerate(devices):
        read = _read_device(device)
        if isinstance(read, str):
            return f"device {place}: {read}"
        found.append(read)
    return tuple(found)


def _read_device(device: Any) -> PreparedDevice | str:
    pool, name = device.pool_name, device.device_name
    if pool and (len(pool) > _LONGEST_POOL or not _POOL.fullmatch(pool)):
        return f"{quote(pool)} is not the name of a pool"
    if name and not _DEVICE.fullmatch(name):
        return f"{quote(name)} is not the name of a device"
    requests, cdi = device.request_names, device.cdi_device_ids
    if len(requests) > MOST_NAMES or len(cdi) > MOST_NAMES:
        return f"{max(len(requests), len(cdi))} request names or CDI devices, at most {MOST_NAMES} are taken"
    for request in requests:
        if not _REQUEST.fullmatch(request):
            return f"{quote(request)} is not the name of a request"
    for qualified in cdi:
        if len(qualified) > _LONGEST_CDI or parse_name(qualified) is None:
            return f"{quote(qualified)} is not the name of a CDI device"
    share = _share_id(device)
    if share is not None and not _SHARE.fullmatch(share):
        return f"{quote(share)} is not a share ID"
    return PreparedDevice(pool, name, tuple(requests), tuple(cdi), share)


def _share_id(device: Any) -> str | None:
    """Only v1 has the field."""
    if "share_id" not in device.DESCRIPTOR.fields_by_name or not device.HasField("share_id"):
        return None
    share: str = device.share_id
    return share
