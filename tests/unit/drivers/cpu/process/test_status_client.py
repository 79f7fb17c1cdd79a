"""Client of a driver's pages, by HTTP and by HTTPS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client.delegated_auth import secure_serving
from plimsoll.client.endpoints import Endpoint
from plimsoll.common.health import HealthServer
from plimsoll.drivers.cpu.process.status_client import query_driver, query_health
from plimsoll.errors import InputError


class Strict:
    """API server that knows no token."""

    async def create(self, endpoint: Endpoint, tree: Mapping[str, Any]) -> dict[str, Any]:
        return {"status": {"authenticated": False}}


async def no_metrics() -> AsyncIterator[bytes]:
    yield b""


@pytest.mark.parametrize("scheme", ["", "https://"])
async def test_health_and_debug_page_need_no_token_on_this_machine(tmp_path: Path, scheme: str) -> None:
    server = HealthServer(
        live={},
        ready={},
        metrics=no_metrics,
        debug={"driver": lambda: {"node": "n1"}},
        debug_local_only=True,
        secure=secure_serving(Strict(), tmp_path if scheme else None),
    )
    await server.start("127.0.0.1", 0)
    try:
        address = f"{scheme}127.0.0.1:{server.port}"
        assert (await asyncio.to_thread(query_health, address)).well
        assert await asyncio.to_thread(query_driver, address) == {"node": "n1"}
        other = address.removeprefix("https://") if scheme else f"https://{address}"
        with pytest.raises(InputError, match="no driver responds"):
            await asyncio.to_thread(query_health, other)
    finally:
        await server.stop()
