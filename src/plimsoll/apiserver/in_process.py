"""In-process transport: a client of an API server in the same process, without a network.

Translates the client's `Request` into the server's `ApiRequest` and the `ApiResponse` back. Retries and
response parsing are those of the HTTP client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.client.client import Client
from plimsoll.client.transport import Reply, Request, ResponseStream
from plimsoll.errors import UnreachableError

Handle = Callable[[ApiRequest], Awaitable[ApiResponse]]


def connect_in_process(
    handle: Handle, user: User, *, namespace: str = "default", user_agent: str = ""
) -> Client:
    """Return a client of an API server in this process; `handle` is its `Api.handle`."""
    return Client(InProcessTransport(handle, user), namespace=namespace, user_agent=user_agent)


class InProcessTransport:
    """Client transport that calls `handle` as one user."""

    def __init__(self, handle: Handle, user: User) -> None:
        self._handle = handle
        self._user = user

    async def send(self, request: Request) -> Reply:
        if request.guard is not None:
            request.guard()
        try:
            async with asyncio.timeout(request.timeout):
                response = await self._handle(self._to_api_request(request))
                if isinstance(response.body, bytes):
                    body = response.body
                else:
                    async with aclosing(response.body) as chunks:
                        body = b"".join([chunk async for chunk in chunks])
        except TimeoutError:
            raise UnreachableError(
                f"{request.method} {request.path}: no answer within {request.timeout:g} s",
                sent=True,
                reason="Timeout",
            ) from None
        return Reply(response.status, _headers(response), body)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        response = await self._handle(self._to_api_request(request))
        body = response.body
        if isinstance(body, bytes):
            yield ResponseStream(response.status, _headers(response), _once(body))
            return
        try:
            yield ResponseStream(response.status, _headers(response), body)
        finally:
            await body.aclose()

    async def renew(self) -> bool:
        return False

    async def close(self) -> None:
        return None

    def _to_api_request(self, request: Request) -> ApiRequest:
        headers = {name.lower(): value for name, value in request.headers.items()}
        return ApiRequest(
            request.method, request.path, self._user, request.query, headers, request.body or b""
        )


def _headers(response: ApiResponse) -> dict[str, str]:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return {"content-type": response.content_type, **headers}


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
