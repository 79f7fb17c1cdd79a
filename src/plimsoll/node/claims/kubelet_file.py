"""The kubelet's own record of prepared claims, `dra_manager_state`.

Owns reading and writing it: byte for byte as the kubelet writes it, and with the kubelet's verdict on what it
would not take. Section 3 of the node protocols: a JSON text inside a JSON object with its CRC-32, every field
always present, nil told from empty.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.node.claims.go_json import Dictionary, Listing, Struct, Text, Uint32, quote
from plimsoll.node.claims.go_json import decode as decode_go
from plimsoll.node.prepared import ClaimRef, PreparedClaim, PreparedDevice

KIND, API_VERSION = "DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1"
CORRUPTED = "checkpoint is corrupted"


@dataclass(frozen=True, slots=True)
class KubeletDevice:
    """A device; None where Go has nil."""

    pool: str = ""
    device: str = ""
    share_id: str | None = None
    requests: tuple[str, ...] | None = None
    cdi: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class KubeletClaim:
    """A claim; None where Go has nil."""

    uid: str = ""
    name: str = ""
    namespace: str = ""
    pods: frozenset[str] | None = None
    drivers: Mapping[str, tuple[KubeletDevice, ...] | None] | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a kubelet makes of a file.

    With an `error` it refuses the file, with a `claims_error` what is inside; either way it does not start.
    """

    claims: tuple[KubeletClaim, ...] | None = None
    error: str = ""
    claims_error: str = ""


_TEXTS = Listing(Text(), "[]string")
_DEVICE = Struct(
    "state.Device",
    {
        "PoolName": Text(),
        "DeviceName": Text(),
        "ShareID": Text("types.UID", pointer=True),
        "RequestNames": _TEXTS,
        "CDIDeviceIDs": _TEXTS,
    },
)
_DRIVER = Struct("state.DriverState", {"Devices": Listing(_DEVICE, "[]state.Device")})
_CLAIM = Struct(
    "state.ClaimInfoState",
    {
        "ClaimUID": Text("types.UID"),
        "ClaimName": Text(),
        "Namespace": Text(),
        "PodUIDs": Dictionary(Struct("sets.Empty"), "sets.Set[string]"),
        "DriverState": Dictionary(_DRIVER, "map[string]state.DriverState"),
    },
)
_DATA = Struct(
    "state.CheckpointData",
    {
        "kind": Text(embedded="TypeMeta"),
        "apiVersion": Text(embedded="TypeMeta"),
        "ClaimInfoStateList": Listing(_CLAIM, "state.ClaimInfoStateList"),
    },
)
_FILE = Struct("state.Checkpoint", {"Data": Text(), "Checksum": Uint32()})


def encode(claims: Sequence[KubeletClaim] | None) -> bytes:
    """The file that a kubelet writes for these claims, in this order."""
    data = (
        f'{{"kind":{quote(KIND)},"apiVersion":{quote(API_VERSION)},'
        f'"ClaimInfoStateList":{_listed(None if claims is None else map(_written, claims))}}}'
    )
    return f'{{"Data":{quote(data)},"Checksum":{zlib.crc32(data.encode())}}}'.encode()


def _written(claim: KubeletClaim) -> str:
    pods = None if claim.pods is None else dict.fromkeys(claim.pods, "{}")
    drivers = None
    if claim.drivers is not None:
        drivers = {
            driver: f'{{"Devices":{_listed(None if devices is None else map(_device, devices))}}}'
            for driver, devices in claim.drivers.items()
        }
    return (
        f'{{"ClaimUID":{quote(claim.uid)},"ClaimName":{quote(claim.name)},'
        f'"Namespace":{quote(claim.namespace)},"PodUIDs":{_mapped(pods)},"DriverState":{_mapped(drivers)}}}'
    )


def _device(device: KubeletDevice) -> str:
    share = "null" if device.share_id is None else quote(device.share_id)
    return (
        f'{{"PoolName":{quote(device.pool)},"DeviceName":{quote(device.device)},"ShareID":{share},'
        f'"RequestNames":{_listed(None if device.requests is None else map(quote, device.requests))},'
        f'"CDIDeviceIDs":{_listed(None if device.cdi is None else map(quote, device.cdi))}}}'
    )


def _listed(items: Iterable[str] | None) -> str:
    return "null" if items is None else f"[{','.join(items)}]"


def _mapped(members: Mapping[str, str] | None) -> str:
    if members is None:
        return "null"
    # Go sorts by bytes; the code points of valid texts sort the same.
    return "{" + ",".join(f"{quote(key)}:{members[key]}" for key in sorted(members)) + "}"


def decode(raw: bytes) -> Decoded:
    """What a file holds, or why a kubelet would not take it."""
    outer, error = decode_go(raw, _FILE)
    if error:
        return Decoded(error=error)
    data = outer["Data"].encode()
    if zlib.crc32(data) != outer["Checksum"]:
        return Decoded(error=CORRUPTED)
    inner, error = decode_go(data, _DATA)
    if error:
        return Decoded(claims_error=error)
    rows = inner["ClaimInfoStateList"]
    return Decoded(None if rows is None else tuple(map(_read_claim, rows)))


def _read_claim(row: Mapping[str, Any]) -> KubeletClaim:
    pods, drivers = row["PodUIDs"], row["DriverState"]
    states = None
    if drivers is not None:
        states = {driver: _read_devices(state["Devices"]) for driver, state in drivers.items()}
    return KubeletClaim(
        uid=row["ClaimUID"],
        name=row["ClaimName"],
        namespace=row["Namespace"],
        pods=None if pods is None else frozenset(pods),
        drivers=states,
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


# -- between the kubelet's words and ours


def to_prepared(claim: KubeletClaim) -> PreparedClaim:
    """A kubelet's claim as ours: all its drivers have to be asked again."""
    drivers = claim.drivers or {}
    return PreparedClaim(
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
    )


def from_prepared(claim: PreparedClaim) -> KubeletClaim:
    """Our claim as a kubelet would have recorded it."""
    states: dict[str, tuple[KubeletDevice, ...] | None] = dict.fromkeys(claim.pending)
    for driver, devices in claim.drivers.items():
        # What comes off the wire empty is nil in Go.
        states[driver] = (
            tuple(
                KubeletDevice(d.pool, d.device, d.share_id, d.requests or None, d.cdi or None)
                for d in devices
            )
            or None
        )
    return KubeletClaim(claim.ref.uid, claim.ref.name, claim.ref.namespace, claim.pods, states)
