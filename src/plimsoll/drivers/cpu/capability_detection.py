"""Detection of the API server's capabilities when the driver starts, with retries."""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from random import Random
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import NODES
from plimsoll.client.retries import Backoff
from plimsoll.drivers.cpu.devices import ServerCapabilities, detect_capabilities
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.errors import ApiError

_log = logging.getLogger(__name__)


async def wait_for_capabilities(
    client: Client, settings: CpuSettings
) -> tuple[ServerCapabilities, dict[str, Any]]:
    """Return the server's capabilities and the driver's Node, as soon as the server provides both."""
    backoff, dice = Backoff(first=0.2, most=10.0), Random()
    for attempt in count(1):
        try:
            return await detect_capabilities(client, settings), await client.get(NODES, settings.node)
        except ApiError as error:
            _log.warning("detecting API server capabilities failed: %s", error)
        await asyncio.sleep(backoff.delay(attempt, dice))
    raise AssertionError  # the attempts do not end
