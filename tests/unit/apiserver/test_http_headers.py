"""Tests of identity headers: not repeated, and UTF-8."""

from __future__ import annotations

import json

import pytest

from plimsoll.apiserver.http import read_headers
from plimsoll.apiserver.process import ServerSettings, start_server
from plimsoll.errors import ApiError
from tests.fuzz.raw_http import Reply, exchange, trusting


def refusal(*pairs: tuple[str, str]) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        read_headers(pairs)
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize("name", ["Authorization", "authorization", "Impersonate-User", "Impersonate-Uid"])
def test_duplicate_authorization_headers_are_refused(name: str) -> None:
    for second in ("Bearer b", "Bearer a", ""):
        code, message = refusal((name, "Bearer a"), ("Accept", "x"), (name.upper(), second))
        assert code == 400
        assert message == f"the request has more than one {name.upper()} header: send exactly one"


def test_the_first_of_other_duplicate_headers_is_used() -> None:
    pairs = [("Accept", "a"), ("Impersonate-Group", "g"), ("ACCEPT", "b"), ("Impersonate-Group", "h")]
    assert read_headers(pairs) == {"accept": "a", "impersonate-group": "g"}


def test_headers_are_text() -> None:
    broken = b"Bearer \xff\xfe".decode("utf-8", "surrogateescape")
    assert refusal(("Authorization", broken)) == (401, "Unauthorized")
    assert refusal(("X-Other", broken)) == (400, "the header X-Other is not UTF-8")
    assert read_headers([("X", "ä")]) == {"x": "ä"}


async def test_duplicate_headers_in_a_request() -> None:
    running = await start_server(ServerSettings(controllers=False))
    try:
        good = f"Authorization: Bearer {running.token}\r\n".encode()

        async def ask(*headers: bytes) -> Reply:
            head = b"GET /api/v1/namespaces HTTP/1.1\r\nHost: x\r\n"
            return await exchange(running.port, [head + b"".join(headers) + b"\r\n"], tls=trusting())

        assert (await ask(good)).status == 200
        for pair in ((good, b"Authorization: Bearer x\r\n"), (b"authorization: Bearer x\r\n", good)):
            reply = await ask(*pair)
            status = json.loads(reply.body)
            assert (reply.status, status["reason"]) == (400, "BadRequest")
            assert "more than one" in status["message"]
        twice = b"Impersonate-User: a\r\n", b"Impersonate-User: b\r\n"
        assert (await ask(good, *twice)).status == 400
        assert (await ask(b"Authorization: Bearer \xff\xfe\r\n")).status == 401
        assert (await ask(b"Authorization: Bearer x, Bearer y\r\n")).status == 401
        groups = b"Impersonate-User: a\r\n", b"Impersonate-Group: g\r\n", b"Impersonate-Group: h\r\n"
        assert (await ask(good, *groups)).status == 403
    finally:
        await running.stop()
