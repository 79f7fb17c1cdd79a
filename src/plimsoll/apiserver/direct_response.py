"""Responses that are written to the transport in one step, without the objects that aiohttp makes for each.

Usual responses have a status, a body of known length and no headers of their own, so that all lines but the
length and the date are known beforehand. All others are left to aiohttp, with equal results.
"""

from __future__ import annotations

import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from http.client import responses as REASONS

from aiohttp import HttpVersion11, web
from aiohttp.http import SERVER_SOFTWARE

from plimsoll.apiserver.handlers.negotiation import JSON
from plimsoll.apiserver.protobuf import CONTENT_TYPE as PROTOBUF
from plimsoll.apiserver.request import ApiResponse, encode_header_lines

CACHE_CONTROL = "no-cache, private"
#: Content types that need no check: others may come from a kubelet or a proxied pod.
_CONTENT_TYPES = frozenset({JSON, PROTOBUF})
_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_CLOSE = b"Connection: close\r\n"


class _SentResponse(web.StreamResponse):
    """Response that has been sent already, for aiohttp, which expects one of every handler."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._keeps_alive = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._keeps_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


_SENT, _SENT_LAST = _SentResponse(keep_alive=True), _SentResponse(keep_alive=False)


def sent_response(request: web.BaseRequest) -> web.StreamResponse:
    """Return what the handler of a request returns whose response has been written."""
    return _SENT if request.keep_alive else _SENT_LAST


def encode_head(
    request: web.BaseRequest, response: ApiResponse, length: int, more_lines: bytes
) -> bytes | None:
    """Return the status line and the headers of a response, the encoded `more_lines` included; None if
    aiohttp has to make them.
    """
    if (
        response.headers
        or response.more_headers
        or response.content_type not in _CONTENT_TYPES
        or response.status in _BODILESS
        or request.version != HttpVersion11
        or request.method == "HEAD"
    ):
        return None
    return b"%bContent-Length: %d\r\nDate: %b\r\n%b%b\r\n" % (
        _first_lines(response.status, response.content_type),
        length,
        _date(int(time.time())),
        more_lines,
        b"" if request.keep_alive else _CLOSE,
    )


@lru_cache(maxsize=64)
def _first_lines(status: int, content_type: str) -> bytes:
    phrase = REASONS.get(status, "")
    headers = {"Content-Type": content_type, "Cache-Control": CACHE_CONTROL, "Server": SERVER_SOFTWARE}
    return f"HTTP/1.1 {status} {phrase}\r\n".encode() + encode_header_lines(headers)


@lru_cache(maxsize=2)
def _date(seconds: int) -> bytes:
    return formatdate(seconds, usegmt=True).encode()
