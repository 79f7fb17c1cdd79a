"""Ports on which processes listen."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from plimsoll.node.kubelet_api.listeners import find_listener
from plimsoll.node.kubelet_api.port_forward import PortForwarder
from plimsoll.protocols.spdy.frames import Data, FrameDecoder, FrameEncoder, SynStream


@pytest.mark.parametrize(("bound", "reached"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1")])
def test_a_listener_is_found_by_its_process(bound: str, reached: str) -> None:
    with socket.create_server((bound, 0)) as server:
        port = server.getsockname()[1]
        assert find_listener(port, [os.getpid()]) == reached
        assert find_listener(port, [1]) == ""
    assert find_listener(port, [os.getpid()]) == ""


class Client:
    """SPDY client that forwards one connection."""

    def __init__(self, port: str, data: bytes) -> None:
        encoder = FrameEncoder()
        headers = {"port": port, "requestID": "0"}
        self.sent = [
            encoder.encode(SynStream(1, {**headers, "streamType": "error"})),
            encoder.encode(SynStream(3, {**headers, "streamType": "data"})),
            encoder.encode(Data(3, data, fin=True)),
        ]
        self.received: dict[int, bytes] = {}
        self._decoder = FrameDecoder()
        self._ended = asyncio.Event()

    async def read(self) -> bytes:
        if self.sent:
            return self.sent.pop(0)
        await self._ended.wait()
        return b""

    async def write(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if isinstance(frame, Data):
                self.received[frame.stream] = self.received.get(frame.stream, b"") + frame.data
                if frame.fin and frame.stream == 1:
                    self._ended.set()


async def test_only_ports_of_the_pod_are_forwarded() -> None:
    closed = asyncio.Semaphore(0)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.read())
        writer.close()
        await writer.wait_closed()
        closed.release()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = str(server.sockets[0].getsockname()[1])
    own = Client(port, b"data")
    await PortForwarder("ns/p", lambda _: "127.0.0.1").serve(own)
    assert own.received[3] == b"got data"
    other = Client(port, b"data")
    await PortForwarder("ns/p", lambda _: "").serve(other)
    assert (
        other.received[1]
        == (f"error forwarding port {port} to pod ns/p: no process of the pod listens on this port").encode()
    )
    assert not other.received.get(3)
    wrong = Client("99999x", b"")
    await PortForwarder("ns/p", lambda _: "127.0.0.1").serve(wrong)
    assert b"invalid port" in wrong.received[1]
    await closed.acquire()
    server.close()
    await asyncio.sleep(0)
