"""CRI's statuses of sandboxes and containers as the states that the agent works with.

The message of an exited container is that of its termination message file, as the kubelet reads it: at most
4096 bytes, or the end of its log if it failed and the policy is FallbackToLogsOnError.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from plimsoll.common.json_tree import branch, number, text
from plimsoll.node.containers import ContainerInfo, ContainerPhase, SandboxInfo
from plimsoll.node.runtime.cri import names
from plimsoll.protocols.messages import cri

FALLBACK_TO_LOGS = "FallbackToLogsOnError"
_MESSAGE_MAX = 4096
_LOG_MESSAGE_MAX, _LOG_LINES_MAX = 2048, 80
_NANOSECONDS = 1e9
_PHASES: dict[int, ContainerPhase] = {
    cri.CONTAINER_CREATED: ContainerPhase.CREATED,
    cri.CONTAINER_RUNNING: ContainerPhase.RUNNING,
    cri.CONTAINER_EXITED: ContainerPhase.EXITED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CriSandbox:
    """Sandbox of the runtime."""

    id: str
    attempt: int
    info: SandboxInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class CriContainer:
    """Container of the runtime; `unknown`: the runtime has lost its state, and it may still run."""

    sandbox: str
    info: ContainerInfo
    mems: str = ""  #: NUMA nodes of its memory
    unknown: bool = False


def phase_of(state: int) -> ContainerPhase:
    """Return the phase of a container; one whose state is unknown may run, so that it is stopped first."""
    return _PHASES.get(state, ContainerPhase.RUNNING)


def read_sandbox(status: cri.PodSandboxStatus, node_ip: str) -> CriSandbox:
    """Convert the status of a sandbox; one in the network of the node has the node's address."""
    meta = status.metadata
    in_host_network = status.linux.namespaces.options.network == cri.NODE
    return CriSandbox(
        id=status.id,
        attempt=meta.attempt,
        info=SandboxInfo(
            uid=meta.uid,
            name=meta.name,
            namespace=meta.namespace,
            running=status.state == cri.SANDBOX_READY,
            created_at=status.created_at / _NANOSECONDS,
            ip=node_ip if in_host_network else status.network.ip,
        ),
    )


def read_container(status: cri.ContainerStatus, sandbox: str, info: Mapping[str, str]) -> CriContainer:
    """Convert the status of a container; reads the termination message of one that has exited."""
    phase = phase_of(status.state)
    details = _details(info)
    cpu = branch(details, "runtimeSpec", "linux", "resources", "cpu")
    resources = status.resources.linux
    return CriContainer(
        sandbox=sandbox,
        mems=text(cpu, "mems") or resources.cpuset_mems,
        unknown=status.state == cri.CONTAINER_UNKNOWN,
        info=ContainerInfo(
            id=status.id,
            pod=status.labels.get(names.POD_UID, ""),
            name=status.metadata.name,
            attempt=status.metadata.attempt,
            phase=phase,
            pid=number(details, "pid") if phase is ContainerPhase.RUNNING else 0,
            created_at=status.created_at / _NANOSECONDS,
            started_at=max(status.started_at, 0) / _NANOSECONDS,
            finished_at=max(status.finished_at, 0) / _NANOSECONDS,
            exit_code=status.exit_code,
            reason=status.reason,
            message=_message(status) if phase is ContainerPhase.EXITED else "",
            # NRI plugins change the specification; the status has what the agent set.
            cpus=text(cpu, "cpus") or resources.cpuset_cpus,
            log=status.log_path,
            image_id=status.image_ref,
        ),
    )


def _details(info: Mapping[str, str]) -> dict[str, Any]:
    """Return the details that runtimes add to a verbose status; {} if there are none."""
    with suppress(ValueError, RecursionError):
        tree = json.loads(info.get("info") or "{}")
        return tree if isinstance(tree, dict) else {}
    return {}


# -- termination messages


def _message(status: cri.ContainerStatus) -> str:
    path = status.annotations.get(names.MESSAGE_PATH, "")
    policy = status.annotations.get(names.MESSAGE_POLICY, "")
    found = _read_message(status, path) if path else ""
    if not found and policy == FALLBACK_TO_LOGS and status.exit_code != 0:
        found = _end_of_log(status.log_path)
    return f"{status.message}: {found}" if status.message and found else found or status.message


def _read_message(status: cri.ContainerStatus, path: str) -> str:
    for mount in status.mounts:
        if mount.container_path == path:
            try:
                return _read_end(mount.host_path, _MESSAGE_MAX).decode(errors="replace")
            except FileNotFoundError:
                return ""
            except OSError as error:
                return f"Error on reading termination log {mount.host_path}: {error.strerror}"
    return ""


def _end_of_log(path: str) -> str:
    """Return the last lines of a log in CRI format, without times and streams."""
    try:
        # Every line of the log begins with a time and a stream.
        data = _read_end(path, 2 * _LOG_MESSAGE_MAX + 64 * _LOG_LINES_MAX)
    except OSError as error:
        return f"Error on reading termination message from logs: {error.strerror}"
    texts = []
    for line in data.split(b"\n")[-_LOG_LINES_MAX - 1 :]:
        fields = line.split(b" ", 3)
        if len(fields) == 4:
            texts.append(fields[3] + (b"" if fields[2].startswith(b"P") else b"\n"))
    return b"".join(texts)[-_LOG_MESSAGE_MAX:].decode(errors="replace")


def _read_end(path: str, size: int) -> bytes:
    """Read the end of a regular file that a container may have replaced."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        length = os.fstat(fd).st_size
        return os.pread(fd, size, max(0, length - size))
    finally:
        os.close(fd)
