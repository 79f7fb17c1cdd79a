"""Chunked responses: lists of any length, sent without blocking the event loop.

A short list becomes one bytes object. A long one is sent in chunks with its length known from the start, so
that it is neither joined in one step nor copied in memory as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import accumulate

from plimsoll.apiserver.request import ApiResponse
from plimsoll.apiserver.time_slices import TimeSlice

#: Responses up to this size are sent in one chunk.
UNCHUNKED_BYTES = 1 << 20
CHUNK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ChunkedBody:
    """Body of a list: `start`, the items with a separator between them, and `end`."""

    start: bytes
    items: list[bytes]
    end: bytes = b""
    separator: bytes = b""

    def join(self, first: int = 0, last: int | None = None) -> bytes:
        """Return the part of the body with a range of its items, of all by default."""
        parts = self.items[first:last]
        if not parts:
            return self.start + self.end
        if not first:
            parts[0] = self.start + parts[0]
        parts[-1] += self.end if last is None or last >= len(self.items) else self.separator
        return self.separator.join(parts)


def build_chunked_response(body: ChunkedBody, content_type: str, time_slice: TimeSlice) -> ApiResponse:
    """Return a response with a list."""
    ends = list(accumulate(map(len, body.items)))  # positions of the items' ends, without separators
    length = len(body.start) + len(body.end)
    if ends:
        length += ends[-1] + (len(ends) - 1) * len(body.separator)
    if length <= UNCHUNKED_BYTES:
        return ApiResponse(200, body.join(), content_type)
    return ApiResponse(200, _join_chunks(body, ends, time_slice.renew()), content_type, length=length)


async def _join_chunks(
    body: ChunkedBody, ends: list[int], time_slice: TimeSlice
) -> AsyncGenerator[bytes, None]:
    first, position = 0, 0
    with time_slice:
        while first < len(ends):
            last = max(first + 1, bisect_right(ends, position + CHUNK_BYTES, first))
            chunk = body.join(first, last)
            first, position = last, ends[last - 1]
            await time_slice.pause()
            time_slice.release()  # the client may read slowly
            yield chunk
