"""Disk usage of a pod's containers: writable layers by the runtime's stats, and logs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from plimsoll.common.disk_usage import disk_usage
from plimsoll.errors import RuntimeCallError
from plimsoll.node.containers import ContainerInfo, ContainerPhase, ContainerStorage
from plimsoll.node.runtime.cri.client import CriClient
from plimsoll.protocols.messages import cri

_log = logging.getLogger("plimsoll.node.runtime.cri")


async def measure_containers(
    client: CriClient, containers: Iterable[ContainerInfo], node_directory: Path
) -> dict[str, ContainerStorage]:
    """Measure the running containers of a pod, by name, with the logs of their earlier attempts."""
    found = {}
    for info in containers:
        if info.phase is not ContainerPhase.RUNNING:
            continue
        try:
            response = await client.call("ContainerStats", cri.ContainerStatsRequest(container_id=info.id))
        except RuntimeCallError as error:
            _log.warning("the files of container %s were not measured: %s", info.id, error)
            response = cri.ContainerStatsResponse()
        layer = response.stats.writable_layer
        logs = await asyncio.to_thread(disk_usage, Path(info.log).parent) if info.log else 0
        apart = await asyncio.to_thread(_is_other_disk, layer.fs_id.mountpoint, node_directory)
        found[info.name] = ContainerStorage(files=layer.used_bytes.value, logs=logs, on_image_disk=apart)
    return found


def _is_other_disk(mount_point: str, node_directory: Path) -> bool:
    try:
        return bool(mount_point) and os.stat(mount_point).st_dev != os.stat(node_directory).st_dev
    except OSError:
        return False
