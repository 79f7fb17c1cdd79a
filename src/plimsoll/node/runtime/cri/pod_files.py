"""Files of the agent that containers mount: the hosts file of a pod, and termination messages."""

from __future__ import annotations

import os
from pathlib import Path

from plimsoll.api.core import Container, Pod
from plimsoll.node.layout import Layout
from plimsoll.node.runtime.cri.pod_network import node_hosts, pod_hosts
from plimsoll.protocols.messages import cri

HOSTS = Path("/etc/hosts")


def write_pod_files(
    layout: Layout, pod: Pod, container: Container, attempt: int, ip: str, cluster_domain: str
) -> tuple[cri.Mount, ...]:
    """Write the files of a container about to be created, and return their mounts."""
    uid = pod.metadata.uid
    directory = layout.container(uid, container.name)
    directory.mkdir(parents=True, exist_ok=True, mode=0o750)
    hosts = layout.pod(uid) / "etc-hosts"
    if pod.spec.host_network:
        machine = HOSTS.read_text(errors="replace") if HOSTS.exists() else ""
        _write(hosts, node_hosts(pod, machine), 0o644)
    else:
        _write(hosts, pod_hosts(pod, (ip,) if ip else (), cluster_domain), 0o644)
    mounts = [cri.Mount(container_path=str(HOSTS), host_path=str(hosts))]
    if container.termination_message_path:
        message = directory / f"{attempt}.message"
        _write(message, "", 0o666)  # the container may run as any user
        path = container.termination_message_path
        mounts.append(
            cri.Mount(container_path=path if path.startswith("/") else f"/{path}", host_path=str(message))
        )
    return tuple(mounts)


def _write(path: Path, text: str, mode: int) -> None:
    """Write a file in place: containers that run have it mounted."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "w") as file:
        os.fchmod(fd, mode)
        file.write(text)
