"""Connection between an agent and its API server that can be cut, restored, and cut permanently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from plimsoll.client.transport import Reply, Request, ResponseStream, Transport
from plimsoll.errors import UnreachableError

T = TypeVar("T")


class ApiConnection:
    """Transport that can be cut. A request in progress when it is cut may or may not have reached the
    server.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._cut = asyncio.Event()
        #: No request of a certain kind gets through while its method is named here.
        self.refused: set[str] = set()

    def cut(self) -> None:
        self._cut.set()

    def restore(self) -> None:
        self._cut.clear()

    async def send(self, request: Request) -> Reply:
        self._check(request)
        return await self._unless_cut(self._inner.send(request))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        self._check(request)
        async with self._inner.stream(request) as stream:
            yield ResponseStream(stream.status, stream.headers, self._chunks(stream.chunks))

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        await self._inner.close()

    def _check(self, request: Request) -> None:
        if self._cut.is_set() or request.method in self.refused:
            raise UnreachableError(f"{request.method} {request.path}: the line is cut", sent=False)

    async def _chunks(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        while (chunk := await self._unless_cut(_next(chunks))) is not None:
            yield chunk

    async def _unless_cut(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait((task, cut), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise UnreachableError("the line was cut", sent=True)
            return task.result()
        finally:
            for each in (task, cut):
                each.cancel()
            await asyncio.gather(task, cut, return_exceptions=True)


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next chunk; None after the last (a task cannot end with StopAsyncIteration)."""
    async for chunk in chunks:
        return chunk
    return None
