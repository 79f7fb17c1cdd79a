"""HTTP requests that are passed on to another server, and its responses, whose bodies are streamed.

Headers that belong to one connection are left out, and so are credentials: they are those of the client at
this server.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass

import aiohttp
from yarl import URL

_CONNECT_SECONDS = 10.0
_HEADER_SECONDS = 60.0
#: Headers of a connection (RFC 9110, "Connection"), and those that the next request sets itself.
_OWN = frozenset(
    (
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_CREDENTIALS = ("authorization", "impersonate-", "x-remote-")
_EMPTY = frozenset((204, 304))


@dataclass(frozen=True, slots=True)
class ForwardedResponse:
    """Response of the other server; `length` of the body if it is known. `body` has to be closed."""

    status: int
    headers: tuple[tuple[str, str], ...]  #: in the order in which they were sent; names may be repeated
    length: int | None
    body: AsyncGenerator[bytes, None]


class HttpForwarder:
    """Client that passes requests on; `tls` is for servers that are asked to be trusted, see `forward`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def forward(
        self, method: str, url: str, headers: Iterable[tuple[str, str]], body: bytes, *, trusted: bool = False
    ) -> ForwardedResponse:
        """Send a request; OSError (also TimeoutError) if there is no response.

        Only `trusted` servers get the client certificate; certificates of others are not verified.
        """
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=timeout,
                trust_env=False,
                auto_decompress=False,
            )
        context = self._tls if trusted and self._tls is not None else False
        try:
            async with asyncio.timeout(_HEADER_SECONDS):
                response = await self._session.request(
                    method,
                    URL(url, encoded=True),
                    headers=[(name, value) for name, value in headers if is_forwarded(name)],
                    data=body or None,
                    allow_redirects=False,
                    ssl=context,
                )
        except aiohttp.ClientError as error:
            raise ConnectionError(str(error)) from None
        found = tuple(pair for pair in response.headers.items() if pair[0].lower() not in _OWN)
        length = 0 if response.status in _EMPTY else response.content_length
        return ForwardedResponse(response.status, found, length, read_body(response))


def is_forwarded(name: str) -> bool:
    """Return whether a header of a request is passed on."""
    return name.lower() not in _OWN and not name.lower().startswith(_CREDENTIALS)


async def read_body(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Return the body of a response in chunks, as far as it was sent, and close the response at the end."""
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.ClientError:
        return  # the server has stopped: what was read is complete as far as it goes
    finally:
        response.close()
