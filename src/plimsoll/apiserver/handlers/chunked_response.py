"""Chunked responses: lists of any length, sent without blocking the event loop.

A short list becomes one bytes object. A long one is sent in chunks with its length known from the start, so
that it is neither joined in one step nor copied in memory.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import TypeAlias

from plimsoll.apiserver.request import ApiResponse
from plimsoll.apiserver.time_slices import TimeSlice

#: Part of a body; a view of a stored object is not copied.
Part: TypeAlias = bytes | memoryview

#: Responses up to this size are sent in one chunk.
UNCHUNKED_BYTES = 1 << 20
_CHUNK_BYTES = 256 << 10


def build_chunked_response(parts: Sequence[Part], content_type: str, time_slice: TimeSlice) -> ApiResponse:
    """Return a response whose body is the concatenation of the parts."""
    length = sum(map(len, parts))
    if length <= UNCHUNKED_BYTES:
        return ApiResponse(200, b"".join(parts), content_type)
    return ApiResponse(200, _join_chunks(parts, time_slice.renew()), content_type, length=length)


async def _join_chunks(parts: Iterable[Part], time_slice: TimeSlice) -> AsyncGenerator[bytes, None]:
    with time_slice:
        buffered: list[Part] = []
        size = 0
        for part in parts:
            buffered.append(part)
            size += len(part)
            if size >= _CHUNK_BYTES:
                chunk = b"".join(buffered)
                buffered, size = [], 0
                await time_slice.pause()
                time_slice.release()  # the client may read slowly
                yield chunk
        yield b"".join(buffered)


def join_items(items: Iterable[Part], opening: bytes = b"") -> list[Part]:
    """Return the parts of a JSON list: the items, each after its opening, with commas between them."""
    parts: list[Part] = [opening]
    separator = b"," + opening
    for item in items:
        parts.append(item)
        parts.append(separator)
    return parts[:-1]
