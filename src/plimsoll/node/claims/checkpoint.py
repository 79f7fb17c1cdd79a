"""The record of prepared claims on disk.

Owns what the file says (kind `PreparedClaims`) and where claims come from when an agent starts: our own
record, or the kubelet's if this folder was one's before. Promises: what is written reads back as the same
claims; nothing that a file holds stops an agent from starting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.common.checkpoint import Finding, Loaded, RecordFile, Severity, read_plain
from plimsoll.node.claims import kubelet_file
from plimsoll.node.layout import Layout
from plimsoll.node.prepared import ClaimRef, HeldDevice, PreparedClaim, PreparedDevice

KIND = "PreparedClaims"
VERSION = 1


class _Device(msgspec.Struct, frozen=True, omit_defaults=True):
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)


class _Held(msgspec.Struct, frozen=True, omit_defaults=True):
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
    allocated: dict[str, tuple[_Held, ...]] = {}


class _Body(msgspec.Struct, frozen=True):
    claims: tuple[_Claim, ...]
    boot: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the record says; `boot` is the id of the machine's start in which it was written."""

    claims: tuple[PreparedClaim, ...] = ()
    boot: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """What an agent starts with; `lost`: there was a record and it could not be read."""

    claims: tuple[PreparedClaim, ...] = ()
    findings: tuple[Finding, ...] = ()
    lost: bool = False


def claims_file(layout: Layout, now: Callable[[], float] = time.time) -> RecordFile:
    """Our record of prepared claims."""
    return RecordFile(layout.claims, KIND, layout.quarantine, version=VERSION, check=decode_body, now=now)


def encode_claim(claim: PreparedClaim) -> msgspec.Raw:
    """A claim as the record has it, ready to be put into a body."""
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
            driver: tuple(sorted((_Held(d.pool, d.device, d.share_id) for d in devices), key=_held_key))
            for driver, devices in claim.allocated.items()
        },
    )
    return msgspec.Raw(msgspec.json.encode(row, order="deterministic"))


def _held_key(device: _Held) -> tuple[str, str, str]:
    return device.pool, device.device, device.share_id or ""


def encode_body(rows: Iterable[msgspec.Raw], boot: str = "") -> dict[str, Any]:
    """The body of the record."""
    return {"boot": boot, "claims": list(rows)}


def decode_body(body: Any) -> Recorded:
    """What a body says; ValueError if it is none."""
    try:
        read = msgspec.convert(body, _Body)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"it holds no prepared claims: {error}") from None
    if len({row.uid for row in read.claims}) != len(read.claims):
        raise ValueError("it holds a claim twice")
    return Recorded(tuple(map(_claim, read.claims)), read.boot)


def _claim(row: _Claim) -> PreparedClaim:
    return PreparedClaim(
        ref=ClaimRef(row.namespace, row.name, row.uid),
        pods=frozenset(row.pods),
        drivers={
            driver: tuple(PreparedDevice(d.pool, d.device, d.requests, d.cdi, d.share_id) for d in devices)
            for driver, devices in row.drivers.items()
        },
        ready=row.ready,
        pending=frozenset(row.pending),
        allocated={
            driver: frozenset(HeldDevice(d.pool, d.device, d.share_id) for d in devices)
            for driver, devices in row.allocated.items()
        },
    )


def restore(layout: Layout, file: RecordFile, *, boot: str = "", touch: bool = True) -> Restored:
    """The claims an agent starts with; with `touch` off, nothing is moved into quarantine."""
    loaded: Loaded = file.load() if touch else file.look()
    if loaded.finding is not None:
        return Restored((), (loaded.finding,), lost=True)
    if loaded.value is None:
        return _take_over(layout)
    recorded: Recorded = loaded.value
    if not recorded.claims or boot in ("", recorded.boot) or not recorded.boot:
        return Restored(recorded.claims)
    # CDI files and devices do not outlive the machine's memory.
    what = f"the machine was started anew: {len(recorded.claims)} claims on record are prepared again"
    return Restored(tuple(map(doubted, recorded.claims)), (Finding(Severity.INFO, what),))


def examine(layout: Layout) -> Restored:
    """What an agent would start with, without touching anything."""
    return restore(layout, claims_file(layout), boot=read_boot(), touch=False)


def doubted(claim: PreparedClaim) -> PreparedClaim:
    """A claim of which nobody knows whether its drivers still hold it."""
    return replace(claim, ready=False, pending=claim.pending | frozenset(claim.drivers))


def read_boot(path: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """The id of the machine's start; empty where there is none."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def _take_over(layout: Layout) -> Restored:
    """The claims of a kubelet that ran here before.

    They have to be prepared once more, as the kubelet itself does after every start: its file does not say
    whether a driver was asked to release a claim in the meantime. The file is its own and stays as it is.
    """
    path = layout.kubelet_claims
    raw, problem = read_plain(path)
    if raw is None:
        return Restored()
    decoded = kubelet_file.decode(b"" if problem else raw)
    problem = problem or decoded.error or decoded.claims_error
    if problem:
        what = f"the kubelet's record {path} cannot be used: {problem}"
        fix = f"the claims of the pods on this node are prepared again; remove {path} once they are"
        return Restored((), (Finding(Severity.ERROR, what, fix, str(path)),), lost=True)
    claims: dict[str, PreparedClaim] = {}
    for state in decoded.claims or ():
        claim = kubelet_file.to_prepared(state)
        # The kubelet goes by names, so that a UID stands twice only in a file that was tampered with.
        known = claims.get(claim.ref.uid)
        claims[claim.ref.uid] = claim if known is None else replace(claim, pods=claim.pods | known.pods)
    if not claims:
        return Restored()
    what = f"{len(claims)} prepared claims were taken over from the kubelet's record {path}"
    return Restored(tuple(claims.values()), (Finding(Severity.INFO, what, "", str(path)),))
