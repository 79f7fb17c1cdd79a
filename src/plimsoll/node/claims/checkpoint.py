"""Checkpoint of prepared claims (kind `PreparedClaims`).

On start an agent reads its own checkpoint, or the kubelet's if the directory was a kubelet's before.
Guarantees that what is written reads back as the same claims, and that no file content stops an agent from
starting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from plimsoll.common.checkpoint import FindingSeverity, NodeFinding, RecordFile, read_regular_file
from plimsoll.node.claim_info import AllocatedDevice, ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.claims import kubelet_checkpoint as kubelet_file
from plimsoll.node.layout import Layout

KIND = "PreparedClaims"
VERSION = 1


class _Device(msgspec.Struct, frozen=True, omit_defaults=True):
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)


class _AllocatedDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    pool: str
    device: str
    share_id: str | None = msgspec.field(name="shareID", default=None)


class _Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: str
    name: str
    uid: str
    ready: bool
    pods: tuple[str, ...]
    drivers: dict[str, tuple[_Device, ...]]
    pending: tuple[str, ...] = ()
    allocated: dict[str, tuple[_AllocatedDevice, ...]] = {}
    unprepare_skipped: tuple[str, ...] = msgspec.field(name="unprepareSkipped", default=())


class _Body(msgspec.Struct, frozen=True):
    claims: tuple[_Claim, ...]
    boot: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ClaimCheckpoint:
    """Content of the checkpoint; `boot` is the kernel boot ID at the time of writing.

    `lost`: an earlier checkpoint was lost, and not all claims have been prepared again.
    """

    claims: tuple[ClaimInfo, ...] = ()
    boot: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class RestoredClaims:
    """Claims an agent starts with.

    `lost`: a checkpoint existed and could not be read, now or at an earlier start, and not all claims have
    been prepared again since.
    """

    claims: tuple[ClaimInfo, ...] = ()
    findings: tuple[NodeFinding, ...] = ()
    lost: bool = False


def claims_file(layout: Layout, now: Callable[[], float] = time.time) -> RecordFile:
    """Return the file of the claim checkpoint."""
    return RecordFile(layout.claims, KIND, layout.quarantine, version=VERSION, check=decode_body, now=now)


def encode_claim(claim: ClaimInfo) -> msgspec.Raw:
    """Encode a claim as a row of the checkpoint."""
    row = _Claim(
        namespace=claim.ref.namespace,
        name=claim.ref.name,
        uid=claim.ref.uid,
        ready=claim.ready,
        pods=tuple(sorted(claim.pods)),
        drivers={
            driver: tuple(_Device(d.pool, d.device, d.requests, d.cdi, d.share_id) for d in devices)
            for driver, devices in claim.drivers.items()
        },
        pending=tuple(sorted(claim.pending)),
        allocated={
            driver: tuple(
                sorted((_AllocatedDevice(d.pool, d.device, d.share_id) for d in devices), key=_device_key)
            )
            for driver, devices in claim.allocated.items()
        },
        unprepare_skipped=tuple(sorted(claim.unprepare_skipped)),
    )
    return msgspec.Raw(msgspec.json.encode(row, order="deterministic"))


def _device_key(device: _AllocatedDevice) -> tuple[str, str, str]:
    return device.pool, device.device, device.share_id or ""


def encode_body(rows: Iterable[msgspec.Raw], boot: str = "", *, lost: bool = False) -> dict[str, Any]:
    """Return the body of the checkpoint."""
    return {"boot": boot, "claims": list(rows), **({"lost": True} if lost else {})}


def decode_body(body: Any) -> ClaimCheckpoint:
    """Decode a checkpoint body; raise ValueError if it is malformed."""
    try:
        read = msgspec.convert(body, _Body)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"it holds no prepared claims: {error}") from None
    if len({row.uid for row in read.claims}) != len(read.claims):
        raise ValueError("it holds a claim twice")
    return ClaimCheckpoint(tuple(map(_claim, read.claims)), read.boot, read.lost)


def _claim(row: _Claim) -> ClaimInfo:
    return ClaimInfo(
        ref=ClaimRef(row.namespace, row.name, row.uid),
        pods=frozenset(row.pods),
        drivers={
            driver: tuple(PreparedDevice(d.pool, d.device, d.requests, d.cdi, d.share_id) for d in devices)
            for driver, devices in row.drivers.items()
        },
        ready=row.ready,
        pending=frozenset(row.pending),
        allocated={
            driver: frozenset(AllocatedDevice(d.pool, d.device, d.share_id) for d in devices)
            for driver, devices in row.allocated.items()
        },
        unprepare_skipped=frozenset(row.unprepare_skipped),
    )


def restore(layout: Layout, file: RecordFile, *, boot: str = "") -> RestoredClaims:
    """Load the claims an agent starts with."""
    loaded = file.load()
    if loaded.finding is not None:
        return RestoredClaims((), (loaded.finding,), lost=True)
    if loaded.value is None:
        return _import_kubelet_checkpoint(layout)
    recorded: ClaimCheckpoint = loaded.value
    if not recorded.claims or boot in ("", recorded.boot) or not recorded.boot:
        return RestoredClaims(recorded.claims, lost=recorded.lost)
    # CDI files and prepared devices do not survive a reboot.
    what = f"the machine was rebooted: {len(recorded.claims)} checkpointed claims are prepared again"
    return RestoredClaims(
        tuple(map(mark_unconfirmed, recorded.claims)),
        (NodeFinding(FindingSeverity.INFO, what),),
        lost=recorded.lost,
    )


def mark_unconfirmed(claim: ClaimInfo) -> ClaimInfo:
    """Return a claim marked as possibly no longer held by its drivers."""
    return replace(claim, ready=False, pending=claim.pending | frozenset(claim.drivers))


def _import_kubelet_checkpoint(layout: Layout) -> RestoredClaims:
    """Import the claims of a kubelet that ran here before.

    They have to be prepared once more, as the kubelet itself does after every start: its file does not record
    whether a driver was asked to unprepare a claim in the meantime. The file is left unchanged.
    """
    path = layout.kubelet_claims
    raw, problem = read_regular_file(path)
    if raw is None:
        return RestoredClaims()
    decoded = kubelet_file.decode(b"" if problem else raw)
    problem = problem or decoded.error or decoded.claims_error
    if problem:
        what = f"the kubelet's checkpoint {path} cannot be read: {problem}"
        fix = f"the claims of the pods on this node are prepared again; remove {path} once they are"
        return RestoredClaims((), (NodeFinding(FindingSeverity.ERROR, what, fix, str(path)),), lost=True)
    claims: dict[str, ClaimInfo] = {}
    for state in decoded.claims or ():
        claim = kubelet_file.to_prepared(state)
        # The kubelet keys claims by name, so a UID can occur twice only in a file that was tampered with.
        known = claims.get(claim.ref.uid)
        claims[claim.ref.uid] = claim if known is None else replace(claim, pods=claim.pods | known.pods)
    if not claims:
        return RestoredClaims()
    what = f"{len(claims)} prepared claims were imported from the kubelet's checkpoint {path}"
    return RestoredClaims(tuple(claims.values()), (NodeFinding(FindingSeverity.INFO, what, "", str(path)),))
