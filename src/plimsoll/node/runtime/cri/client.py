"""Client of a container runtime's services (CRI `runtime.v1`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from plimsoll.errors import RuntimeCallError
from plimsoll.node.plugins.metrics import code_name
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import cri

NOT_FOUND, UNIMPLEMENTED, DEADLINE_EXCEEDED = "NotFound", "Unimplemented", "DeadlineExceeded"
_SERVICES = ("RuntimeService", "ImageService")


class CriClient:
    """Connection to a runtime; it connects with the first call, and again after a restart of the runtime."""

    def __init__(self, socket: Path, timeout: float) -> None:
        self._channel = rpc.dial(socket)
        self._timeout = timeout

    async def call(self, method: str, request: Message, *, timeout: float | None = None) -> Any:
        """Call a method of either service; raises RuntimeCallError."""
        seconds = self._timeout if timeout is None else timeout
        try:
            return await rpc.call(self._channel, _find(method), request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise _failure(method, error) from None
        except (grpc.aio.UsageError, asyncio.CancelledError) as error:
            # A call also ends this way when its channel is closed. That is not a cancellation of the caller.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeCallError(method, "Canceled", str(error) or "the connection is closed") from None

    async def events(self) -> AsyncIterator[Any]:
        """Yield the container events of the runtime; raises RuntimeCallError when the stream breaks."""
        method = "GetContainerEvents"
        try:
            async for event in rpc.watch(self._channel, _find(method), cri.GetEventsRequest()):
                yield event
        except grpc.aio.AioRpcError as error:
            raise _failure(method, error) from None

    async def close(self) -> None:
        await rpc.close(self._channel)


def _find(method: str) -> MethodDescriptor:
    services = cri.DESCRIPTOR.services_by_name
    service = next(name for name in _SERVICES if method in services[name].methods_by_name)
    return rpc.find_method(cri.DESCRIPTOR, service, method)


def _failure(method: str, error: grpc.aio.AioRpcError) -> RuntimeCallError:
    return RuntimeCallError(method, code_name(error.code()), error.details() or "no details")
