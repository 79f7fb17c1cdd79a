"""Paths of an agent's files and sockets, all below its root directory.

The names that drivers and monitoring agents look for are the kubelet's (docs/spec/node-protocols.md, "Plugin
registration", "DRA manager checkpoint" and "PodResources"); the others are Plimsoll's. Guarantees that no
name from an API object or a driver leads out of its directory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from plimsoll.errors import InputError

_COMPONENT = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")


def is_path_component(name: str) -> bool:
    """Return whether a name is a valid component of a path, such as a UID or an ID."""
    return _COMPONENT.fullmatch(name) is not None and ".." not in name


def path_component(name: str) -> str:
    """Validate a name as one component of a path; raise InputError if it could be anything else."""
    if not is_path_component(name):
        raise InputError(f"{name!r} is not a valid file or directory name")
    return name


@dataclass(frozen=True, slots=True)
class Layout:
    """Directories of one agent. Agents with different roots share a machine."""

    root: Path

    # -- shared with other programs

    @property
    def registry(self) -> Path:
        """Directory in which plugins create their registration sockets."""
        return self.root / "plugins_registry"

    @property
    def plugins(self) -> Path:
        """Directory in which drivers keep their own sockets, one subdirectory each."""
        return self.root / "plugins"

    @property
    def pod_resources(self) -> Path:
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def device_plugins(self) -> Path:
        """Directory of device plugins: the node's registration socket, and their own sockets."""
        return self.root / "device-plugins"

    @property
    def kubelet_claims(self) -> Path:
        """The kubelet's checkpoint of prepared claims, if this was a kubelet's root directory."""
        return self.root / "dra_manager_state"

    # -- private

    @property
    def claims(self) -> Path:
        """Checkpoint of prepared claims."""
        return self.root / "claims.json"

    @property
    def devices(self) -> Path:
        """Checkpoint of the devices of device plugins."""
        return self.root / "devices.json"

    @property
    def admitted(self) -> Path:
        """Checkpoint of admitted pods and their allocated resources."""
        return self.root / "admitted.json"

    @property
    def pki(self) -> Path:
        """Directory of the agent's serving certificate."""
        return self.root / "pki"

    @property
    def quarantine(self) -> Path:
        """Directory for damaged checkpoints."""
        return self.root / "quarantine"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def nri(self) -> Path:
        """Default socket for NRI plugins."""
        return self.root / "nri" / "nri.sock"

    @property
    def cdi(self) -> Path:
        """Default directory for CDI files."""
        return self.root / "cdi"

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    def pod(self, uid: str) -> Path:
        return self.pods / path_component(uid)

    def container(self, uid: str, name: str) -> Path:
        """Return the directory of a container: state, logs and working files."""
        return self.pod(uid) / "containers" / path_component(name)
