"""Rotation of container logs: the runtime writes them, the agent renames them and has them opened again.

Rotated files are numbered as those of the process runtime, so that readers follow both in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from plimsoll.errors import RuntimeCallError
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.runtime.cri.client import CriClient
from plimsoll.protocols.messages import cri

_log = logging.getLogger("plimsoll.node.runtime.cri")


class LogRotation:
    """Rotation of the logs of running containers."""

    def __init__(
        self,
        client: CriClient,
        containers: Callable[[], Iterable[ContainerInfo]],
        *,
        max_size: int,
        max_files: int,
    ) -> None:
        self._client = client
        self._containers = containers
        self._max_size = max_size
        self._max_files = max(max_files, 2)

    async def run(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            await self.rotate()

    async def rotate(self) -> None:
        """Rotate the logs that are too large."""
        for container in list(self._containers()):
            if container.phase is not ContainerPhase.RUNNING or not container.log:
                continue
            if await asyncio.to_thread(self._size, container.log) > self._max_size:
                await self._rotate(container)

    async def _rotate(self, container: ContainerInfo) -> None:
        try:
            await asyncio.to_thread(self._rename, container.log)
            request = cri.ReopenContainerLogRequest(container_id=container.id)
            await self._client.call("ReopenContainerLog", request)
        except RuntimeCallError as error:
            _log.warning("the log of container %s was not opened again: %s", container.id, error)
            # The runtime still writes to the renamed file: it becomes the log again.
            with suppress(OSError):
                if not os.path.exists(container.log):
                    os.rename(f"{container.log}.1", container.log)
        except OSError as error:
            _log.warning("the log of container %s was not rotated: %s", container.id, error)

    def _size(self, path: str) -> int:
        try:
            return os.lstat(path).st_size
        except OSError:
            return 0

    def _rename(self, path: str) -> None:
        for number in range(self._max_files - 1, 0, -1):
            older = f"{path}.{number - 1}" if number > 1 else path
            with suppress(FileNotFoundError):
                os.rename(older, f"{path}.{number}")


def remove_logs(path: str, max_files: int) -> None:
    """Remove the log of a container with its rotated files."""
    if path:
        for name in (path, *(f"{path}.{number}" for number in range(1, max_files + 1))):
            with suppress(OSError):
                os.unlink(name)
