"""Devices handed to containers, for drivers that leave the files to the kit.

Owns `PreparedClaimStore`: the CDI file of each claim and its checkpoint. Promises: a claim that was made
ready is answered the same way until it is released, over restarts of the driver too; a file that went missing
is written again; after the machine was started anew the driver is asked again, for nothing of what it did to
its devices is left; a record that cannot be used is put aside and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.common.checkpoint import Finding, RecordFile
from plimsoll.drivers.plugin.driver import InjectedDevice, Refusal
from plimsoll.errors import StoreError
from plimsoll.protocols.cdi import (
    CdiFault,
    Device,
    DeviceNode,
    Edits,
    Mount,
    QualifiedName,
    Spec,
    needed_version,
    remove_spec,
    spec_name,
    write_spec,
)
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

_KIND = "plimsoll-driver-hands"
#: The class of a claim's CDI devices; the vendor is the driver.
_CLASS = "claim"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """What a claim got, and the CDI file that says it (None: there is nothing to say)."""

    ref: ClaimRef
    devices: tuple[PreparedDevice, ...]
    spec: Spec | None
    boot: str = ""


def read_boot_id(path: Path = _BOOT_ID) -> str:
    """What is another text after every start of the machine; empty where there is no such thing."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def make_claim(
    driver: str, ref: ClaimRef, handed: Sequence[InjectedDevice], boot: str
) -> PreparedClaim | Refusal:
    """What containers of a claim get, as values. Pure."""
    devices: list[PreparedDevice] = []
    cdi: list[Device] = []
    for place, each in enumerate(handed):
        try:
            edits = _edits(each)
        except (msgspec.ValidationError, TypeError, ValueError, AttributeError) as error:
            return Refusal(f"device {each.device!r}: {error}", "BadAnswer")
        names: tuple[str, ...] = ()
        if edits:
            name = f"{ref.uid}-{place}"
            cdi.append(Device(name=name, edits=edits))
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
        draft = Spec(version="0.3.0", kind=f"{driver}/{_CLASS}", devices=tuple(cdi))
        spec = msgspec.structs.replace(draft, version=needed_version(draft))
    return PreparedClaim(ref, tuple(devices), spec, boot)


def _edits(handed: InjectedDevice) -> Edits:
    mounts = [
        Mount(host_path=str(mount[0]), container_path=str(mount[1]), options=("rbind", "rw"))
        if isinstance(mount, tuple)
        else msgspec.convert(dict(mount), Mount)
        for mount in handed.mounts
    ]
    nodes = [
        DeviceNode(path=node) if isinstance(node, str) else msgspec.convert(dict(node), DeviceNode)
        for node in handed.device_nodes
    ]
    return Edits(
        env=tuple(f"{name}={value}" for name, value in handed.env.items()),
        mounts=tuple(mounts),
        device_nodes=tuple(nodes),
    )


class PreparedClaimStore:
    """What one driver handed out. Nothing here waits for anything but the disk."""

    def __init__(self, driver: str, folder: Path, cdi: Path, *, boot: str | None = None) -> None:
        self._driver = driver
        self._cdi = cdi
        self._boot = read_boot_id() if boot is None else boot
        self._record = RecordFile(
            folder / "handed.json", _KIND, folder / "quarantine", check=lambda body: _read(body)
        )
        self._claims: dict[str, PreparedClaim] = {}

    @property
    def claims(self) -> Mapping[str, PreparedClaim]:
        """What was handed out, by UID of the claim."""
        return dict(self._claims)

    def open(self) -> tuple[Finding, ...]:
        """Read the record, and write CDI files again that should be there and are not."""
        loaded = self._record.load()
        self._claims = loaded.value or {}
        for claim in self._claims.values():
            if claim.boot == self._boot and not self._path(claim.ref.uid).exists():
                self._write(claim)
        return (loaded.finding,) if loaded.finding is not None else ()

    def known(self, uid: str) -> PreparedClaim | Refusal | None:
        """What a claim has already, with its file in place; None: the driver has to be asked."""
        claim = self._claims.get(uid)
        if claim is None or claim.boot != self._boot:
            return None
        return self._write(claim) or claim

    def hand(self, ref: ClaimRef, handed: Sequence[InjectedDevice]) -> PreparedClaim | Refusal:
        """Put on record and write what a claim gets; all of it, or nothing."""
        claim = make_claim(self._driver, ref, handed, self._boot)
        if isinstance(claim, Refusal):
            return claim
        before = self._claims.get(ref.uid)
        if (refusal := self._save({**self._claims, ref.uid: claim})) is not None:
            return refusal
        if (refusal := self._write(claim)) is not None:
            others = {uid: each for uid, each in self._claims.items() if uid != ref.uid}
            self._save(others if before is None else {**others, ref.uid: before})
            return refusal
        return claim

    def take_back(self, uid: str) -> Refusal | None:
        """Remove the file of a claim, then its entry; a claim that has neither is no mistake."""
        fault = remove_spec(self._cdi, self._name(uid))
        if fault is not None:
            return Refusal(str(fault), "CdiNotRemoved")
        if uid not in self._claims:
            return None
        return self._save({each: claim for each, claim in self._claims.items() if each != uid})

    def _name(self, uid: str) -> str:
        return spec_name(self._driver, _CLASS, uid) + ".json"

    def _path(self, uid: str) -> Path:
        return self._cdi / self._name(uid)

    def _write(self, claim: PreparedClaim) -> Refusal | None:
        if claim.spec is None:
            return None
        written = write_spec(self._cdi, self._name(claim.ref.uid), claim.spec)
        if isinstance(written, CdiFault):
            return Refusal(str(written), "CdiNotWritten")
        return None

    def _save(self, claims: dict[str, PreparedClaim]) -> Refusal | None:
        try:
            self._record.save({uid: _tree(claim) for uid, claim in claims.items()})
        except StoreError as error:
            return Refusal(str(error), "NotSaved")
        self._claims = claims
        return None


def _tree(claim: PreparedClaim) -> dict[str, Any]:
    return {
        "namespace": claim.ref.namespace,
        "name": claim.ref.name,
        "boot": claim.boot,
        "devices": [_device_tree(device) for device in claim.devices],
        "spec": msgspec.to_builtins(claim.spec),
    }


def _device_tree(device: PreparedDevice) -> dict[str, Any]:
    return {
        "pool": device.pool,
        "device": device.device,
        "requests": device.requests,
        "cdi": device.cdi,
        "share_id": device.share_id,
        "metadata": None if device.metadata is None else dict(device.metadata),
        "data": None if device.data is None else dict(device.data),
    }


def _read(body: Any) -> dict[str, PreparedClaim]:
    """The claims of a record; ValueError if it is none."""
    try:
        return {
            uid: PreparedClaim(
                ref=ClaimRef(entry["namespace"], entry["name"], uid),
                devices=msgspec.convert(entry["devices"], tuple[PreparedDevice, ...]),
                spec=msgspec.convert(entry["spec"], Spec | None),
                boot=entry["boot"],
            )
            for uid, entry in body.items()
        }
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
        raise ValueError(f"no list of claims: {error}") from None
