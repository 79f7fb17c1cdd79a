"""State directory of the process runtime: pods and containers on disk, for the next agent.

   pods/UID/sandbox.json                         PodRecord
   pods/UID/containers/NAME/ATTEMPT/state.json   ContainerRecord: what was requested and decided
                                    spec.json    specification of the shim
                                    lock         locked for as long as the shim lives
                                    run.json     the processes (by the shim)
                                    exit.json    exit status (by the shim; by the agent if that died)
                                    log, log.1   output; older files have higher numbers
                                    work/        working directory of a command that specifies none

Guarantees that a file is replaced completely or not at all, and that no file content raises. Records of
earlier versions must remain readable: added fields have defaults. Nothing here is synced to disk: after a
power failure the processes are gone too, and a damaged file is only reported.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from plimsoll.common.atomic_file import replace_file
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.common.disk_usage import disk_usage
from plimsoll.errors import StoreError
from plimsoll.node.containers import (
    ContainerInfo,
    ContainerPhase,
    ContainerSpec,
    ContainerStorage,
    SandboxInfo,
    SandboxSpec,
)
from plimsoll.node.resources import LinuxResources
from plimsoll.node.security.credentials import ProcessCredentials

_MAX = 16 << 20
#: Reason of a container whose state was lost.
LOST = "ContainerStatusUnknown"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    spec: SandboxSpec
    running: bool
    created_at: float
    ip: str = ""

    @property
    def state(self) -> SandboxInfo:
        spec = self.spec
        return SandboxInfo(
            uid=spec.uid,
            name=spec.name,
            namespace=spec.namespace,
            running=self.running,
            created_at=self.created_at,
            ip=self.ip,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchParameters:
    """Start parameters of a container beyond its spec."""

    oom_score_adj: int | None = None
    gids: tuple[int, ...] = ()
    mounts: tuple[dict[str, str | list[str]], ...] = ()
    devices: tuple[dict[str, str], ...] = ()
    pause: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    spec: ContainerSpec
    resources: LinuxResources
    launch: LaunchParameters
    created_at: float
    started: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Processes of a container by pid and start time; `own_mounts`: in a private mount namespace."""

    pid: int
    pid_start: int
    shim: int
    shim_start: int
    boot_id: str
    started_at: float
    own_mounts: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """Exit of a container. `error`: its command never ran. `lost`: its exit status is unknown."""

    exit_code: int
    finished_at: float
    signal: int = 0
    oom: bool = False
    error: str = ""
    lost: str = ""
    message: str = ""  #: what the container left as its message
    notes: tuple[str, ...] = ()


def container_info(
    record: ContainerRecord, run: RunRecord | None, exit: ExitRecord | None, directory: Path
) -> ContainerInfo:
    """Build the state that the runtime reports for a container."""
    spec = record.spec
    if exit is not None:
        phase = ContainerPhase.EXITED
    else:
        phase = ContainerPhase.RUNNING if run is not None else ContainerPhase.CREATED
    notes = (*record.notes, *(exit.notes if exit is not None else run.notes if run is not None else ()))
    return ContainerInfo(
        id=spec.id,
        pod=spec.pod,
        name=spec.name,
        attempt=spec.attempt,
        phase=phase,
        pid=run.pid if run is not None and exit is None else 0,
        created_at=record.created_at,
        started_at=run.started_at if run is not None else 0.0,
        finished_at=exit.finished_at if exit is not None else 0.0,
        exit_code=exit.exit_code if exit is not None else 0,
        signal=exit.signal if exit is not None else 0,
        reason=exit_reason(exit) if exit is not None else "",
        message="; ".join(filter(None, (*_exit_texts(exit), *notes))),
        cpus=record.resources.cpus,
        log=str(directory / "log"),
    )


def _exit_texts(exit: ExitRecord | None) -> tuple[str, ...]:
    return (exit.message, exit.error or exit.lost) if exit is not None else ()


def exit_reason(exit: ExitRecord) -> str:
    """Return the reason of an exit."""
    if exit.lost:
        return LOST
    if exit.error:
        return "StartError"
    if exit.oom:
        return "OOMKilled"
    return "Completed" if exit.exit_code == 0 else "Error"


def save(path: Path, value: object) -> None:
    """Replace a file; raise StoreError if that fails."""
    try:
        replace_file(path, msgspec.json.encode(value), durable=False)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    except (ValueError, OverflowError, TypeError, RecursionError) as error:  # such as a lone surrogate
        raise StoreError(f"cannot write {path}: {error}") from error


def load(path: Path, kind: type[T]) -> T | NodeFinding | None:
    """Load a file; return None if there is no file, a finding if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            data = file.read(_MAX + 1)
        if len(data) > _MAX:
            raise ValueError("it is too large")
        return msgspec.json.decode(data, type=kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        return NodeFinding(FindingSeverity.ERROR, f"{path} cannot be read: {error}", path=str(path))


def chown_directory(directory: Path, credentials: ProcessCredentials | None) -> None:
    """Give a directory to the user of a container; raise OSError if that fails."""
    if credentials is not None and credentials.switch:
        os.chown(directory, credentials.uid, credentials.gid)


def quarantine_file(path: Path, quarantine: Path) -> None:
    """Move an unreadable file to the quarantine directory."""
    name = f"{time.time_ns()}-{path.parent.name}-{path.name}"
    try:
        quarantine.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.replace(path, quarantine / name)
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()


def subdirectories(path: Path) -> Iterator[Path]:
    """Yield the subdirectories, sorted by name; symbolic links are skipped."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    yield from (path / name for name in names)


def measure_storage(directory: Path) -> ContainerStorage:
    """Measure the working files and logs of a container, of all its attempts."""
    return ContainerStorage(
        files=disk_usage(*directory.glob("*/work")), logs=disk_usage(*directory.glob("*/log*"))
    )


def remove_tree(path: Path) -> str:
    """Remove a directory, whatever a container has put there, and however deep; return what is left, or "".

    Subdirectories are moved up before they are emptied, so that neither paths nor the stack grow.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    serial = 0
    try:
        _empty(top, top, 0)
        while True:
            with os.scandir(top) as entries:
                names = [entry.name for entry in entries]
            if not names:
                break
            for name in names:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                try:
                    serial = _empty(inner, top, serial)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
        os.rmdir(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    finally:
        os.close(top)
    return ""


def _empty(directory: int, top: int, serial: int) -> int:
    """Remove a directory's files and move its subdirectories up to `top`, under free names."""
    with os.scandir(directory) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if not is_directory:
            os.unlink(name, dir_fd=directory)
            continue
        if directory == top:
            continue
        while True:
            serial += 1
            try:
                os.mkdir(f".gone-{serial}", dir_fd=top)
            except FileExistsError:
                continue
            os.rename(name, f".gone-{serial}", src_dir_fd=directory, dst_dir_fd=top)
            break
    return serial
