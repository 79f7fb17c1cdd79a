"""Store of prepared claims: their CDI files and the checkpoint that survives a driver restart.

Used for drivers that return `InjectedDevice`. Guarantees: a prepared claim gets the same response until the
driver is called to unprepare it, across restarts of the driver; missing CDI files are written again; after a
reboot, or an unprepare that failed, the driver prepares the claim again, because device state may be lost; an
unusable checkpoint is quarantined and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.common.checkpoint import NodeFinding, RecordFile, read_boot_id
from plimsoll.drivers.plugin.driver import ClaimError, InjectedDevice
from plimsoll.errors import StoreError
from plimsoll.protocols.cdi import (
    CdiFault,
    CdiSpec,
    CdiSpecDevice,
    DeviceNode,
    Edits,
    Mount,
    QualifiedName,
    needed_version,
    remove_spec,
    spec_name,
    write_spec,
)
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

#: Kind and name of the checkpoint file are part of its format.
_KIND = "plimsoll-driver-hands"
_FILE = "handed.json"
#: In place of the boot ID: the driver was called to unprepare the claim.
_RELEASING = "releasing"
#: CDI class of a claim's devices; the vendor is the driver.
_CLASS = "claim"


@dataclass(frozen=True, slots=True)
class PreparedClaimRecord:
    """Prepared claim as checkpointed: its devices and CDI spec (None if nothing is injected)."""

    ref: ClaimRef
    devices: tuple[PreparedDevice, ...]
    spec: CdiSpec | None
    boot: str = ""


def build_record(
    driver: str, ref: ClaimRef, injected: Sequence[InjectedDevice], boot: str
) -> PreparedClaimRecord | ClaimError:
    """Build the record of a claim. Pure."""
    devices: list[PreparedDevice] = []
    cdi: list[CdiSpecDevice] = []
    for index, each in enumerate(injected):
        try:
            edits = _edits(each)
        except (msgspec.ValidationError, TypeError, ValueError, AttributeError) as error:
            return ClaimError(f"device {each.device!r}: {error}", "BadAnswer")
        names: tuple[str, ...] = ()
        if edits:
            name = f"{ref.uid}-{index}"
            cdi.append(CdiSpecDevice(name=name, edits=edits))
            names = (str(QualifiedName(driver, _CLASS, name)),)
        devices.append(
            PreparedDevice(
                pool=each.pool,
                device=each.device,
                requests=tuple(each.requests),
                cdi=names,
                share_id=each.share_id,
                metadata=each.metadata,
                data=each.data,
            )
        )
    spec = None
    if cdi:
        draft = CdiSpec(version="0.3.0", kind=f"{driver}/{_CLASS}", devices=tuple(cdi))
        spec = msgspec.structs.replace(draft, version=needed_version(draft))
    return PreparedClaimRecord(ref, tuple(devices), spec, boot)


def _edits(injected: InjectedDevice) -> Edits:
    mounts = [
        Mount(host_path=str(mount[0]), container_path=str(mount[1]), options=("rbind", "rw"))
        if isinstance(mount, tuple)
        else msgspec.convert(dict(mount), Mount)
        for mount in injected.mounts
    ]
    nodes = [
        DeviceNode(path=node) if isinstance(node, str) else msgspec.convert(dict(node), DeviceNode)
        for node in injected.device_nodes
    ]
    return Edits(
        env=tuple(f"{name}={value}" for name, value in injected.env.items()),
        mounts=tuple(mounts),
        device_nodes=tuple(nodes),
    )


class PreparedClaimStore:
    """Prepared claims of one driver. Methods block on disk I/O only."""

    def __init__(self, driver: str, plugin_dir: Path, cdi: Path, *, boot: str | None = None) -> None:
        self._driver = driver
        self._cdi = cdi
        self._boot = read_boot_id() if boot is None else boot
        self._record = RecordFile(
            plugin_dir / _FILE,
            _KIND,
            plugin_dir / "quarantine",
            check=lambda body: _decode_records(body),
        )
        self._claims: dict[str, PreparedClaimRecord] = {}

    @property
    def claims(self) -> Mapping[str, PreparedClaimRecord]:
        """Prepared claims by UID."""
        return dict(self._claims)

    def open(self) -> tuple[NodeFinding, ...]:
        """Load the checkpoint and write missing CDI files."""
        loaded = self._record.load()
        self._claims = loaded.value or {}
        for claim in self._claims.values():
            if claim.boot == self._boot and not self._path(claim.ref.uid).exists():
                self._write_spec_file(claim)
        return (loaded.finding,) if loaded.finding is not None else ()

    def has(self, uid: str) -> bool:
        """Report whether `get` may find the claim; does not block."""
        return uid in self._claims

    def get(self, uid: str) -> PreparedClaimRecord | ClaimError | None:
        """Return a prepared claim with its CDI file in place, or None if the driver has to prepare it."""
        claim = self._claims.get(uid)
        if claim is None or claim.boot != self._boot:
            return None
        return self._write_spec_file(claim) or claim

    def add(self, ref: ClaimRef, injected: Sequence[InjectedDevice]) -> PreparedClaimRecord | ClaimError:
        """Store a prepared claim and write its CDI file: both or neither."""
        claim = build_record(self._driver, ref, injected, self._boot)
        if isinstance(claim, ClaimError):
            return claim
        before = self._claims.get(ref.uid)
        if (refusal := self._save({**self._claims, ref.uid: claim})) is not None:
            return refusal
        if (refusal := self._write_spec_file(claim)) is not None:
            others = {uid: each for uid, each in self._claims.items() if uid != ref.uid}
            self._save(others if before is None else {**others, ref.uid: before})
            return refusal
        return claim

    def mark_releasing(self, uid: str) -> ClaimError | None:
        """Record that the driver is about to unprepare a claim.

        If that fails or never returns, the devices may be in any state, and the driver has to prepare the
        claim again before it is used.
        """
        known = self._claims.get(uid)
        if known is None or known.boot == _RELEASING:
            return None
        return self._save({**self._claims, uid: replace(known, boot=_RELEASING)})

    def remove(self, uid: str) -> ClaimError | None:
        """Remove the CDI file of a claim, then its record: both or neither, unless the disk prevents it.

        A claim without either is not an error.
        """
        error = remove_spec(self._cdi, self._file_name(uid))
        if error is not None:
            return ClaimError(str(error), "CdiNotRemoved")
        known = self._claims.get(uid)
        if known is None:
            return None
        refusal = self._save({each: claim for each, claim in self._claims.items() if each != uid})
        if refusal is not None and known.boot == self._boot:
            self._write_spec_file(known)
        return refusal

    def _file_name(self, uid: str) -> str:
        return spec_name(self._driver, _CLASS, uid) + ".json"

    def _path(self, uid: str) -> Path:
        return self._cdi / self._file_name(uid)

    def _write_spec_file(self, claim: PreparedClaimRecord) -> ClaimError | None:
        if claim.spec is None:
            return None
        written = write_spec(self._cdi, self._file_name(claim.ref.uid), claim.spec)
        if isinstance(written, CdiFault):
            return ClaimError(str(written), "CdiNotWritten")
        return None

    def _save(self, claims: dict[str, PreparedClaimRecord]) -> ClaimError | None:
        try:
            self._record.save({uid: _encode_record(claim) for uid, claim in claims.items()})
        except StoreError as error:
            return ClaimError(str(error), "NotSaved")
        self._claims = claims
        return None


def _encode_record(claim: PreparedClaimRecord) -> dict[str, Any]:
    return {
        "namespace": claim.ref.namespace,
        "name": claim.ref.name,
        "boot": claim.boot,
        "devices": [_encode_device(device) for device in claim.devices],
        "spec": msgspec.to_builtins(claim.spec),
    }


def _encode_device(device: PreparedDevice) -> dict[str, Any]:
    return {
        "pool": device.pool,
        "device": device.device,
        "requests": device.requests,
        "cdi": device.cdi,
        "share_id": device.share_id,
        "metadata": None if device.metadata is None else dict(device.metadata),
        "data": None if device.data is None else dict(device.data),
    }


def _decode_records(body: Any) -> dict[str, PreparedClaimRecord]:
    """Decode the claims of a checkpoint; raises ValueError if it is malformed."""
    try:
        return {
            uid: PreparedClaimRecord(
                ref=ClaimRef(entry["namespace"], entry["name"], uid),
                devices=msgspec.convert(entry["devices"], tuple[PreparedDevice, ...]),
                spec=msgspec.convert(entry["spec"], CdiSpec | None),
                boot=entry["boot"],
            )
            for uid, entry in body.items()
        }
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise ValueError(f"malformed list of claims: {error}") from None
