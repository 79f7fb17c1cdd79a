"""Attachment of clients to the input and output of a running container (`kubectl attach`, `kubectl run -i`).

The container's shim owns its input, output and terminal; the agent connects to the shim's socket and passes
frames on (see runtime/console.py).
"""

from __future__ import annotations

import asyncio
import os
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
        reader, writer = await _connect(directory)
    except (OSError, TimeoutError) as error:
        return failure_status(f"error attaching to container: {error}")
    closed = asyncio.create_task(streams.wait_closed())
    output = asyncio.create_task(_copy_out(reader, options, streams))
    others = []
    if options.stdin:
        writer.write(HEAD.pack(INPUT, 0))
        others.append(asyncio.create_task(_copy_in(writer, streams)))
    if options.tty:
        others.append(asyncio.create_task(_resize(writer, streams)))
    try:
        await asyncio.wait((closed, output), return_when=asyncio.FIRST_COMPLETED)
        return success_status()
    finally:
        await cancel_tasks([closed, output, *others])
        writer.close()


async def _connect(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    # By way of a descriptor: the path may be longer than the address of a socket can be.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await asyncio.open_unix_connection(f"/proc/self/fd/{fd}/{SOCKET}")
    finally:
        os.close(fd)


async def _copy_out(reader: asyncio.StreamReader, options: StreamOptions, streams: RemoteStreams) -> None:
    wanted = {STDOUT: options.stdout, STDERR: options.stderr}
    try:
        while True:
            kind, left = HEAD.unpack(await reader.readexactly(HEAD.size))
            while left:
                data = await reader.read(min(left, _CHUNK_BYTES))
                if not data:
                    return
                left -= len(data)
                if wanted.get(kind):
                    await streams.write(data, error=kind == STDERR)
    except (asyncio.IncompleteReadError, ConnectionError):
        return


async def _copy_in(writer: asyncio.StreamWriter, streams: RemoteStreams) -> None:
    try:
        while data := await streams.read_input():
            for start in range(0, len(data), _CHUNK_BYTES):
                piece = data[start : start + _CHUNK_BYTES]
                writer.write(HEAD.pack(DATA, len(piece)) + piece)
                await writer.drain()
        writer.write(HEAD.pack(END, 0))
        await writer.drain()
    except ConnectionError:
        return


async def _resize(writer: asyncio.StreamWriter, streams: RemoteStreams) -> None:
    while (size := await streams.read_size()) is not None:
        writer.write(HEAD.pack(RESIZE, SIZE.size) + SIZE.pack(size.width, size.height))
