"""Responses written without aiohttp have the status and headers of those that aiohttp makes."""

from __future__ import annotations

import json

from tests.coroutines import run_by
from tests.fuzz.raw_http import RawConnection, Reply
from tests.unit.apiserver.server_harness import MAPS, ServerHarness, ends, run_scenario, serving

OBJECTS = 6


def lines(head: bytes) -> list[str]:
    """Return the status line and the headers of a response in alphabetical order, without the date itself."""
    first, *headers = head.decode().strip().split("\r\n")
    return [first, *sorted(line.split(":")[0] if line.startswith("Date: ") else line for line in headers)]


async def ask(
    served: ServerHarness, connection: RawConnection, path: str, method: str = "GET", more: bytes = b""
) -> bytes:
    """Send a request that is the last of its connection; return the head of the response."""
    await connection.send(
        f"{method} {path} HTTP/1.1\r\nHost: x\r\n".encode() + more + served.credentials + b"\r\n"
    )
    return await connection.reader.readuntil(b"\r\n\r\n")


@run_by(run_scenario)
async def test_the_headers_are_those_of_a_head_request() -> None:
    async with serving() as served:
        for path in (MAPS, f"{MAPS}/kube-root-ca.crt", f"{MAPS}/missing", "/apis"):
            for more in (
                b"",
                b"Connection: close\r\n",
                b"Accept: application/vnd.kubernetes.protobuf\r\n",
            ):
                connections = [await served.open() for _ in range(2)]
                direct = await ask(served, connections[0], path, more=more)
                made = await ask(served, connections[1], path, "HEAD", more)
                assert lines(direct) == lines(made), (path, more)
                for connection in connections:
                    await connection.abort()


@run_by(run_scenario)
async def test_a_connection_is_closed_if_the_client_wants_that() -> None:
    async with serving() as served:
        for first, more in (
            (b"GET /version HTTP/1.1\r\n", b"Connection: close\r\n"),
            (b"GET /version HTTP/1.0\r\n", b""),
        ):
            connection = await served.open()
            await connection.send(first + b"Host: x\r\n" + more + served.credentials + b"\r\n")
            assert (await ends(connection)).status == 200
            await connection.close()


@run_by(run_scenario)
async def test_long_lists_are_complete() -> None:
    async with serving() as served:
        connection = await served.open()

        async def send(line: str, body: bytes = b"") -> Reply:
            head = f"{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()
            await connection.send(head + served.credentials + b"\r\n" + body)
            return await connection.reply()

        for number in range(OBJECTS):
            body = {"metadata": {"name": f"m{number}"}, "data": {"x": "x" * 300_000}}
            assert (await send(f"POST {MAPS}", json.dumps(body).encode())).status == 201
        for _ in range(2):  # the connection is usable afterwards
            found = json.loads((await send(f"GET {MAPS}")).body)["items"]
            sizes = {each["metadata"]["name"]: len(each["data"].get("x", "")) for each in found}
            assert {f"m{number}": 300_000 for number in range(OBJECTS)}.items() <= sizes.items()
        await connection.close()
