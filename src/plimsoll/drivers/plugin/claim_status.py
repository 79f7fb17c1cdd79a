"""Entries of `status.devices` in a ResourceClaim (KEP-4817): built, compared and turned into patches. Pure.

`claim_status_writer.py` reads and writes the claims. Desired entries have no transition times; those are set
when the patch is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from plimsoll.api import codec
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.common.json_tree import branch, items
from plimsoll.drivers.plugin.driver import DeviceCondition, DeviceStatus
from plimsoll.errors import InputError
from plimsoll.protocols.dra import ClaimRef

Tree: TypeAlias = dict[str, Any]
#: Pool, device and share ID: identifies a device of one driver.
Key: TypeAlias = tuple[str, str, str]

_STATUS = {True: "True", False: "False", None: "Unknown"}
_TRANSITION_TIME = "lastTransitionTime"
_MAX_TEXT_LENGTH = 200
#: Exceptions raised by malformed values.
_INVALID_VALUE_ERRORS = (
    InputError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    NotImplementedError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class DeviceStatusError:
    """Device status that no server would accept."""

    claim: ClaimRef
    device: str
    problem: str

    def __str__(self) -> str:
        return f"claim {self.claim}: invalid status of device {self.device}: {self.problem}"


def get_device_key(entry: Mapping[str, Any]) -> Key:
    """Return the key of the device that an entry or allocation result refers to."""
    return str(entry.get("pool", "")), str(entry.get("device", "")), str(entry.get("shareID") or "")


def build_entries(
    driver: str, statuses: Iterable[DeviceStatus]
) -> tuple[dict[str, tuple[ClaimRef, tuple[Tree, ...]]], tuple[DeviceStatusError, ...]]:
    """Build the entries of all claims by UID, in a stable order, and the errors for invalid statuses.

    If a device occurs twice, the last status wins.
    """
    claims: dict[str, ClaimRef] = {}
    found: dict[str, dict[Key, Tree]] = {}
    errors = []
    for status in statuses:
        entry = _entry(driver, status)
        if isinstance(entry, str):
            errors.append(
                DeviceStatusError(
                    status.claim, str(status.device)[:_MAX_TEXT_LENGTH], entry[:_MAX_TEXT_LENGTH]
                )
            )
            continue
        claims[status.claim.uid] = status.claim
        found.setdefault(status.claim.uid, {})[get_device_key(entry)] = entry
    return {
        uid: (claims[uid], tuple(entry for _, entry in sorted(entries.items())))
        for uid, entries in found.items()
    }, tuple(errors)


def _entry(driver: str, status: DeviceStatus) -> Tree | str:
    """Build an entry as a server would return it, or describe what is wrong with the status."""
    tree: Tree = {"driver": driver, "pool": status.pool, "device": status.device}
    if status.share_id is not None:
        tree["shareID"] = status.share_id
    parts: tuple[tuple[str, object], ...] = (("data", status.data), ("networkData", status.network))
    for name, value in parts:
        if value is None:
            continue
        if not isinstance(value, Mapping):
            return f"{name} is {type(value).__name__}, not a mapping"
        tree[name] = dict(value)
    try:
        if status.conditions:
            tree["conditions"] = [_condition(each) for each in status.conditions]
        entry: Tree = codec.decode_tree(codec.encode(tree))
    except _INVALID_VALUE_ERRORS as error:
        return f"{type(error).__name__}: {error}"
    return entry


def _condition(condition: DeviceCondition) -> Tree:
    return {
        "type": condition.type,
        "status": _STATUS[condition.status],
        "reason": condition.reason,
        "message": condition.message,
    }


@dataclass(frozen=True, slots=True)
class ClaimDeviceStatuses:
    """Current device statuses of one driver in a claim. `allocated` are the devices of the allocation."""

    uid: str
    resource_version: str
    allocated: frozenset[Key]
    entries: tuple[Tree, ...]


def read_device_statuses(tree: Mapping[str, Any], driver: str) -> ClaimDeviceStatuses:
    """Read the device statuses of a claim; malformed parts are ignored."""
    metadata, status = branch(tree, "metadata"), branch(tree, "status")
    results = items(branch(status, "allocation", "devices"), "results")
    return ClaimDeviceStatuses(
        uid=str(metadata.get("uid", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
        allocated=frozenset(get_device_key(each) for each in results if each.get("driver") == driver),
        entries=tuple(each for each in items(status, "devices") if each.get("driver") == driver),
    )


def is_current(current: ClaimDeviceStatuses, desired: Sequence[Tree]) -> bool:
    """Report whether a claim has exactly the desired entries, ignoring transition times."""
    return _index_without_times(current.entries) == _index_without_times(desired)


def contains_entries(current: ClaimDeviceStatuses, desired: Sequence[Tree]) -> bool:
    """Report whether a claim contains the desired entries; other managers may have added more."""
    allocated = _index_without_times(current.entries)
    for key, entry in _index_without_times(desired).items():
        found = allocated.get(key)
        if found is None or any(found.get(name) != entry[name] for name in entry if name != "conditions"):
            return False
        conditions = found.get("conditions", {})
        if any(conditions.get(type_) != each for type_, each in entry.get("conditions", {}).items()):
            return False
    return True


def _index_without_times(entries: Iterable[Tree]) -> dict[Key, Tree]:
    """Index entries by key with their conditions by type, without transition times."""
    found = {}
    for entry in entries:
        conditions = {
            str(each.get("type")): {name: value for name, value in each.items() if name != _TRANSITION_TIME}
            for each in items(entry, "conditions")
        }
        rest = {name: value for name, value in entry.items() if name != "conditions"}
        found[get_device_key(entry)] = {**rest, "conditions": conditions} if conditions else rest
    return found


def build_patch(ref: ClaimRef, current: ClaimDeviceStatuses, desired: Sequence[Tree], now: str) -> Tree:
    """Build the apply patch of a claim; unchanged conditions keep their transition time.

    The patch contains the resource version, so that it fails if the claim has changed.
    """
    since = {
        (get_device_key(entry), str(each.get("type")), str(each.get("status"))): each.get(_TRANSITION_TIME)
        for entry in current.entries
        for each in items(entry, "conditions")
    }
    devices = []
    for entry in desired:
        conditions = [
            {
                **each,
                _TRANSITION_TIME: since.get((get_device_key(entry), each["type"], each["status"])) or now,
            }
            for each in entry.get("conditions", ())
        ]
        devices.append({**entry, "conditions": conditions} if conditions else entry)
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {
            "name": ref.name,
            "namespace": ref.namespace,
            "resourceVersion": current.resource_version,
        },
        "status": {"devices": devices} if devices else {},
    }
