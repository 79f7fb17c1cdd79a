"""Inspection of files of any kind.

Functions do not follow links, block on pipes, read without bound, or raise; names may contain any bytes.
"""

from __future__ import annotations

import errno
import os
import pwd
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from plimsoll.protocols.rpc import MAX_PATH_LENGTH

MOST_ENTRIES = 4096
#: Result of probing a socket that no process serves.
REFUSED = "refused"
_PROBE_SECONDS = 2.0

_KINDS = {
    stat.S_IFDIR: "directory",
    stat.S_IFREG: "file",
    stat.S_IFSOCK: "socket",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}
ABSENT, UNKNOWN = "absent", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """File at a path; `unknown` with an error if it cannot be inspected."""

    path: Path
    kind: str = ABSENT
    uid: int = 0
    mode: int = 0
    size: int = 0
    changed: float = 0.0
    error: str = ""

    @property
    def exists(self) -> bool:
        return self.kind != ABSENT


@dataclass(frozen=True, slots=True)
class DirListing:
    """Entries of a directory by name; `more`: the listing was truncated."""

    entries: tuple[FileEntry, ...] = ()
    error: str = ""
    more: bool = False


def stat_entry(path: Path) -> FileEntry:
    """Return the entry at a path."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return FileEntry(path=path)
    except (OSError, ValueError) as error:
        return FileEntry(path=path, kind=UNKNOWN, error=reason(error))
    return FileEntry(
        path=path,
        kind=_KINDS.get(stat.S_IFMT(found.st_mode), UNKNOWN),
        uid=found.st_uid,
        mode=stat.S_IMODE(found.st_mode),
        size=found.st_size,
        changed=found.st_mtime,
    )


def list_dir(directory: Path, most: int = MOST_ENTRIES) -> DirListing:
    """List a directory; a missing directory is empty, a link is an error."""
    names: list[str] = []
    more = False
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return DirListing()
    except (OSError, ValueError) as error:
        return DirListing(error=reason(error))
    try:
        with os.scandir(descriptor) as found:
            for entry in found:
                if len(names) == most:
                    more = True
                    break
                names.append(entry.name)
    except OSError as error:
        return DirListing(error=reason(error))
    finally:
        os.close(descriptor)
    found_here = (stat_entry(directory / name) for name in sorted(names))
    return DirListing(tuple(entry for entry in found_here if entry.exists), more=more)


def read_file(path: Path, most: int) -> tuple[bytes, str]:
    """Return the bytes of a regular file, or the error."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        return b"", reason(error)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b"", "not a regular file"
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        return b"", reason(error)
    finally:
        os.close(fd)
    return (b"", f"larger than {most} bytes") if len(data) > most else (data, "")


def probe_socket(path: Path) -> str:
    """Connect to a socket: return "" if it is served, `refused` if nothing listens, else the error."""
    if len(os.fsencode(path)) > MAX_PATH_LENGTH:
        return f"path longer than {MAX_PATH_LENGTH} bytes"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PROBE_SECONDS)
        try:
            client.connect(str(path))
        except TimeoutError:
            return "connection timed out"
        except (OSError, ValueError) as problem:
            number = getattr(problem, "errno", 0)
            if number == errno.ECONNREFUSED:
                return REFUSED
            # Another socket type, or a full backlog: it is in use.
            return "" if number in (errno.EPROTOTYPE, errno.EAGAIN) else str(problem)
    return ""


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"user {uid}"


def reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def size_text(size: float) -> str:
    """Format bytes: 31.2Gi."""
    for unit in ("B", "Ki", "Mi", "Gi", "Ti"):
        if abs(size) < 1024:
            return f"{size:.0f}{unit}" if size >= 100 or size == int(size) else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}Pi"


def age_text(seconds: float) -> str:
    """Format a duration: 45s, 12m, 3h, 9d."""
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"
