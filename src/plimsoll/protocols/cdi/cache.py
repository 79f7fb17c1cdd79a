"""Cache of the CDI directories of a machine: their devices, and the container edits of each.

A later directory takes precedence; two files of one directory that define the same device make it unusable.
Every query checks whether files have changed. Thread-safe.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from plimsoll.protocols.cdi.names import parse_name
from plimsoll.protocols.cdi.reading import CdiFault, read_spec
from plimsoll.protocols.cdi.spec import CdiSpec, CdiSpecDevice, Edits

#: Time in nanoseconds within which a file may change again without a new time stamp.
UNSETTLED_NANOSECONDS = 50_000_000

#: Identifies a version of a file: inode, size, times.
_Stamp: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """Device and the file that defines it."""

    name: str
    path: Path
    spec: CdiSpec
    device: CdiSpecDevice


@dataclass(frozen=True, slots=True)
class _File:
    stamp: _Stamp | None
    content: CdiSpec | CdiFault


@dataclass(frozen=True, slots=True)
class _DeviceIndex:
    devices: Mapping[str, CdiDevice]
    conflicts: Mapping[str, CdiFault]
    faults: tuple[CdiFault, ...]


class CdiCache:
    """Devices of CDI directories in ascending precedence; absent directories count as empty."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = tuple(directories)
        self._files: dict[Path, _File] = {}
        self._index = _DeviceIndex({}, {}, ())
        self._read = False
        self._lock = threading.Lock()

    def edits(self, names: Sequence[str]) -> Edits | tuple[CdiFault, ...]:
        """Return the container edits of devices: the edits of each file once, before those of its devices."""
        index = self._refresh() if names else self._index
        edits, seen = Edits(), set[Path]()
        faults: list[CdiFault] = []
        for name in dict.fromkeys(names):
            found = index.devices.get(name)
            if found is None:
                faults.append(_unresolved(name, index))
                continue
            if found.path not in seen:
                seen.add(found.path)
                edits = edits.plus(found.spec.edits)
            edits = edits.plus(found.device.edits)
        return tuple(faults) if faults else edits

    def devices(self) -> Mapping[str, CdiDevice]:
        """Return all usable devices by qualified name."""
        return self._refresh().devices

    def faults(self) -> tuple[CdiFault, ...]:
        """Return directories, files and devices that cannot be used."""
        return self._refresh().faults

    def _refresh(self) -> _DeviceIndex:
        with self._lock:
            files: dict[Path, _File] = {}
            listing: list[list[Path]] = []
            faults: list[CdiFault] = []
            for directory in self.directories:
                paths: list[Path] = []
                try:
                    stamps = _scan(directory)
                except (OSError, ValueError) as error:
                    stamps = {}
                    if not isinstance(error, FileNotFoundError):
                        faults.append(CdiFault("unreadable", str(directory), f"failed to monitor: {error}"))
                for path, stamp in sorted(stamps.items()):
                    known = self._files.get(path)
                    if known is None or known.stamp is None or known.stamp != stamp:
                        known = _File(_settled(stamp), read_spec(path))
                    files[path] = known
                    paths.append(path)
                listing.append(paths)
            same = len(files) == len(self._files) and all(self._files.get(p) is f for p, f in files.items())
            if not (self._read and same) or faults or self._index.faults:
                self._files = files
                self._index = combine(
                    [[(path, files[path].content) for path in paths] for paths in listing], faults
                )
                self._read = True
            return self._index


def combine(
    directories: Iterable[Sequence[tuple[Path, CdiSpec | CdiFault]]], faults: Iterable[CdiFault] = ()
) -> _DeviceIndex:
    """Combine the files of all directories.

    A device that two files of one directory define is unusable even if a later directory defines it too, as
    in other runtimes.
    """
    devices: dict[str, CdiDevice] = {}
    priority: dict[str, int] = {}
    conflicts: dict[str, CdiFault] = {}
    found = list(faults)
    for order, files in enumerate(directories):
        for path, content in files:
            if isinstance(content, CdiFault):
                found.append(content)
                continue
            for device in content.devices:
                name = f"{content.kind}={device.name}"
                if priority.get(name) == order:
                    text = f'conflicting device "{name}" (specs "{path}", "{devices[name].path}")'
                    conflicts.setdefault(name, CdiFault("conflict", name, text))
                else:
                    devices[name] = CdiDevice(name, path, content, device)
                    priority[name] = order
    usable = {name: device for name, device in devices.items() if name not in conflicts}
    return _DeviceIndex(usable, conflicts, (*found, *conflicts.values()))


def _scan(directory: Path) -> dict[Path, _Stamp | None]:
    """Return the CDI files of a directory with their stamps, without subdirectories."""
    stamps: dict[Path, _Stamp | None] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.name.endswith((".json", ".yaml")):
                continue
            try:
                info = entry.stat()
            except OSError:  # a dangling link: reported when it is read
                stamps[directory / entry.name] = None
                continue
            if not entry.is_dir():
                stamp = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
                stamps[directory / entry.name] = stamp
    return stamps


def _settled(stamp: _Stamp | None) -> _Stamp | None:
    return stamp if stamp is not None and time.time_ns() - max(stamp[2:]) > UNSETTLED_NANOSECONDS else None


def _unresolved(name: str, index: _DeviceIndex) -> CdiFault:
    if name in index.conflicts:
        return index.conflicts[name]
    parsed = parse_name(name)
    if parsed is None:
        return CdiFault("unresolvable", name, "not a qualified CDI device name: write vendor/class=device")
    kinds = {device.spec.kind for device in index.devices.values()}
    broken = [fault for fault in index.faults if fault.code != "conflict"]
    hint = f"; {broken[0]}" if broken and parsed.kind not in kinds else ""
    what = "no CDI file defines it" if parsed.kind in kinds else f"no CDI file is of kind {parsed.kind}"
    return CdiFault("unresolvable", name, what + hint)
