"""Cleanup of the ResourceSlices of drivers that are gone, so that their devices are not allocated.

A driver whose plugin stays disconnected for a while loses its slices of this node; it publishes them again
when it is back (docs/spec/node-protocols.md, "Plugin registration").

DIFF: a kubelet deletes all slices of its node when it starts, and pods being scheduled find no devices until
every driver has published again; here drivers get the same time to connect after a start of the agent as
after a disconnect (test_slices_stay_while_drivers_come_back).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from plimsoll.api import codec
from plimsoll.api.resource import ResourceSlice
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.errors import InputError

_log = logging.getLogger("plimsoll.node")


class SliceCleaner:
    """Cleaner of the slices of one node."""

    def __init__(
        self, client: Client, node: str, *, grace_seconds: float = 30.0, retry_seconds: float = 5.0
    ) -> None:
        self._client = client
        self._node = node
        self._grace_seconds = grace_seconds
        self._retry_seconds = retry_seconds

    async def remove(self, driver: str) -> None:
        """Delete the slices a driver has published for this node; retry until it succeeds."""
        fields = f"spec.driver={driver},spec.nodeName={self._node}"
        while True:
            try:
                await self._client.delete_collection(RESOURCE_SLICES, fields=fields)
                _log.info("%s: deleted the ResourceSlices of driver %s, which is gone", self._node, driver)
                return
            except InputError as error:
                _log.warning(
                    "%s: cannot delete the ResourceSlices of driver %s: %s", self._node, driver, error
                )
            await asyncio.sleep(self._retry_seconds)

    async def remove_orphaned(self, connected: Callable[[], Collection[str]]) -> None:
        """Delete the slices of drivers that do not connect in time after a start of the agent."""
        await asyncio.sleep(self._grace_seconds)
        for driver in sorted(await self._publishers()):
            if driver not in connected():
                await self.remove(driver)

    async def _publishers(self) -> set[str]:
        while True:
            try:
                listing = await self._client.list(RESOURCE_SLICES, fields=f"spec.nodeName={self._node}")
                return {codec.decode(raw, ResourceSlice).spec.driver for raw in listing.items}
            except InputError as error:
                _log.debug("%s: cannot list ResourceSlices: %s", self._node, error)
            await asyncio.sleep(self._retry_seconds)
