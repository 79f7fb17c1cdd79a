"""emptyDir volumes: on disk or in memory, and their size limits.

In memory they are directories of /dev/shm, below one that only the agent can enter; a link in the directory
of the pod leads there. What pods that are gone have left is removed when the agent starts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plimsoll.api.quantity import Quantity
from plimsoll.errors import InputError, QuantityError
from plimsoll.node.layout import Layout, path_component

SHARED_MEMORY = Path("/dev/shm")
MEMORY = "Memory"


class MemoryVolumes:
    """Directories in memory of one agent."""

    def __init__(
        self, layout: Layout, shared: Path = SHARED_MEMORY, mounts: Path = Path("/proc/mounts")
    ) -> None:
        self._layout = layout
        self._shared, self._mounts = shared, mounts
        digest = hashlib.sha256(str(layout.root.absolute()).encode()).hexdigest()[:16]
        self._root = shared / f"plimsoll-{os.geteuid()}-{digest}"

    def make(self, uid: str, name: str) -> Path:
        """Create the directory of a volume; InputError if there is no memory for it."""
        if not self._is_memory():
            raise InputError(f"emptyDir.medium Memory is not supported: there is no tmpfs at {self._shared}")
        self._root.mkdir(mode=0o700, exist_ok=True)
        found = self._root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise InputError(f"{self._root} belongs to another user")
        path = self._root / path_component(uid) / path_component(name)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def remove(self, uid: str) -> None:
        """Remove the volumes of a pod."""
        shutil.rmtree(self._root / path_component(uid), ignore_errors=True)

    def remove_orphans(self) -> None:
        """Remove the volumes of pods that have no directory."""
        try:
            left = [entry.name for entry in self._root.iterdir()]
        except OSError:
            return
        for uid in left:
            if not self._layout.pod(uid).exists():
                self.remove(uid)

    def _is_memory(self) -> bool:
        try:
            lines = self._mounts.read_text(errors="replace").splitlines()
        except OSError:
            return False
        types = [fields[2] for fields in map(str.split, lines) if fields[1:2] == [str(self._shared)]]
        return types[-1:] == ["tmpfs"]


def size_limit(source: Mapping[str, Any]) -> Quantity | None:
    """Return the size limit of an emptyDir; 0 and None are none."""
    try:
        limit = Quantity.from_json(source["sizeLimit"]) if source.get("sizeLimit") is not None else None
    except QuantityError:
        return None
    return limit if limit is not None and limit > Quantity.of(0) else None
