"""A live cluster, heard of change by change.

Owns `Follower`: runs what follows the kinds of a cluster and hands every change on. Promises: the first
listing is complete when `start` returns; a cluster that goes away is looked for again, and what cannot be
read at the moment is told (`troubles`); nothing is ever written.
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
    """Hears of a cluster and tells `on_change` of each change."""

    def __init__(
        self, client: Client, on_change: Callable[[ObjectChange], None], namespace: str = ""
    ) -> None:
        """If what is in all namespaces may not be seen, what is in `namespace` is followed."""
        self._client = client
        self._namespace = namespace
        self._recorder = _ChangeRecorder(on_change)
        self._informers: list[Informer[Any]] = []
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def gaps(self) -> list[Gap]:
        """What is not followed, and why."""
        return self._recorder.objects.gaps

    @property
    def troubles(self) -> list[str]:
        """What cannot be read at the moment: what is shown of it is old."""
        wrong = [each for each in self._informers if each.error is not None]
        return summarize_gaps(Gap(each.endpoint.plural, str(each.error)) for each in wrong)

    async def start(self) -> None:
        """Follow, and return when everything has been heard of once; InputError if it cannot be."""
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
    """What informers take for a cluster state: it keeps nothing."""

    def __init__(self, on_change: Callable[[ObjectChange], None]) -> None:
        super().__init__(ClusterObjects())
        self._on_change = on_change

    def set(self, thing: Any) -> None:
        self._on_change(ObjectChange(thing))

    def remove(self, thing: Any) -> None:
        self._on_change(ObjectChange(thing, gone=True))


def _nothing() -> None:
    """Changes are told one by one."""
