"""Slow clients that never read, send single bytes or only connect: others keep their latency, and the
server its memory.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import statistics
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plimsoll.apiserver.limits import ServerLimits
from plimsoll.apiserver.process import ServerSettings, start_server
from plimsoll.client import Client
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.client.kubeconfig import find_config
from tests.fuzz.raw_http import RawConnection, trusting
from tests.smoke.process import ServerProcess
from tests.waiting import DEADLINE, until

NS = "default"
NUMBERS = itertools.count()
MAPS = f"/api/v1/namespaces/{NS}/configmaps"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path_factory.mktemp("slow"), "--no-controllers", durable=False)
    process.start()
    yield process
    process.stop()
    assert "Traceback" not in process.complaints()


def token(kubeconfig: Path) -> str:
    found = re.search(r"token: (\S+)", kubeconfig.read_text())
    assert found is not None
    return found[1]


@asynccontextmanager
async def connections(server: ServerProcess, count: int, first: str) -> AsyncIterator[list[RawConnection]]:
    """Open a number of connections that have each sent this much."""
    clients = [await RawConnection.open(server.port, trusting()) for _ in range(count)]
    head = f"{first}Authorization: Bearer {token(server.kubeconfig)}\r\n"
    for connection in clients:
        await connection.send(head.encode())
    yield clients
    for connection in clients:
        await connection.abort()


async def rounds(client: Client, count: int, size: int = 100) -> None:
    """Write and read an object repeatedly, as other clients do."""
    for _ in range(count):
        data = {"n": str(next(NUMBERS)), "x": "x" * size}
        tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "busy"}, "data": data}
        await client.patch(CONFIG_MAPS, "busy", tree, NS, type="apply")
        await client.get(CONFIG_MAPS, "busy", NS)


def resident(server: ServerProcess) -> int:
    """Return the resident memory of the server in MiB."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) // 1024


async def test_others_keep_their_latency(server: ServerProcess, tmp_path: Path) -> None:
    """The latency is counted in rounds on a second server, which a busy machine slows down as much."""
    quiet = await start_server(ServerSettings(controllers=False))
    quiet.write_kubeconfig(tmp_path / "quiet")
    done = 0

    async def count_rounds() -> None:
        nonlocal done
        async with Client.connect(find_config(tmp_path / "quiet")) as client:
            while True:
                await rounds(client, 1, 20_000)
                done += 1

    watch = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n"
    post = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
    async with (
        Client.connect(server.config()) as client,
        connections(server, 20, watch) as readers,
        connections(server, 20, post) as senders,
        connections(server, 50, "GET / HTTP/1.1\r\n"),
    ):
        for connection in (*readers, *senders):
            await connection.send(b"\r\n")
            connection.stop_reading()
        tasks = [asyncio.create_task(drip(senders)), asyncio.create_task(count_rounds())]
        await until(lambda: done)
        taken = []
        for _ in range(60):
            before = done
            await rounds(client, 1, 20_000)
            taken.append(done - before)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await quiet.stop()
    assert statistics.median(taken) < 10
    assert max(taken) < 100


async def drip(clients: list[RawConnection]) -> None:
    while True:
        for connection in clients:
            await connection.send(b"{")
        await asyncio.sleep(0.2)


async def test_watchers_that_never_read_cost_no_memory(server: ServerProcess) -> None:
    """Forty megabytes of events past thirty stuck watchers would be more than a gigabyte in queues."""
    async with Client.connect(server.config()) as client:
        await rounds(client, 5, 200_000)
        before = resident(server)
        async with connections(server, 30, f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n") as clients:
            for connection in clients:
                connection.stop_reading()
                await connection.send(b"\r\n")
            await rounds(client, 200, 200_000)
            assert resident(server) - before < 300


async def test_unfinished_headers_cost_little_memory(server: ServerProcess) -> None:
    """Twenty connections of 6.5 MB each would be more than 260 MB in aiohttp's parser."""
    async with Client.connect(server.config()) as client:
        await rounds(client, 5)
        before = resident(server)
        clients = [await RawConnection.open(server.port, trusting()) for _ in range(20)]

        async def flood(connection: RawConnection) -> None:
            await connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
            for number in range(100):
                await connection.send(b"h%d: %b\r\n" % (number, b"a" * 65_000))

        highest = before
        flooding = asyncio.gather(*(flood(connection) for connection in clients))
        while not flooding.done():
            await rounds(client, 1)
            highest = max(highest, resident(server))
        await flooding
        assert highest - before < 100
        for connection in clients:
            await connection.abort()


async def test_a_watcher_that_never_reads_is_cut_off() -> None:
    limits = ServerLimits(slow_watch_timeout=1)
    running = await start_server(ServerSettings(controllers=False, limits=limits))
    try:
        connection = await RawConnection.open(running.port, trusting())
        head = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {running.token}\r\n\r\n"
        await connection.send(head.encode())
        connection.stop_reading()
        async with running.client() as client, asyncio.timeout(DEADLINE):
            await until(lambda: running.http.watch_limiter.open != 0)
            number = 0
            while running.http.watch_limiter.open:
                number += 1
                await rounds(client, 1, 500_000)
                await asyncio.sleep(0.02)
            assert number > 1
        await connection.abort()
    finally:
        await running.stop()


async def test_an_unread_list_is_aborted() -> None:
    running = await start_server(ServerSettings(controllers=False, limits=ServerLimits(slow_watch_timeout=1)))
    try:
        async with running.client() as client:
            for number in range(20):
                tree = {"metadata": {"name": f"c{number}"}, "data": {"x": "x" * 900_000}}
                await client.create(CONFIG_MAPS, tree, NS)
        connection = await RawConnection.open(running.port, trusting())
        connection.stop_reading()
        head = f"GET {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {running.token}\r\n\r\n"
        await connection.send(head.encode())
        await asyncio.sleep(1.5)
        connection.go_on_reading()
        async with asyncio.timeout(DEADLINE):
            rest = await connection.reader.read(1 << 26)
            while piece := await connection.reader.read(1 << 26):
                rest += piece
        assert len(rest) < 18_000_000, "it was cut off half way"
        await connection.abort()
        reader = await RawConnection.open(running.port, trusting())
        await reader.send(head.encode())
        assert len(json.loads((await reader.reply()).body)["items"]) == 20
        await reader.close()
    finally:
        await running.stop()
