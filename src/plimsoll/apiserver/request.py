"""One request to the API and its answer, free of any HTTP library.

Owns `ApiRequest` and `ApiResponse`: the HTTP shell and clients in the same process both speak to the API in
them. A body that is an iterator is a stream (a watch); it ends when the watch does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.apiserver.auth.users import User


@dataclass(slots=True)
class ApiRequest:
    """A request whose sender is known. Header names are in lower case."""

    method: str
    path: str
    user: User
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def header(self, name: str) -> str:
        return self.headers.get(name, "")


@dataclass(slots=True)
class ApiResponse:
    """What goes back: all of it at once, or a stream of chunks.

    A stream of known `length` is one long response in pieces; one without is a watch.
    """

    status: int
    body: bytes | AsyncGenerator[bytes, None]
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None
