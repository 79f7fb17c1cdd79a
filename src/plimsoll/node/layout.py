"""Where an agent keeps its files and sockets.

Owns every path below the root folder. The names that drivers and monitoring agents look for are the kubelet's
(sections 1, 3 and 4 of the node protocols); everything else is ours. Promises: no name that comes from an API
object or a driver leads out of its folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from plimsoll.errors import InputError

_PART = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")


def part(name: str) -> str:
    """A name as one part of a path; InputError if it could be anything else."""
    if not _PART.fullmatch(name) or ".." in name:
        raise InputError(f"{name!r} cannot be the name of a file or folder")
    return name


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one agent. Many agents share a machine by having different roots."""

    root: Path

    # -- known to others

    @property
    def registry(self) -> Path:
        """Where plugins put the sockets by which they register."""
        return self.root / "plugins_registry"

    @property
    def plugins(self) -> Path:
        """Where drivers keep their own sockets, one folder for each."""
        return self.root / "plugins"

    @property
    def pod_resources(self) -> Path:
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def kubelet_claims(self) -> Path:
        """The kubelet's own record of prepared claims, if this was a kubelet's root."""
        return self.root / "dra_manager_state"

    # -- ours

    @property
    def claims(self) -> Path:
        """Our record of prepared claims."""
        return self.root / "claims.json"

    @property
    def admitted(self) -> Path:
        """Which pods were let in, and with what."""
        return self.root / "admitted.json"

    @property
    def quarantine(self) -> Path:
        """Where damaged records are put."""
        return self.root / "quarantine"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def nri(self) -> Path:
        """The default socket for NRI plugins."""
        return self.root / "nri" / "nri.sock"

    @property
    def cdi(self) -> Path:
        """The default folder for CDI files."""
        return self.root / "cdi"

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    def pod(self, uid: str) -> Path:
        return self.pods / part(uid)

    def container(self, uid: str, name: str) -> Path:
        """What is kept of a container: state, logs and its working files."""
        return self.pod(uid) / "containers" / part(name)
