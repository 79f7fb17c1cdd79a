"""Checkpoint files: one JSON value with kind, version and checksum.

Guarantees: a file is replaced atomically and is on disk when `save` returns; `load` does not raise,
regardless of the content; a file that cannot be used is moved to quarantine and reported, never lost or
overwritten.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.common.atomic_file import replace_file, sync_directory, temporary_path
from plimsoll.errors import StoreError

#: Largest record; a larger file is not a record.
SIZE_MAX = 64 << 20
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class FindingSeverity(StrEnum):
    """Severity of a finding."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class NodeFinding:
    """Problem of a node for its administrator: description and fix."""

    severity: FindingSeverity
    what: str
    fix: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """Content of a record; without a finding, None means that there is no record."""

    value: Any | None = None
    finding: NodeFinding | None = None


#: Converts the body of an older version to the next one; raises ValueError if it is invalid.
Upgrade = Callable[[Any], Any]


@dataclass
class RecordFile:
    """Record at `path`; `upgrades` lead from each older version to the next.

    `check` builds the value from a body, or raises ValueError. `now` returns the time used in the names of
    quarantined files.
    """

    path: Path
    kind: str
    quarantine: Path
    version: int = 1
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    check: Upgrade | None = None
    now: Callable[[], float] = time.time
    _damage: str = field(default="", init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def load(self) -> LoadedCheckpoint:
        """Load the record; one that cannot be used is moved to quarantine."""
        with contextlib.suppress(OSError):
            os.unlink(temporary_path(self.path))  # left by an interrupted save
        value, problem = self._read()
        if not problem:
            return LoadedCheckpoint(value)
        self._damage = problem
        return LoadedCheckpoint(None, self._set_aside())

    def look(self) -> LoadedCheckpoint:
        """Read the record without changing anything."""
        value, problem = self._read()
        if not problem:
            return LoadedCheckpoint(value)
        what = f"{self.path} cannot be used: {problem}"
        fix = f"start the agent: it moves the file to {self.quarantine} and makes a new one"
        return LoadedCheckpoint(None, NodeFinding(FindingSeverity.ERROR, what, fix, str(self.path)))

    def save(self, value: Any) -> None:
        """Replace the record durably; raises StoreError otherwise."""
        with self._writing:
            if self._damage:
                finding = self._set_aside()
                if self._damage:
                    raise StoreError(finding.what)
            try:
                data = render(self.kind, self.version, value)
                if len(data) > SIZE_MAX:
                    raise StoreError(f"cannot write {self.path}: it would have more than {SIZE_MAX} bytes")
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(self.path, data)
                sync_directory(self.path.parent)
            except OSError as error:
                raise StoreError(f"cannot write {self.path}: {_reason(error)}") from error
            except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
                raise StoreError(f"cannot write {self.path}: not a JSON value: {error}") from error

    def _read(self) -> tuple[Any, str]:
        raw, problem = read_regular_file(self.path)
        if raw is None or problem:
            return None, problem
        body, problem = read(raw, self.kind, self.version, self.upgrades)
        if problem or self.check is None:
            return body, problem
        try:
            return self.check(body), ""
        except ValueError as error:
            return None, str(error)

    def _set_aside(self) -> NodeFinding:
        """Move the damaged file away; until then nothing is written in its place."""
        what = f"{self.path} cannot be used: {self._damage}"
        refused = ""
        for directory in (self.quarantine, self.path.parent):
            try:
                place = move_aside(self.path, directory, self.now())
            except FileNotFoundError:
                self._damage = ""
                return NodeFinding(FindingSeverity.ERROR, f"{what}; it was deleted since", "", str(self.path))
            except OSError as error:
                refused = refused or _reason(error)
                continue
            self._damage = ""
            fix = "no action needed: the content is rebuilt; inspect the copy to find the cause"
            return NodeFinding(FindingSeverity.ERROR, f"{what}; it was moved to {place}", fix, str(place))
        fix = f"move {self.path} to another place; nothing is saved until then"
        return NodeFinding(
            FindingSeverity.ERROR, f"{what}; it cannot be moved: {refused}", fix, str(self.path)
        )


def read_boot_id(path: Path = BOOT_ID) -> str:
    """Return the kernel boot ID, or "" if the kernel does not expose one."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""


def read_regular_file(path: Path) -> tuple[bytes | None, str]:
    """Return the content of a file (None if it does not exist) and the reason if it cannot be read."""
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return b"", "not a regular file"
            raw = file.read(SIZE_MAX + 1)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return b"", _reason(error)
    return raw, f"it has more than {SIZE_MAX} bytes" if len(raw) > SIZE_MAX else ""


def render(kind: str, version: int, body: Any) -> bytes:
    """Render a record as file content."""
    raw = msgspec.json.encode(body, order="deterministic")
    head = {"kind": kind, "version": version, "checksum": _checksum(kind, version, raw)}
    whole = msgspec.json.encode(head)[:-1] + b',"body":' + raw + b"}"
    return msgspec.json.format(whole, indent=2) + b"\n"


def read(raw: bytes, kind: str, version: int, upgrades: Mapping[int, Upgrade]) -> tuple[Any, str]:
    """Return the body of a record, and the reason if it is invalid."""
    try:
        tree = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return None, f"not JSON: {error}" if raw.strip() else "it is empty"
    if not isinstance(tree, dict) or "body" not in tree:
        return None, "not a checkpoint"
    if tree.get("kind") != kind:
        return None, f"it has kind {str(tree.get('kind'))[:80]!r} instead of {kind!r}"
    found, body = tree.get("version"), tree["body"]
    if type(found) is not int:
        return None, "its version is missing"
    if found > version:
        return None, f"it was written by a newer release: version {found}, supported up to {version}"
    # Whitespace does not count; members are encoded again in the same order.
    if tree.get("checksum") != _checksum(kind, found, msgspec.json.encode(body)):
        return None, "its checksum does not match"
    try:
        for step in range(found, version):
            body = upgrades[step](body)
    except KeyError:
        return None, f"its version {found} is too old"
    except ValueError as error:
        return None, f"not a valid version {found}: {error}"
    return body, ""


def _checksum(kind: str, version: int, raw: bytes) -> str:
    return "sha256:" + hashlib.sha256(f"{kind} {version} ".encode() + raw).hexdigest()


def _open(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def move_aside(path: Path, directory: Path, now: float) -> Path:
    """Move a file to a directory, under a new name with the time; return its path."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{path.name}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
    place, number = directory / name, 1
    while os.path.lexists(place):
        number += 1
        place = directory / f"{name}.{number}"
    os.rename(path, place)
    return place


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
