"""Access to sysfs files with an optional overlay (docs/spec/cpu-driver.md, "Configuration").

`read_overlay` reads a YAML map of absolute sysfs paths to file contents, for tests and for virtual machines
with a wrong topology; `SysFiles` reads the machine with the overlay applied. Invalid overlays raise
InputError with the path; files are read up to 1 MiB.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from plimsoll.api.go_text import quote_go
from plimsoll.common.yaml import load_documents
from plimsoll.errors import InputError

SYS = "/sys"
_SIZE_MAX = 1 << 20
_CPU_DIR = re.compile(r"devices/system/cpu/cpu[0-9]+", re.ASCII)
_NODE_ENTRY = re.compile(r"node[0-9]+", re.ASCII)


def read_overlay(path: Path) -> dict[str, str | None]:
    """Read an overlay file; raises InputError if it is missing or invalid.

    DIFF: null hides a file or directory of the machine; the Go driver accepts strings only
    (test_null_hides_a_file_or_a_directory).
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"read sysfs overlay: open {path}: {format_os_error(error)}") from None
    start = f"{path}: create sysfs overlay: "
    try:
        documents = [tree for _, tree in load_documents(text)]
    except InputError as error:
        raise InputError(f"{start}parse sysfs overlay: {error}") from None
    if len(documents) > 1:
        raise InputError(f"{start}parse sysfs overlay: it must be one document, not {len(documents)}")
    tree = documents[0] if documents else {}
    if not isinstance(tree, dict):
        raise InputError(
            f"{start}parse sysfs overlay: it must be a map of absolute sysfs paths to file contents"
        )
    overlay: dict[str, str | None] = {}
    for name, contents in tree.items():
        if contents is not None and not isinstance(contents, str):
            raise InputError(f"{start}parse sysfs overlay: value for {quote(str(name))} must be a string")
        overlay[str(name)] = contents
    try:
        check_overlay(overlay)
    except InputError as error:
        raise InputError(f"{start}{error}") from None
    return overlay


def check_overlay(overlay: Mapping[str, str | None]) -> None:
    """Raise InputError, with the Go driver's text, if an overlay is invalid."""
    nodes: dict[str, str] = {}
    for full in sorted(overlay):
        if not full.startswith(SYS + "/"):
            raise InputError(f"sysfs overlay path {quote(full)} must be beneath {SYS}")
        if posixpath.normpath(full) != full:
            raise InputError(f"sysfs overlay path {quote(full)} is not clean")
        if "\0" in full:
            raise InputError(f"invalid sysfs overlay path {quote(full)}")
        if overlay[full] is None:
            continue
        for parent in _parents(full):
            if overlay.get(parent) is not None:
                raise InputError(f"sysfs overlay path {quote(parent)} is both a file and a directory")
        directory, entry = _node_entry(full.removeprefix(SYS + "/"))
        if directory and nodes.setdefault(directory, entry) != entry:
            both = f"{nodes[directory]} and {entry}"
            raise InputError(f"sysfs overlay defines multiple NUMA nodes beneath {SYS}/{directory}: {both}")


class SysFiles:
    """Files of /sys below a root, with an overlay. Names are relative to /sys.

    As in the Go driver, an overlay that names a `nodeN` of a CPU replaces the node of the machine.
    """

    def __init__(self, root: Path = Path("/"), overlay: Mapping[str, str | None] | None = None) -> None:
        overlay = overlay or {}
        check_overlay(overlay)
        self.root = root / SYS[1:]
        self._prefix = str(self.root) + "/"
        self._files: dict[str, str] = {}
        self._directories: dict[str, set[str]] = {}
        self._hidden: set[str] = set()
        self._moved: set[str] = set()
        for full, contents in overlay.items():
            name = full.removeprefix(SYS + "/")
            if contents is None:
                self._hidden.add(name)
                continue
            self._files[name] = contents
            while name:
                directory, _, entry = name.rpartition("/")
                self._directories.setdefault(directory, set()).add(entry)
                name = directory
            if moved := _node_entry(full.removeprefix(SYS + "/"))[0]:
                self._moved.add(moved)

    def path(self, name: str) -> str:
        """Return the full path of a file for messages."""
        return self._prefix + name

    def is_overlaid(self, name: str) -> bool:
        """Report whether the overlay defines a file."""
        return name in self._files

    def read(self, name: str) -> str:
        """Return the content of a file; raises OSError if it does not exist."""
        if self._files or self._hidden:
            if name in self._files:
                return self._files[name]
            if name in self._directories:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
            if self._is_hidden(name):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        file = os.open(self._prefix + name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = chunk = os.read(file, 4096)
            while chunk and len(data) < _SIZE_MAX:
                chunk = os.read(file, 1 << 16)
                data += chunk
        finally:
            os.close(file)
        return data.decode(errors="replace")

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; raises OSError if it does not exist."""
        own = self._directories.get(directory, set())
        names: set[str] = set()
        if not self._is_hidden(directory):
            try:
                names.update(os.listdir(self._prefix + directory))
            except OSError:
                if not own:
                    raise
        elif not own:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
        if directory in self._moved:
            names = {name for name in names if not _NODE_ENTRY.fullmatch(name)}
        if self._hidden:
            names = {name for name in names if f"{directory}/{name}" not in self._hidden}
        return sorted(names | own)

    def _is_hidden(self, name: str) -> bool:
        return bool(self._hidden) and (
            name in self._hidden or any(up in self._hidden for up in _parents(name))
        )


def format_os_error(error: OSError) -> str:
    """Format an OSError like Go does."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def quote(text: str) -> str:
    """Quote external text on one line with limited length."""
    shown = text if len(text) <= 120 else text[:117] + "..."
    return quote_go(shown)


def _parents(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _node_entry(name: str) -> tuple[str, str]:
    """Return the directory of a CPU and the NUMA node that a path assigns to it, or two empty strings."""
    parts = name.split("/")
    directory = "/".join(parts[:4])
    if len(parts) > 4 and _CPU_DIR.fullmatch(directory) and _NODE_ENTRY.fullmatch(parts[4]):
        return directory, parts[4]
    return "", ""
