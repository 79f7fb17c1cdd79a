"""Container record of the process runtime, and the specification of its shim.

Pure, except for checking whether a cgroup has a cpuset.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.node.containers import ContainerSpec, VolumeMount
from plimsoll.node.resources import resources_from_plan
from plimsoll.node.runtime.commands import Command, cpus_in
from plimsoll.node.runtime.container_spec import ResolvedContainer
from plimsoll.node.runtime.state_dir import ContainerRecord, LaunchParameters, RunRecord
from plimsoll.node.security.credentials import ProcessCredentials
from plimsoll.node.security.seccomp import build_filter

#: File of the message of a container's exit, in its directory.
MESSAGE_FILE = "termination-log"
#: Type of terminals, as other runtimes set it.
TERM = "xterm"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings of the process runtime; `images` maps images to commands (see `image_names`)."""

    images: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ip: str = "127.0.0.1"
    volumes: bool = False  #: provide volumes, if this user can mount them
    log_bytes: int = 10 << 20
    log_files: int = 5
    rlimits: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    umask: int = 0o022
    #: Time a shim may take to report that its container runs (seconds).
    start_timeout: float = 60.0
    #: Time an adopting agent waits for a shim that is still starting (seconds).
    adopt_timeout: float = 10.0
    #: Interval at which a shim checks that its directory still exists (seconds).
    look_every: float = 5.0


def build_record(resolved: ResolvedContainer, command: Command, now: float) -> ContainerRecord:
    """Build the record of a container on disk."""
    return ContainerRecord(
        spec=resolved.spec,
        resources=resolved.resources,
        launch=LaunchParameters(
            oom_score_adj=resolved.oom_score_adj,
            gids=resolved.gids,
            mounts=tuple(
                {"source": m.source, "target": m.target, "type": m.type, "options": list(m.options)}
                for m in resolved.mounts
            ),
            devices=tuple({"path": d.path, "host_path": d.host_path} for d in resolved.devices),
            pause=command.pause and not resolved.spec.command,
        ),
        created_at=now,
        notes=resolved.notes,
    )


def unresolved_container(spec: ContainerSpec) -> ResolvedContainer:
    """Return a container without CDI edits and adjustments."""
    return ResolvedContainer(
        spec=spec, resources=resources_from_plan(spec.plan), oom_score_adj=spec.plan.oom_score_adj
    )


def shim_spec(
    record: ContainerRecord, directory: Path, hostname: str, join: Sequence[Path], settings: ProcessSettings
) -> dict[str, Any]:
    """Build the specification of a container's shim. Without a cpuset the process itself is pinned."""
    launch = record.launch
    message = str(directory / MESSAGE_FILE) if record.spec.message_path else ""
    volumes = [_volume(each) for each in record.spec.volumes]
    if message:
        # A container without its file still runs: the message of its exit is then empty.
        volumes.append({**_volume(VolumeMount(message, record.spec.message_path)), "optional": True})
    return {
        **_process_spec(record, directory, hostname, join, settings),
        "message_file": message,
        "message_from_log": record.spec.message_from_log,
        "pause": launch.pause,
        "stdin": record.spec.stdin,
        "stdin_once": record.spec.stdin_once,
        "tty": record.spec.tty,
        "gids": list(launch.gids),
        "mounts": list(launch.mounts),
        "devices": list(launch.devices),
        "volumes": volumes,
        "stage": str(directory / "stage"),
        "log": str(directory / "log"),
        "log_bytes": settings.log_bytes,
        "log_files": settings.log_files,
        "look_every": settings.look_every,
    }


def _volume(mount: VolumeMount) -> dict[str, Any]:
    return {"source": mount.source, "target": mount.target, "read_only": mount.read_only}


def exec_spec(
    record: ContainerRecord,
    run: RunRecord,
    directory: Path,
    hostname: str,
    join: Sequence[Path],
    settings: ProcessSettings,
) -> dict[str, Any]:
    """Build the specification of a command in a running container, without the command."""
    return {
        **_process_spec(record, directory, hostname, join, settings),
        "pid": run.pid,
        "pid_start": run.pid_start,
        "own_mounts": run.own_mounts,
    }


def _process_spec(
    record: ContainerRecord, directory: Path, hostname: str, join: Sequence[Path], settings: ProcessSettings
) -> dict[str, Any]:
    """Build what every process of a container starts with."""
    spec, launch = record.spec, record.launch
    pinned = cpus_in(record.resources.cpus) if not has_cpuset(join) else None
    assert spec.credentials is not None, "the runtime starts nothing without credentials"
    return {
        "argv": list(spec.command),
        "env": {
            "PATH": _PATH,
            "HOSTNAME": hostname,
            "HOME": "/",
            **({"TERM": TERM} if spec.tty else {}),
            **spec.env,
        },
        "cwd": spec.working_dir or str(directory / "work"),
        "join": [str(path) for path in join],
        "oom_score_adj": launch.oom_score_adj,
        "affinity": sorted(pinned) if pinned else None,
        "rlimits": dict(settings.rlimits),
        "umask": settings.umask,
        "credentials": credentials_spec(spec.credentials, launch.gids),
    }


def credentials_spec(credentials: ProcessCredentials, gids: Sequence[int] = ()) -> dict[str, Any]:
    """Return credentials in the shim's format, with groups that CDI files add."""
    groups = sorted({*credentials.groups, *gids}) if credentials.switch else []
    program = b""
    if credentials.seccomp:
        program = build_filter(os.uname().machine, credentials.capabilities)
    return {
        "uid": credentials.uid,
        "gid": credentials.gid,
        "groups": groups,
        "switch": credentials.switch,
        "capabilities": credentials.capabilities,
        "no_new_privs": credentials.no_new_privs,
        "read_only_root": credentials.read_only_root,
        "seccomp": base64.b64encode(program).decode(),
    }


def has_cpuset(join: Sequence[Path]) -> bool:
    """Return whether a cgroup determines the CPUs of a container."""
    return any(os.path.exists(path.parent / "cpuset.cpus") for path in join)
