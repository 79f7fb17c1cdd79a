"""Connections that a test leaves open are found when its event loop is closed."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from pathlib import Path

import pytest

from plimsoll.apiserver.auth.certificates import CertificateAuthority, create_ssl_context
from tests.leaks import CheckedEventLoop


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()


async def connect(port: int, *, close: bool) -> None:
    transport, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    if close:
        transport.close()
        await client.closed.wait()


@pytest.mark.parametrize("close", [True, False])
def test_open_connections_are_found(close: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(connect(server.getsockname()[1], close=close))
        gc.collect()
    found, CheckedEventLoop.left_open[:] = list(CheckedEventLoop.left_open), []
    assert ["Client" in text for text in found] == ([] if close else [True])


def test_a_tls_session_that_ends_with_its_loop_is_no_leak(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    server_context = create_ssl_context(*authority.ensure_server_pair())
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    done = threading.Event()

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with server_context.wrap_socket(connection, server_side=True):
            done.wait(60)  # it does not answer the end of the session

    async def connect_and_close(port: int) -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(
            Client, "127.0.0.1", port, ssl=client_context
        )
        transport.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        asyncio.run(connect_and_close(server.getsockname()[1]))
        done.set()
        thread.join()
    gc.collect()
    assert CheckedEventLoop.left_open == []
