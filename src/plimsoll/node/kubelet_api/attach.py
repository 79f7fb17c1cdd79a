"""Attachment of clients to the input and output of a running container (`kubectl attach`, `kubectl run -i`).

The container's shim owns its input, output and terminal; the agent connects to the shim's socket and passes
frames on (see runtime/console.py).
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

from plimsoll.common.tasks import cancel_tasks
from plimsoll.node.kubelet_api.remote_command import (
    RemoteStreams,
    StreamOptions,
    Tree,
    failure_status,
    success_status,
)
from plimsoll.node.runtime.console import DATA, END, HEAD, INPUT, RESIZE, SIZE, SOCKET, STDERR, STDOUT

_CHUNK_BYTES = 32 << 10
_CONNECT_SECONDS = 5.0


async def attach(directory: Path, options: StreamOptions, streams: RemoteStreams) -> Tree:
    """Attach a client to a container until the container ends or the client disconnects; return the
    status for the error channel.
    """
    try:
        shim = await _connect(directory)
    except (OSError, TimeoutError) as error:
        return failure_status(f"error attaching to container: {error}")
    closed = asyncio.create_task(streams.wait_closed())
    output = asyncio.create_task(_copy_out(shim, options, streams))
    others = []
    if options.stdin:
        others.append(asyncio.create_task(_copy_in(shim, streams)))
    if options.tty:
        others.append(asyncio.create_task(_resize(shim, streams)))
    try:
        await asyncio.wait((closed, output), return_when=asyncio.FIRST_COMPLETED)
        return success_status()
    finally:
        await cancel_tasks([closed, output, *others])
        shim.close()


class _ShimConnection:
    """Connection to a shim.

    The shim may close it while input is written. A failed write does not end the reading, as it would with a
    stream of asyncio: output that the container wrote before is still read.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._writing = asyncio.Lock()

    async def read(self, count: int) -> bytes:
        """Return up to `count` bytes; b"" at the end."""
        return await asyncio.get_running_loop().sock_recv(self._socket, count)

    async def read_exactly(self, count: int) -> bytes:
        """Return `count` bytes, fewer at the end."""
        data = b""
        while len(data) < count and (piece := await self.read(count - len(data))):
            data += piece
        return data

    async def write(self, kind: int, data: bytes = b"") -> None:
        async with self._writing:
            await asyncio.get_running_loop().sock_sendall(self._socket, HEAD.pack(kind, len(data)) + data)

    def close(self) -> None:
        self._socket.close()


async def _connect(directory: Path) -> _ShimConnection:
    # By way of a descriptor: the path may be longer than the address of a socket can be.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(connection, f"/proc/self/fd/{fd}/{SOCKET}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(fd)
    return _ShimConnection(connection)


async def _copy_out(shim: _ShimConnection, options: StreamOptions, streams: RemoteStreams) -> None:
    wanted = {STDOUT: options.stdout, STDERR: options.stderr}
    try:
        while len(head := await shim.read_exactly(HEAD.size)) == HEAD.size:
            kind, left = HEAD.unpack(head)
            while left:
                data = await shim.read(min(left, _CHUNK_BYTES))
                if not data:
                    return
                left -= len(data)
                if wanted.get(kind):
                    await streams.write(data, error=kind == STDERR)
    except ConnectionError:
        return


async def _copy_in(shim: _ShimConnection, streams: RemoteStreams) -> None:
    try:
        await shim.write(INPUT)
        while data := await streams.read_input():
            for start in range(0, len(data), _CHUNK_BYTES):
                await shim.write(DATA, data[start : start + _CHUNK_BYTES])
        await shim.write(END)
    except ConnectionError:
        return


async def _resize(shim: _ShimConnection, streams: RemoteStreams) -> None:
    try:
        while (size := await streams.read_size()) is not None:
            await shim.write(RESIZE, SIZE.pack(size.width, size.height))
    except ConnectionError:
        return
