"""Unary calls over in-memory sockets, at both ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import grpc
import grpc.aio

from plimsoll.protocols import rpc
from tests.simulation.loop import Process, SimulationLoop

#: Most time that a message needs (seconds).
_LATENCY = 0.002


class CallServer(Protocol):
    """Server of a socket."""

    process: Process
    handlers: Mapping[str, rpc.MethodHandler]
    calls: list[SocketCall]


class SocketCall:
    """Call of one method; it starts when it is created."""

    def __init__(self, loop: SimulationLoop, server: CallServer | None, method: str, request: bytes) -> None:
        self.result: asyncio.Future[bytes] = loop.create_future()
        self._loop = loop
        self._server = server
        self._method, self._request = method, request
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        self._later(self._arrive)

    def abandon(self) -> None:
        """Cancel the call at the server, as a passed deadline or a broken connection does."""
        if not self._is_over:
            self._later(self._cancel)

    def fail(self, code: grpc.StatusCode, details: str) -> None:
        self._end()
        self._later(self._set_failure, code, details)

    # -- at the server

    def _arrive(self) -> None:
        server = self._server
        if server is None or not server.process.alive:
            self._is_over = True
            self._set_failure(grpc.StatusCode.UNAVAILABLE, "connection refused")
        elif not self._is_over:
            server.calls.append(self)
            self._task = server.process.start(self._serve(server))

    async def _serve(self, server: CallServer) -> None:
        handler = server.handlers.get(self._method)
        if handler is None or handler.streaming:
            self.fail(grpc.StatusCode.UNIMPLEMENTED, self._method)
            return
        try:
            message = await handler.function(  # type: ignore[misc]
                handler.parse(self._request), rpc.CallContext()
            )
        except asyncio.CancelledError:
            self._end()
            raise
        except Exception as error:
            self.fail(grpc.StatusCode.UNKNOWN, str(error))
        else:
            answer = message if isinstance(message, bytes) else message.SerializeToString(deterministic=True)
            self._end()
            self._later(self._set_answer, answer)

    def _cancel(self) -> None:
        self._is_over = True
        if self._task is not None and self._server is not None and self._server.process.alive:
            self._task.cancel()

    def _end(self) -> None:
        self._is_over = True
        if self._server is not None and self in self._server.calls:
            self._server.calls.remove(self)

    # -- at the caller

    def _set_answer(self, answer: bytes) -> None:
        if not self.result.done():
            self.result.set_result(answer)

    def _set_failure(self, code: grpc.StatusCode, details: str) -> None:
        if not self.result.done():
            self.result.set_exception(call_error(code, details))
            self.result.exception()  # a caller that has gone does not read it

    def _later(self, callback: Callable[..., None], *arguments: object) -> None:
        loop = self._loop
        loop.call_at_global(loop.now + loop.dice.random() * _LATENCY, callback, *arguments)


def call_error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)
