"""Repairs as values.

Targets are identified by device and inode, or pid and start time, so that nothing that replaced them is
touched. `alone`: not while an agent uses the directory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

Identity: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RemoveSocket:
    """Remove a socket that no process serves."""

    path: Path
    identity: Identity
    alone: bool = True

    @property
    def what(self) -> str:
        return f"remove the socket {self.path}"


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Remove an unused file, link or pipe."""

    path: Path
    identity: Identity
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True, slots=True)
class RemoveDir:
    """Remove a directory tree."""

    path: Path
    identity: Identity
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        return f"remove the directory {self.path}"


@dataclass(frozen=True, slots=True)
class SetMode:
    path: Path
    identity: Identity
    mode: int
    alone: ClassVar[bool] = False

    @property
    def what(self) -> str:
        return f"set the mode of {self.path} to {self.mode:04o}"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Move an unusable file to the quarantine directory."""

    path: Path
    identity: Identity
    directory: Path
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        return f"move {self.path} to {self.directory}"


@dataclass(frozen=True, slots=True)
class EndPod:
    """Kill the processes of an unknown pod and remove its cgroup and directory."""

    uid: str
    processes: int
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        killed = f"kill {self.processes} processes and " if self.processes else ""
        return f"{killed}remove the directory and cgroup of pod {self.uid}"


@dataclass(frozen=True, slots=True)
class EndShim:
    """Kill a shim whose container is gone, with its descendants."""

    pid: int
    start: int
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        return f"kill process {self.pid} and its descendants"


@dataclass(frozen=True, slots=True)
class RemoveCgroup:
    """Remove the cgroup of a deleted pod and kill its processes."""

    uid: str
    processes: int
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        killed = f"kill {self.processes} processes and " if self.processes else ""
        return f"{killed}remove the cgroup of pod {self.uid}"


@dataclass(frozen=True, slots=True)
class RemoveCgroupRoot:
    """Remove the cgroup root of an agent whose directory was deleted and kill its processes."""

    name: str
    owner: str
    processes: int
    #: It is another agent's: whether one runs in this directory does not matter.
    alone: ClassVar[bool] = False

    @property
    def what(self) -> str:
        killed = f"kill {self.processes} processes and " if self.processes else ""
        return f"{killed}remove the cgroup root {self.name}"


Repair: TypeAlias = (
    RemoveSocket
    | RemoveFile
    | RemoveDir
    | SetMode
    | Quarantine
    | EndPod
    | EndShim
    | RemoveCgroup
    | RemoveCgroupRoot
)
