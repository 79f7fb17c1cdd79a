"""What the doctor can mend, as values: exactly what is to be done to what.

Owns `Repair`. What is to be changed is known by its identity (device and inode, pid and start time), so that
nothing else is touched that has taken its place. `alone`: not while an agent works in the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

Identity: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RemoveSocket:
    """A socket that nobody serves; looked at again before it goes."""

    path: Path
    identity: Identity
    alone: bool = True

    @property
    def what(self) -> str:
        return f"remove the socket {self.path}"


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A file, link or pipe that nobody needs."""

    path: Path
    identity: Identity
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True, slots=True)
class RemoveDir:
    """A folder with all that is in it."""

    path: Path
    identity: Identity
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        return f"remove the folder {self.path}"


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
    """Something that cannot be used: moved into a folder for people to look at."""

    path: Path
    identity: Identity
    directory: Path
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        return f"move {self.path} into {self.directory}"


@dataclass(frozen=True, slots=True)
class EndPod:
    """Kill the processes of a pod that nobody knows, and remove its cgroup and its folder."""

    uid: str
    processes: int
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        killed = f"kill {self.processes} processes and " if self.processes else ""
        return f"{killed}remove the folder and cgroup of pod {self.uid}"


@dataclass(frozen=True, slots=True)
class EndShim:
    """Kill a shim whose container is gone, with what it has started."""

    pid: int
    start: int
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        return f"kill process {self.pid} and what it has started"


@dataclass(frozen=True, slots=True)
class RemoveCgroup:
    """The cgroup of a pod that is gone; what still runs inside is killed."""

    uid: str
    processes: int
    alone: ClassVar[bool] = True

    @property
    def what(self) -> str:
        killed = f"kill {self.processes} processes and " if self.processes else ""
        return f"{killed}remove the cgroup of pod {self.uid}"


@dataclass(frozen=True, slots=True)
class RemoveCgroupRoot:
    """The root of the cgroups of an agent whose directory was deleted; what still runs inside is killed."""

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
