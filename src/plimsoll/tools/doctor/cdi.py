"""CDI files: invalid files, files of claims that no longer exist, and claims whose devices are undefined.

A file belongs to a claim if its name ends with the claim's UID (`vendor-class_UID.json`) or its devices start
with it (`UID-device`, `claim-UID-device`). Devices named by their own UUID (`GPU-UUID`) do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from plimsoll.node.layout import Layout
from plimsoll.protocols.cdi import CdiCache, Edits
from plimsoll.tools.doctor.facts import CdiFacts, ClaimCdiFile, NodeFacts, RecordFacts
from plimsoll.tools.doctor.files import age_text, stat_entry
from plimsoll.tools.doctor.findings import command, error, note, ok, warning
from plimsoll.tools.findings import Finding

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_FILE = re.compile(rf".*[_-]({_UUID})")
_DEVICE = re.compile(rf"(?:claim-)?({_UUID})(?:-.*)?")
#: Age up to which a file may belong to a claim that is being prepared.
_SETTLED_SECONDS = 60.0


def uid_in_file(stem: str) -> str | None:
    """Return the claim UID in a file name, if any."""
    match = _FILE.fullmatch(stem)
    return match[1] if match is not None else None


def uid_in_device(name: str) -> str | None:
    """Return the claim UID in a device name, if any."""
    match = _DEVICE.fullmatch(name)
    return match[1] if match is not None else None


def gather(layout: Layout, directories: Sequence[Path], records: RecordFacts) -> CdiFacts:
    cdi = CdiCache(directories)
    by_file: dict[Path, list[str | None]] = {}
    for device in cdi.devices().values():
        by_file.setdefault(device.path, []).append(uid_in_device(device.device.name))
    files = []
    for path, found in sorted(by_file.items()):
        whole = uid_in_file(path.stem)
        uids = frozenset(uid for uid in (*found, whole) if uid is not None)
        if uids:
            only = whole is not None or None not in found
            own = path.is_relative_to(layout.root)
            files.append(ClaimCdiFile(entry=stat_entry(path), uids=uids, own=own, only=only))
    names = [
        (claim, driver, name)
        for claim in records.prepared
        for driver, devices in claim.drivers.items()
        for device in devices
        for name in device.cdi
    ]
    answer = cdi.edits([name for _, _, name in names])
    why = {} if isinstance(answer, Edits) else {fault.where: fault.message for fault in answer}
    unresolved = [
        (name, f"claim {claim.ref} ({claim.ref.uid}) of {driver}", why[name])
        for claim, driver, name in names
        if name in why
    ]
    return CdiFacts(
        directories=tuple(directories),
        devices=len(cdi.devices()),
        faults=cdi.faults(),
        files=tuple(files),
        unresolved=tuple(unresolved),
        names=len(names),
    )


def check(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.cdi
    for fault in found.faults:
        id = "cdi.conflict" if fault.code == "conflict" else "cdi.file"
        fix = "restart its driver, which writes it again"
        if fault.code == "conflict":
            fix = "remove one of the files"
        yield warning(id, fault.where, fault.message, fix)
    for name, user, why in found.unresolved:
        fix = "restart the driver; if it does not write the file, delete the pods that use the claim"
        yield error("cdi.missing", name, f"{user} uses this device: {why}", fix)
    if found.names and not found.unresolved:
        yield ok("cdi.missing", "claims", f"all of their {found.names} CDI devices are defined")
    yield from _check_files(facts)
    shown = ", ".join(map(str, found.directories))
    yield ok("cdi.directories", shown, f"{found.devices} usable devices")


def _check_files(facts: NodeFacts) -> Iterator[Finding]:
    records, files = facts.records, facts.cdi.files
    if not files:
        return
    if not records.claims.usable or not records.kubelet.usable:
        text = f"{len(files)} files belong to claims; the prepared claims are unknown"
        yield note("cdi.leftover", "CDI files", text, "correct the record of claims first")
        return
    known = {claim.ref.uid for claim in records.prepared}
    # Some drivers name files after pods, or after shares of a device.
    known |= {uid for claim in records.prepared for uid in claim.pods}
    known |= {
        device.share_id
        for claim in records.prepared
        for devices in claim.drivers.values()
        for device in devices
        if device.share_id
    }
    left = 0
    for file in files:
        strange = sorted(file.uids - known)
        if not strange:
            continue
        age = facts.now - file.entry.changed
        text = f"belongs to claim {strange[0]}, which is not prepared here; {age_text(age)} old"
        remove = command("rm", file.entry.path)
        if not file.own:
            # The directory is shared: another agent may have prepared that claim.
            fix = f"if no other agent runs here: {remove}"
            yield note("cdi.leftover", file.entry.path, text, fix)
            continue
        if facts.running and age < _SETTLED_SECONDS:
            continue
        left += 1
        fix = "restart the driver: the file has other devices as well"
        if file.only and len(strange) == len(file.uids):
            fix = f"the driver writes it again when needed: {remove}"
        yield warning("cdi.leftover", file.entry.path, text, fix)
    if not left:
        yield ok("cdi.leftover", "CDI files", f"{len(files)} files of claims")
