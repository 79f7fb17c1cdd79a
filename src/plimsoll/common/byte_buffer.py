"""Bounded buffer between the reader of a connection and the task that uses what it received."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBuffer:
    """Pieces of a stream: `put` waits while too much is held, `get` waits for the next piece."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()

    async def put(self, data: bytes) -> None:
        """Add a piece; it is dropped after the end."""
        while self._size >= self._limit and not self._ended:
            self._writable.clear()
            await self._writable.wait()
        if data and not self._ended:
            self._pieces.append(data)
            self._size += len(data)
            self._readable.set()

    async def get(self) -> bytes:
        """Return the next piece; b"" at the end."""
        while not self._pieces:
            if self._ended:
                return b""
            self._readable.clear()
            await self._readable.wait()
        piece = self._pieces.popleft()
        self._size -= len(piece)
        self._writable.set()
        return piece

    @property
    def ended(self) -> bool:
        return self._ended

    def end(self) -> None:
        """End the stream; what was put before is still returned."""
        self._ended = True
        self._readable.set()
        self._writable.set()
