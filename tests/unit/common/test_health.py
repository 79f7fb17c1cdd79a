"""Health and readiness pages, and their access rules."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from plimsoll.common.health import HealthServer, is_local
from plimsoll.errors import ConfigError


async def metrics() -> AsyncIterator[bytes]:
    yield b"a 1\n"
    yield b"b 2\n"


async def test_health_pages() -> None:
    problem = ["not listed yet: pods"]
    server = HealthServer(
        live={"ping": lambda: ""},
        ready={"ping": lambda: "", "sync": lambda: problem[0]},
        metrics=metrics,
        debug={"queue": lambda: {"a": [1]}},
    )
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()

            assert await get("/healthz") == (200, "ok")
            assert await get("/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")
            failed = "[+]ping ok\n[-]sync failed: not listed yet: pods\nreadyz check failed\n"
            assert await get("/readyz") == (500, failed)
            problem[0] = ""
            assert await get("/readyz") == (200, "ok")
            assert await get("/metrics") == (200, "a 1\nb 2\n")
            assert await get("/debug/queue") == (200, '{\n "a": [\n  1\n ]\n}')
            assert (await get("/debug/ledger"))[0] == 404
        other = HealthServer(live={}, ready={}, metrics=metrics)
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: .*--listen"):
            await other.start("127.0.0.1", server.port)
        await other.stop()
    finally:
        await server.stop()


@pytest.mark.parametrize(
    ("remote", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("2001:db8::1", False),
        ("", False),
        (None, False),
        ("somewhere", False),
    ],
)
def test_requests_from_this_machine(remote: str | None, here: bool) -> None:
    assert is_local(remote) is here


async def test_other_pages_are_for_this_machine_only(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HealthServer(
        live={"ping": lambda: ""},
        ready={},
        health={"driver": lambda: "no runtime"},
        metrics=metrics,
        debug={"driver": dict},
        unwell=503,
        flag="--bind-address",
        debug_local_only=True,
    )
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()

            assert await get("/livez") == (200, "ok")
            failed = "[-]driver failed: no runtime\nhealthz check failed\n"
            assert await get("/healthz") == (503, failed)
            assert await get("/debug/driver") == (200, "{}")
            monkeypatch.setattr("plimsoll.common.health.is_local", lambda remote: False)
            assert (await get("/debug/driver"))[0] == 403
            assert (await get("/metrics"))[0] == 200
        other = HealthServer(live={}, ready={}, metrics=metrics, flag="--bind-address")
        with pytest.raises(ConfigError, match="choose another with --bind-address"):
            await other.start("127.0.0.1", server.port)
    finally:
        await server.stop()
