"""ResourceSlices of drivers that are gone: what nobody serves must not be given to pods.

Owns `Slices`. A driver without a connected plugin for a while loses its slices of this node; it publishes
them again when it is back (section 1 of the node protocols).

DIFF: a kubelet deletes all slices of its node when it starts, and pods that are just being scheduled find no
devices until every driver has published again; here drivers get the same time to connect after a start of the
agent as after a loss (test_slices_stay_while_drivers_come_back).
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


class Slices:
    """The slices of one node."""

    def __init__(self, client: Client, node: str, *, patience: float = 30.0, retry: float = 5.0) -> None:
        self._client = client
        self._node = node
        self._patience = patience
        self._retry = retry

    async def remove(self, driver: str) -> None:
        """Take away what a driver has published for this node; tried until it is done."""
        fields = f"spec.driver={driver},spec.nodeName={self._node}"
        while True:
            try:
                await self._client.delete_collection(RESOURCE_SLICES, fields=fields)
                _log.info("%s: driver %s is gone, and its slices with it", self._node, driver)
                return
            except InputError as error:
                _log.warning("%s: slices of driver %s are not deleted: %s", self._node, driver, error)
            await asyncio.sleep(self._retry)

    async def sweep(self, connected: Callable[[], Collection[str]]) -> None:
        """After a start: take away what is published by drivers that do not come back in time."""
        await asyncio.sleep(self._patience)
        for driver in sorted(await self._publishers()):
            if driver not in connected():
                await self.remove(driver)

    async def _publishers(self) -> set[str]:
        while True:
            try:
                listing = await self._client.list(RESOURCE_SLICES, fields=f"spec.nodeName={self._node}")
                return {codec.decode(raw, ResourceSlice).spec.driver for raw in listing.items}
            except InputError as error:
                _log.debug("%s: slices are not listed: %s", self._node, error)
            await asyncio.sleep(self._retry)
