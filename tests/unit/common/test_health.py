"""Health and readiness pages, and their access rules."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plimsoll.client.delegated_auth import secure_serving
from plimsoll.client.endpoints import TOKEN_REVIEWS, Endpoint
from plimsoll.common.health import HealthServer, is_local
from plimsoll.common.self_signed import ensure_self_signed
from plimsoll.errors import ApiError, ConfigError


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
        ready_note=lambda: "a note",
    )
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()

            assert await get("/healthz") == (200, "ok")
            assert await get("/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")
            failed = "[+]ping ok\n[-]sync failed: not listed yet: pods\na note\nreadyz check failed\n"
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


class Reviews:
    """API server that knows the tokens `reader` and `other`; `reader` may get /metrics."""

    def __init__(self) -> None:
        self.rights: list[Mapping[str, Any]] = []
        self.error: ApiError | None = None

    async def create(self, endpoint: Endpoint, tree: Mapping[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        spec = tree["spec"]
        if endpoint is TOKEN_REVIEWS:
            known = spec["token"] in ("reader", "other")
            return {"status": {"authenticated": known, "user": {"username": spec["token"]}}}
        self.rights.append(spec["nonResourceAttributes"])
        return {"status": {"allowed": spec["user"] == "reader"}}


async def test_https_serves_metrics_to_users_with_the_right_and_health_to_everybody(tmp_path: Path) -> None:
    reviews = Reviews()
    server = HealthServer(
        live={"ping": lambda: ""},
        ready={},
        metrics=metrics,
        debug={"queue": dict},
        secure=secure_serving(reviews, tmp_path / "tls"),
    )
    await server.start("127.0.0.1", 0)
    try:
        assert (tmp_path / "tls" / "tls.key").stat().st_mode & 0o777 == 0o600
        trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "tls.crt"))
        async with aiohttp.ClientSession(f"https://localhost:{server.port}") as session:

            async def get(path: str, token: str = "") -> tuple[int, str]:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.get(path, headers=headers, ssl=trusted) as answer:
                    return answer.status, await answer.text()

            assert await get("/livez") == (200, "ok")
            assert (await get("/metrics"))[0] == 401
            assert (await get("/metrics", "forged"))[0] == 401
            assert await get("/metrics", "other") == (403, '403: user "other" cannot get path "/metrics"')
            for _ in range(3):
                assert await get("/metrics", "reader") == (200, "a 1\nb 2\n")
            assert (await get("/debug/queue"))[0] == 401
            assert await get("/debug/queue", "reader") == (200, "{}")
            assert len(reviews.rights) == 3, "answers are kept"
            assert reviews.rights[0] == {"path": "/metrics", "verb": "get"}
            reviews.error = ApiError(503, "ServiceUnavailable", "down")
            assert (await get("/metrics", "new"))[0] == 503
            assert await get("/readyz") == (200, "ok")
        with pytest.raises(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{server.port}/livez"),
            ):
                pass
    finally:
        await server.stop()


async def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    def renew() -> str:
        for path in tmp_path.glob("tls.*"):
            path.unlink()
        certificate, _ = ensure_self_signed(tmp_path, "tls", ["localhost"])
        return certificate.read_text()

    first = renew()
    server = HealthServer(live={}, ready={}, metrics=metrics, secure=secure_serving(Reviews(), tmp_path))
    await server.start("127.0.0.1", 0)

    async def served() -> str:
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", server.port))

    try:
        assert await served() == first
        second = renew()
        await served()
        assert await served() == second != first
    finally:
        await server.stop()


async def test_a_certificate_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("nothing")
    server = HealthServer(live={}, ready={}, metrics=metrics, secure=secure_serving(Reviews(), tmp_path))
    with pytest.raises(ConfigError, match=r"tls\.crt cannot be used"):
        await server.start("127.0.0.1", 0)
    file = tmp_path / "file"
    file.touch()
    server = HealthServer(live={}, ready={}, metrics=metrics, secure=secure_serving(Reviews(), file / "tls"))
    with pytest.raises(ConfigError, match=r"--cert-dir: .*cannot write the certificate"):
        await server.start("127.0.0.1", 0)
