"""Waiters for volumes to be bound and placeholders to be admitted, and the objects that they read.

Watch events of the objects in question wake a waiter; the check is also repeated every second, as
in kube-scheduler, because the pod or its node may be deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from plimsoll.api.core import Node, Pod
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_POLL_SECONDS = 1.0


class VolumeWaiters:
    """Waiters by the names of objects; implements `binding.volumes.VolumeCluster`."""

    def __init__(
        self,
        snapshot: Snapshot,
        find_pod: Callable[[str, str], Pod | None],
        *,
        poll: float = _POLL_SECONDS,
    ) -> None:
        self._snapshot = snapshot
        self._find_pod = find_pod
        self._poll = poll
        self._count = 0
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = {}

    def __len__(self) -> int:
        """Return the number of bindings that wait."""
        return self._count

    def notify(self, changed: PersistentVolume | PersistentVolumeClaim | Pod) -> None:
        """Wake the waiters for an object that has changed."""
        for event in self._waiting.get(changed.metadata.key, ()):
            event.set()

    def node(self, name: str) -> Node | None:
        row = self._snapshot.row_of(name)
        return None if row is None else self._snapshot.node(row)

    def volume(self, name: str) -> PersistentVolume | None:
        return self._snapshot.find(PersistentVolume, "", name)

    def volume_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self._snapshot.find(PersistentVolumeClaim, namespace, name)

    def has_pod(self, pod: Pod) -> bool:
        found = self._find_pod(*pod.metadata.key)
        return found is not None and found.metadata.uid == pod.metadata.uid

    async def wait_for(
        self, names: Collection[tuple[str, str]], check: Callable[[], bool | str], timeout_ms: int
    ) -> bool | str:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        event = asyncio.Event()
        for name in names:
            self._waiting.setdefault(name, set()).add(event)
        self._count += 1
        try:
            while (result := check()) is False:
                seconds = min(self._poll, deadline - asyncio.get_running_loop().time())
                if seconds <= 0:
                    break
                event.clear()
                try:
                    async with asyncio.timeout(seconds):
                        await event.wait()
                except TimeoutError:
                    pass
            return result
        finally:
            self._count -= 1
            for name in set(names):
                waiting = self._waiting[name]
                waiting.discard(event)
                if not waiting:
                    del self._waiting[name]
