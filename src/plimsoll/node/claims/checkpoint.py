"""The record of prepared claims on disk.

Owns what the file says (kind `PreparedClaims`) and where claims come from when an agent starts: our own
record, or the kubelet's if this folder was one's before. Promises: what is written reads back as the same
claims; nothing that a file holds stops an agent from starting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from plimsoll.node.claims import kubelet_file
from plimsoll.node.layout import Layout
from plimsoll.node.prepared import ClaimRef, PreparedClaim, PreparedDevice
from plimsoll.node.records import SIZE_MAX, Finding, Loaded, RecordFile, Severity

KIND = "PreparedClaims"
VERSION = 1


class _Device(msgspec.Struct, frozen=True, omit_defaults=True):
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)


class _Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: str
    name: str
    uid: str
    ready: bool
    pods: tuple[str, ...]
    drivers: dict[str, tuple[_Device, ...]]
    pending: tuple[str, ...] = ()


class _Body(msgspec.Struct, frozen=True):
    claims: tuple[_Claim, ...]


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
    )
    return msgspec.Raw(msgspec.json.encode(row, order="deterministic"))


def encode_body(rows: Iterable[msgspec.Raw]) -> dict[str, Any]:
    """The body of the record."""
    return {"claims": list(rows)}


def decode_body(body: Any) -> tuple[PreparedClaim, ...]:
    """The claims of a body; ValueError if it is none."""
    try:
        rows = msgspec.convert(body, _Body).claims
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(f"it holds no prepared claims: {error}") from None
    if len({row.uid for row in rows}) != len(rows):
        raise ValueError("it holds a claim twice")
    return tuple(map(_claim, rows))


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
    )


def restore(layout: Layout, file: RecordFile, *, touch: bool = True) -> Restored:
    """The claims an agent starts with; with `touch` off, nothing is moved into quarantine."""
    loaded: Loaded = file.load() if touch else file.look()
    if loaded.finding is not None:
        return Restored((), (loaded.finding,), lost=True)
    if loaded.value is not None:
        return Restored(loaded.value)
    return _take_over(layout)


def _take_over(layout: Layout) -> Restored:
    """The claims of a kubelet that ran here before.

    They have to be prepared once more, as the kubelet itself does after every start: its file does not say
    whether a driver was asked to release a claim in the meantime. The file is its own and stays as it is.
    """
    path = layout.kubelet_claims
    try:
        with open(path, "rb") as opened:
            raw = opened.read(SIZE_MAX + 1)
    except FileNotFoundError:
        return Restored()
    except OSError as error:
        raw, problem = b"", error.strerror or str(error)
    else:
        problem = f"it has more than {SIZE_MAX} bytes" if len(raw) > SIZE_MAX else ""
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
