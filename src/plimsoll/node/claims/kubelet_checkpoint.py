"""The kubelet's checkpoint of prepared claims, `dra_manager_state`.

Read with the kubelet's errors. See docs/spec/node-protocols.md, "DRA manager checkpoint": a JSON string
inside a JSON object with its CRC-32, every field always present, nil distinct from empty.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.resource import ALL_NODE_OPERATIONS, NODE_UNPREPARE
from plimsoll.node.claim_info import ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.claims.go_json import GoList, GoMap, GoString, GoStruct, GoUint32
from plimsoll.node.claims.go_json import decode as decode_go

CORRUPTED = "checkpoint is corrupted"


@dataclass(frozen=True, slots=True)
class KubeletDevice:
    """Device; None stands for nil."""

    pool: str = ""
    device: str = ""
    share_id: str | None = None
    requests: tuple[str, ...] | None = None
    cdi: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class KubeletClaim:
    """Claim; None stands for nil."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    pods: frozenset[str] | None = None
    drivers: Mapping[str, tuple[KubeletDevice, ...] | None] | None = None
    #: Skipped node operations by driver (Kubernetes 1.37).
    skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecodedCheckpoint:
    """Checkpoint as a kubelet decodes it.

    With an `error` the kubelet rejects the file, with a `claims_error` its content; either way it does not
    start.
    """

    claims: tuple[KubeletClaim, ...] | None = None
    error: str = ""
    claims_error: str = ""


_STRINGS = GoList(GoString(), "[]string")
_DEVICE = GoStruct(
    "state.Device",
    {
        "PoolName": GoString(),
        "DeviceName": GoString(),
        "ShareID": GoString("types.UID", pointer=True),
        "RequestNames": _STRINGS,
        "CDIDeviceIDs": _STRINGS,
    },
)
_DRIVER = GoStruct(
    "state.DriverState",
    {"Devices": GoList(_DEVICE, "[]state.Device"), "skipNodeOperations": _STRINGS},
)
_CLAIM = GoStruct(
    "state.ClaimInfoState",
    {
        "ClaimUID": GoString("types.UID"),
        "ClaimName": GoString(),
        "Namespace": GoString(),
        "PodUIDs": GoMap(GoStruct("sets.Empty"), "sets.Set[string]"),
        "DriverState": GoMap(_DRIVER, "map[string]state.DriverState"),
    },
)
_DATA = GoStruct(
    "state.CheckpointData",
    {
        "kind": GoString(embedded="TypeMeta"),
        "apiVersion": GoString(embedded="TypeMeta"),
        "ClaimInfoStateList": GoList(_CLAIM, "state.ClaimInfoStateList"),
    },
)
_FILE = GoStruct("state.Checkpoint", {"Data": GoString(), "Checksum": GoUint32()})


def decode(raw: bytes) -> DecodedCheckpoint:
    """Decode a file, or return the kubelet's error."""
    outer, error = decode_go(raw, _FILE)
    if error:
        return DecodedCheckpoint(error=error)
    data = outer["Data"].encode()
    if zlib.crc32(data) != outer["Checksum"]:
        return DecodedCheckpoint(error=CORRUPTED)
    inner, error = decode_go(data, _DATA)
    if error:
        return DecodedCheckpoint(claims_error=error)
    rows = inner["ClaimInfoStateList"]
    return DecodedCheckpoint(None if rows is None else tuple(map(_read_claim, rows)))


def _read_claim(row: Mapping[str, Any]) -> KubeletClaim:
    pods, drivers = row["PodUIDs"], row["DriverState"]
    states, skipped = None, {}
    if drivers is not None:
        skipped = {
            driver: tuple(state["skipNodeOperations"])
            for driver, state in drivers.items()
            if state["skipNodeOperations"]
        }
        states = {driver: _read_devices(state["Devices"]) for driver, state in drivers.items()}
    return KubeletClaim(
        uid=row["ClaimUID"],
        name=row["ClaimName"],
        namespace=row["Namespace"],
        pods=None if pods is None else frozenset(pods),
        drivers=states,
        skipped=skipped,
    )


def _read_devices(rows: Sequence[Mapping[str, Any]] | None) -> tuple[KubeletDevice, ...] | None:
    if rows is None:
        return None
    return tuple(
        KubeletDevice(
            pool=row["PoolName"],
            device=row["DeviceName"],
            share_id=row["ShareID"],
            requests=None if row["RequestNames"] is None else tuple(row["RequestNames"]),
            cdi=None if row["CDIDeviceIDs"] is None else tuple(row["CDIDeviceIDs"]),
        )
        for row in rows
    )


# -- conversion


def to_prepared(claim: KubeletClaim) -> ClaimInfo:
    """Convert a kubelet's claim; all its drivers have to be called again."""
    drivers = claim.drivers or {}
    return ClaimInfo(
        ref=ClaimRef(claim.namespace, claim.name, claim.uid),
        pods=claim.pods or frozenset(),
        drivers={
            driver: tuple(
                PreparedDevice(d.pool, d.device, d.requests or (), d.cdi or (), d.share_id) for d in devices
            )
            for driver, devices in drivers.items()
            if devices
        },
        ready=False,
        pending=frozenset(drivers),
        unprepare_skipped=frozenset(
            driver
            for driver, operations in claim.skipped.items()
            if {NODE_UNPREPARE, ALL_NODE_OPERATIONS} & set(operations)
        ),
    )
