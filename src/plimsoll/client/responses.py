"""Parsing of responses: errors from Status objects, lists into raw items, watch streams into events.

Guarantees: objects are the bytes that the server sent (items of a list get the kind and apiVersion that
servers omit there); a response that is not from a Kubernetes API, such as a proxy's error page, is an
ApiError that describes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

import msgspec

from plimsoll.api import codec
from plimsoll.client.endpoints import Endpoint
from plimsoll.errors import ApiError, DecodeError

#: Longest line of a watch; larger than objects can be in any server.
MAX_FRAME = 64 << 20

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Gone",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ObjectList(NamedTuple):
    """Raw objects of a collection, and the revision they were read at."""

    items: list[bytes]
    revision: str


class ObjectListPage(NamedTuple):
    """Page of a list; `more` is the continue token."""

    items: list[bytes]
    revision: str
    more: str


class WatchEvent(NamedTuple):
    """ADDED, MODIFIED, DELETED or BOOKMARK; the revision is the object's."""

    type: str
    raw: bytes
    revision: str


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    kind: str = ""
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Kinded(msgspec.Struct):
    kind: str = ""


class _Frame(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Head(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_lists = msgspec.json.Decoder(_List)
_frames = msgspec.json.Decoder(_Frame)
_heads = msgspec.json.Decoder(_Head)
_kinds = msgspec.json.Decoder(_Kinded)


def read_page(body: bytes, endpoint: Endpoint) -> ObjectListPage:
    try:
        found = _lists.decode(body)
        if not found.kind.endswith("List"):
            raise ApiError(502, "InvalidResponse", f"expected a list, got {found.kind or 'an object'}")
        head = f'{{"kind":"{endpoint.kind}","apiVersion":"{endpoint.api_version}"'.encode()
        items = [_complete(bytes(item), head) for item in found.items or ()]
    except msgspec.DecodeError as error:
        raise _invalid_response(body, str(error)) from None
    return ObjectListPage(items, found.metadata.resource_version, found.metadata.continue_)


def _complete(item: bytes, head: bytes) -> bytes:
    """Add kind and apiVersion to an item: lists omit them."""
    if _kinds.decode(item).kind:
        return item
    rest = item[1:].lstrip()
    return head + (b"" if rest.startswith(b"}") else b",") + rest


def read_tree(body: bytes) -> dict[str, Any]:
    try:
        tree = codec.decode_tree(body)
    except DecodeError as error:
        raise _invalid_response(body, str(error)) from None
    if not isinstance(tree, dict):
        raise _invalid_response(body, "not an object")
    return tree


def read_frame(line: bytes) -> WatchEvent:
    """Parse one line of a watch; an ERROR event raises its ApiError."""
    try:
        frame = _frames.decode(line)
        raw = bytes(frame.object)
        if frame.type == "ERROR":
            raise read_error(0, {}, raw)
        return WatchEvent(frame.type, raw, _heads.decode(raw).metadata.resource_version)
    except msgspec.DecodeError as error:
        raise _invalid_response(line, str(error)) from None


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the non-empty lines of a stream; the end of the stream ends the last line."""
    rest: list[bytes] = []
    size = 0
    async for chunk in chunks:
        head, newline, tail = chunk.partition(b"\n")
        rest.append(head)
        size += len(head)
        if size > MAX_FRAME:
            raise ApiError(502, "InvalidResponse", f"a watch event is longer than {MAX_FRAME >> 20} MiB")
        if not newline:
            continue
        *lines, last = (b"".join(rest) + newline + tail).split(b"\n")
        for line in lines:
            if line:
                yield line
        rest, size = [last], len(last)
    if line := b"".join(rest).strip():
        yield line


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the ApiError of an error response: its Status, or the text of a proxy."""
    try:
        tree = codec.decode_tree(body)
    except DecodeError:
        tree = None
    if isinstance(tree, dict) and tree.get("kind") == "Status":
        code = tree.get("code")
        code = code if isinstance(code, int) and code else status or 500
        details = tree.get("details")
        return ApiError(
            code,
            str(tree.get("reason") or _REASONS.get(code, "Unknown")),
            str(tree.get("message") or tree.get("reason") or f"the server returned {code}"),
            details if isinstance(details, dict) else None,
            headers,
        )
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    message = f"the server returned {status}" + (f": {text[:200]}" if text else "")
    return ApiError(status or 500, _REASONS.get(status, "Unknown"), message, None, headers)


def _invalid_response(body: bytes, problem: str) -> ApiError:
    start = body[:60].decode("utf-8", "replace")
    return ApiError(
        502,
        "InvalidResponse",
        f"not a response of a Kubernetes API ({problem}): it starts with {start!r}; "
        "check the server's address",
    )
