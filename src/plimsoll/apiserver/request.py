"""Requests to the API and their responses, independent of any HTTP library.

The HTTP server and clients in the same process both use `ApiRequest` and `ApiResponse`. A response body that
is an iterator is a stream, such as a watch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.kubelet.location import KubeletLocation
from plimsoll.apiserver.request_info import RequestInfo


@dataclass(slots=True)
class ApiRequest:
    """Request of an authenticated user. Header names are in lower case."""

    method: str
    path: str
    user: User
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    info: RequestInfo | None = None  #: what the path names, once it is resolved
    #: Called when a watch has sent its initial events, if any.
    initialized: Callable[[], None] | None = None

    def header(self, name: str) -> str:
        return self.headers.get(name, "")


@dataclass(slots=True)
class ApiResponse:
    """Response: a complete body or a stream of chunks.

    A stream with a known `length` is one long response; a stream without is a watch.
    """

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
    more_headers: Sequence[tuple[str, str]] = ()  #: headers whose names may be repeated
    upgrade: KubeletLocation | None = None  #: the connection is passed on to this kubelet


def encode_header_lines(headers: Mapping[str, str]) -> bytes:
    """Return headers as they are sent; their values must be safe."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
