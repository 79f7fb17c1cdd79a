"""The kubelet's checkpoint of prepared claims, `dra_manager_state`.

Written byte for byte as the kubelet writes it, and read with the kubelet's errors. See
docs/spec/node-protocols.md, "DRA manager checkpoint": a JSON string inside a JSON object with its CRC-32,
every field always present, nil distinct from empty.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.go_text import quote_json
from plimsoll.api.resource import ALL_NODE_OPERATIONS, NODE_UNPREPARE
from plimsoll.node.claim_info import ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.claims.go_json import GoList, GoMap, GoString, GoStruct, GoUint32
from plimsoll.node.claims.go_json import decode as decode_go

KIND, API_VERSION = "DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1"
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


def encode(claims: Sequence[KubeletClaim] | None) -> bytes:
    """Encode the file that a kubelet writes for these claims, in this order."""
    data = (
        f'{{"kind":{quote_json(KIND)},"apiVersion":{quote_json(API_VERSION)},'
        f'"ClaimInfoStateList":{_format_list(None if claims is None else map(_format_claim, claims))}}}'
    )
    return f'{{"Data":{quote_json(data)},"Checksum":{zlib.crc32(data.encode())}}}'.encode()


def _format_claim(claim: KubeletClaim) -> str:
    pods = None if claim.pods is None else dict.fromkeys(claim.pods, "{}")
    drivers = None
    if claim.drivers is not None:
        drivers = {
            driver: _format_driver(devices, claim.skipped.get(driver, ()))
            for driver, devices in claim.drivers.items()
        }
    return (
        f'{{"ClaimUID":{quote_json(claim.uid)},"ClaimName":{quote_json(claim.name)},'
        f'"Namespace":{quote_json(claim.namespace)},"PodUIDs":{_format_map(pods)},"DriverState":{_format_map(drivers)}}}'
    )


def _format_driver(devices: Iterable[KubeletDevice] | None, skipped: Sequence[str]) -> str:
    listed = _format_list(None if devices is None else map(_format_device, devices))
    more = f',"skipNodeOperations":{_format_strings(skipped)}' if skipped else ""
    return f'{{"Devices":{listed}{more}}}'


def _format_device(device: KubeletDevice) -> str:
    share = "null" if device.share_id is None else quote_json(device.share_id)
    return (
        f'{{"PoolName":{quote_json(device.pool)},"DeviceName":{quote_json(device.device)},"ShareID":{share},'
        f'"RequestNames":{_format_strings(device.requests)},"CDIDeviceIDs":{_format_strings(device.cdi)}}}'
    )


def _format_strings(texts: Iterable[str] | None) -> str:
    return _format_list(None if texts is None else map(quote_json, texts))


def _format_list(items: Iterable[str] | None) -> str:
    return "null" if items is None else f"[{','.join(items)}]"


def _format_map(members: Mapping[str, str] | None) -> str:
    if members is None:
        return "null"
    # Go sorts by bytes; the code points of valid strings sort the same.
    return "{" + ",".join(f"{quote_json(key)}:{members[key]}" for key in sorted(members)) + "}"


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
