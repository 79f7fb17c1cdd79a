"""`Follower`: informers that forward every change of a live cluster.

The initial lists are complete when `start` returns. A cluster that becomes unreachable is retried, and
current errors are in `read_errors`. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from plimsoll.client import Client
from plimsoll.client.informer import Informer
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState, Gap
from plimsoll.tools.cluster_state.live import live_informers
from plimsoll.tools.cluster_state.missing_kinds import summarize_gaps
from plimsoll.tools.dashboard.changes import ObjectChange


class Follower:
    """Follows a cluster and calls `on_change` with each change."""

    def __init__(
        self, client: Client, on_change: Callable[[ObjectChange], None], namespace: str = ""
    ) -> None:
        """If listing all namespaces is forbidden, follow `namespace` only."""
        self._client = client
        self._namespace = namespace
        self._recorder = _ChangeRecorder(on_change)
        self._informers: list[Informer[Any]] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def gaps(self) -> list[Gap]:
        """Kinds that are not followed, and why."""
        return self._recorder.objects.gaps

    @property
    def read_errors(self) -> list[str]:
        """Kinds that cannot be read at present; their data is stale."""
        wrong = [each for each in self._informers if each.error is not None]
        return summarize_gaps(Gap(each.endpoint.plural, str(each.error)) for each in wrong)

    async def start(self) -> None:
        """Start following; return after the initial lists. Raise InputError if the cluster cannot be read."""
        self._informers = await live_informers(
            self._client, self._recorder, _nothing, namespace=self._namespace
        )
        self._tasks = [asyncio.create_task(informer.run()) for informer in self._informers]
        try:
            for informer in self._informers:
                await informer.synced()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError, InputError):
                await task


class _ChangeRecorder(ClusterState):
    """Cluster state passed to the informers: it stores nothing and forwards changes."""

    def __init__(self, on_change: Callable[[ObjectChange], None]) -> None:
        super().__init__(ClusterObjects())
        self._on_change = on_change

    def set(self, thing: Any) -> None:
        self._on_change(ObjectChange(thing))

    def remove(self, thing: Any) -> None:
        self._on_change(ObjectChange(thing, gone=True))


def _nothing() -> None:
    """Do nothing: changes are forwarded one by one."""
