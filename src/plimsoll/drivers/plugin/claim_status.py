"""What the status of a claim tells about its devices (KEP-4817): entries, how they are compared and written.

Owns the form of `status.devices`. Everything here is pure; `reporter.py` reads and writes claims. Conditions
have a time at which they last changed: an entry as it is wanted has none, it is found when it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from plimsoll.api import codec
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.drivers.plugin.driver import DeviceCondition, DeviceReport
from plimsoll.errors import InputError
from plimsoll.protocols.dra import ClaimRef

Tree: TypeAlias = dict[str, Any]
#: Pool, device and share: what tells the devices of one driver apart.
Key: TypeAlias = tuple[str, str, str]

_STATUS = {True: "True", False: "False", None: "Unknown"}
_SINCE = "lastTransitionTime"
_LONGEST = 200
#: What values raise that are not what they should be.
_BAD = (
    InputError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    NotImplementedError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class ReportFault:
    """A report that cannot be written by any server."""

    claim: ClaimRef
    device: str
    problem: str

    def __str__(self) -> str:
        return f"claim {self.claim}: what is reported of device {self.device} cannot be used: {self.problem}"


def key_of(entry: Mapping[str, Any]) -> Key:
    """Which device an entry, or a result of an allocation, is about."""
    return str(entry.get("pool", "")), str(entry.get("device", "")), str(entry.get("shareID") or "")


def make_entries(
    driver: str, reports: Iterable[DeviceReport]
) -> tuple[dict[str, tuple[ClaimRef, tuple[Tree, ...]]], tuple[ReportFault, ...]]:
    """The entries of all claims by UID, in a fixed order, and what was left out.

    Of two reports about the same device the later one counts.
    """
    claims: dict[str, ClaimRef] = {}
    found: dict[str, dict[Key, Tree]] = {}
    faults = []
    for report in reports:
        entry = _entry(driver, report)
        if isinstance(entry, str):
            faults.append(ReportFault(report.claim, str(report.device)[:_LONGEST], entry[:_LONGEST]))
            continue
        claims[report.claim.uid] = report.claim
        found.setdefault(report.claim.uid, {})[key_of(entry)] = entry
    return {
        uid: (claims[uid], tuple(entry for _, entry in sorted(entries.items())))
        for uid, entries in found.items()
    }, tuple(faults)


def _entry(driver: str, report: DeviceReport) -> Tree | str:
    """An entry as a server would give it back, or what is wrong with it."""
    tree: Tree = {"driver": driver, "pool": report.pool, "device": report.device}
    if report.share_id is not None:
        tree["shareID"] = report.share_id
    parts: tuple[tuple[str, object], ...] = (("data", report.data), ("networkData", report.network))
    for name, value in parts:
        if value is None:
            continue
        if not isinstance(value, Mapping):
            return f"{name} is {type(value).__name__}, not a mapping"
        tree[name] = dict(value)
    try:
        if report.conditions:
            tree["conditions"] = [_condition(each) for each in report.conditions]
        entry: Tree = codec.decode_tree(codec.encode(tree))
    except _BAD as error:
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
class Sight:
    """What a claim tells about the devices of one driver. `allocated` are those it has."""

    uid: str
    revision: str
    allocated: frozenset[Key]
    entries: tuple[Tree, ...]


def see_claim(tree: Mapping[str, Any], driver: str) -> Sight:
    """A claim as the API shows it; whatever is malformed is not there."""
    metadata, status = _part(tree, "metadata"), _part(tree, "status")
    results = _items(_part(_part(status, "allocation"), "devices").get("results"))
    return Sight(
        uid=str(metadata.get("uid", "")),
        revision=str(metadata.get("resourceVersion", "")),
        allocated=frozenset(key_of(each) for each in results if each.get("driver") == driver),
        entries=tuple(dict(each) for each in _items(status.get("devices")) if each.get("driver") == driver),
    )


def _part(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, Mapping) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def same(sight: Sight, wanted: Sequence[Tree]) -> bool:
    """Whether a claim tells just what is wanted, whatever the times of its conditions."""
    return _timeless(sight.entries) == _timeless(wanted)


def covers(sight: Sight, wanted: Sequence[Tree]) -> bool:
    """Whether a claim tells what is wanted; others may have added to it."""
    there = _timeless(sight.entries)
    for key, entry in _timeless(wanted).items():
        found = there.get(key)
        if found is None or any(found.get(name) != entry[name] for name in entry if name != "conditions"):
            return False
        conditions = found.get("conditions", {})
        if any(conditions.get(type_) != each for type_, each in entry.get("conditions", {}).items()):
            return False
    return True


def _timeless(entries: Iterable[Tree]) -> dict[Key, Tree]:
    """Entries by key with their conditions by type, without times."""
    found = {}
    for entry in entries:
        conditions = {
            str(each.get("type")): {name: value for name, value in each.items() if name != _SINCE}
            for each in _items(entry.get("conditions"))
        }
        rest = {name: value for name, value in entry.items() if name != "conditions"}
        found[key_of(entry)] = {**rest, "conditions": conditions} if conditions else rest
    return found


def make_patch(ref: ClaimRef, sight: Sight, wanted: Sequence[Tree], now: str) -> Tree:
    """What is applied to a claim: conditions keep their time unless they have changed.

    The revision is named: a claim that is another one by now is not touched.
    """
    since = {
        (key_of(entry), str(each.get("type")), str(each.get("status"))): each.get(_SINCE)
        for entry in sight.entries
        for each in _items(entry.get("conditions"))
    }
    devices = []
    for entry in wanted:
        conditions = [
            {**each, _SINCE: since.get((key_of(entry), each["type"], each["status"])) or now}
            for each in entry.get("conditions", ())
        ]
        devices.append({**entry, "conditions": conditions} if conditions else entry)
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": {"name": ref.name, "namespace": ref.namespace, "resourceVersion": sight.revision},
        "status": {"devices": devices} if devices else {},
    }
