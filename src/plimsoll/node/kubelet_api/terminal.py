"""Terminal of a command: the agent's side of a pseudo terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from contextlib import suppress

from plimsoll.node.kubelet_api.remote_command import TerminalSize

_CHUNK_BYTES = 32 << 10


class Terminal:
    """Pseudo terminal; `slave` is the descriptor of the command, which the caller closes once it runs."""

    def __init__(self) -> None:
        self._master, self.slave = os.openpty()
        os.set_blocking(self._master, False)

    def close_slave(self) -> None:
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def resize(self, size: TerminalSize) -> None:
        with suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", size.height, size.width, 0, 0))

    async def read(self) -> bytes:
        """Return some output; b"" when no process uses the terminal any more."""
        while True:
            try:
                return os.read(self._master, _CHUNK_BYTES)
            except BlockingIOError:
                await self._wait(reads=True)
            except OSError:  # EIO: the last process has closed it
                return b""

    async def write(self, data: bytes) -> None:
        """Write input, and wait while no process reads it; OSError if there is none."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._master, view) :]
            except BlockingIOError:
                await self._wait(reads=False)

    async def _wait(self, *, reads: bool) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        if reads:
            loop.add_reader(self._master, ready.set)
        else:
            loop.add_writer(self._master, ready.set)
        try:
            await ready.wait()
        finally:
            if reads:
                loop.remove_reader(self._master)
            else:
                loop.remove_writer(self._master)

    def close(self) -> None:
        self.close_slave()
        os.close(self._master)
