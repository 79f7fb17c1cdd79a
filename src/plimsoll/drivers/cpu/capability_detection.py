"""Detection of the API server's capabilities when the driver starts, with retries."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

from plimsoll.client import Client
from plimsoll.client.discovery import read_minor_version
from plimsoll.client.endpoints import NODES
from plimsoll.client.retries import Backoff
from plimsoll.drivers.cpu.devices import ServerCapabilities, detect_capabilities
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.errors import ApiError, InputError

_log = logging.getLogger(__name__)


async def wait_for_capabilities(
    client: Client, settings: CpuSettings
) -> tuple[str, ServerCapabilities, dict[str, Any]]:
    """Return the server's version, its capabilities and the driver's Node, as soon as it provides the two.

    The version is "" if it cannot be read.
    """
    backoff, dice = Backoff(first=0.2, most=10.0), Random()
    for attempt in count(1):
        try:
            capabilities = await detect_capabilities(client, settings)
            node = await client.get(NODES, settings.node)
        except ApiError as error:
            _log.warning("detecting API server capabilities failed: %s", error)
        else:
            version = ""
            with suppress(InputError):
                version = f"1.{await read_minor_version(client)}"
            return version, capabilities, node
        await asyncio.sleep(backoff.delay(attempt, dice))
    raise AssertionError  # the attempts do not end
