"""Names and indexes of NRI plugins, with upstream's error texts, and NRI versions of runtimes."""

from __future__ import annotations

import re
from typing import TypeAlias

from plimsoll.api.go_text import quote_go

#: NRI version of the server and of the plugin.
NRI_VERSION = "v0.12.2"
MAX_NAME_LENGTH = 253

_NAME = re.compile(r"[A-Za-z0-9_.+-]")
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")

Version: TypeAlias = tuple[int, int, int]
#: First version in which unsolicited updates cannot deadlock a runtime that is updating a container.
SAFE_UPDATES: Version = (0, 12, 1)


def name_fault(name: str) -> str | None:
    """Return the error of a plugin's name, if any."""
    if not name:
        return "invalid plugin name: name is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"invalid plugin name: longer than {MAX_NAME_LENGTH} characters"
    for char in name:
        if not _NAME.fullmatch(char):
            return f"invalid plugin name {quote_go(name)}: contains invalid character {_quote_char(char)}"
    return None


def index_fault(index: str) -> str | None:
    """Return the error of a plugin's index, if any."""
    if len(index.encode()) != 2:
        return f"invalid plugin index {quote_go(index)}, must be 2 digits"
    if not all(char in "0123456789" for char in index):
        return f"invalid plugin index {quote_go(index)} (not [0-9][0-9])"
    return None


def _quote_char(char: str) -> str:
    return "'" + quote_go(char)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"


def read_version(text: str) -> Version | None:
    """Parse `v0.12.0`, with any suffix, as numbers."""
    found = _VERSION.match(text)
    version = (0, 0, 0) if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))
    # A runtime built without a version reports 0.0.0.
    return version if any(version) else None


#: Releases of containerd in which the NRI version changed.
_CONTAINERD: tuple[tuple[Version, Version], ...] = (
    ((2, 4, 0), (0, 12, 1)),
    ((2, 3, 0), (0, 12, 0)),
    ((2, 2, 0), (0, 11, 0)),
)


def nri_version(runtime: str, runtime_version: str, reported: str) -> Version | None:
    """Return the NRI version of a runtime: as reported, else by its release; None if unknown."""
    if (version := read_version(reported)) is not None:
        return version
    release = read_version(runtime_version)
    if runtime == "containerd" and release is not None:
        for since, version in _CONTAINERD:
            if release >= since:
                return version
    return None
