"""Splitting of synchronization messages that are too long. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.protocols.messages import nri
from plimsoll.protocols.ttrpc import MAX_MESSAGE_SIZE

#: Maximum size of a part: a message less its envelope.
MAX_PART_BYTES = MAX_MESSAGE_SIZE - 1024


def split(
    pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container], largest: int = MAX_PART_BYTES
) -> list[nri.SynchronizeRequest] | None:
    """Split into parts as full as possible, pods before containers; None if one object is too long."""
    parts = [nri.SynchronizeRequest(more=True)]
    room = largest - _MORE
    for held, kind in ((pods, "pods"), (containers, "containers")):
        for message in held:
            size = _size(message.ByteSize())
            if size > largest - _MORE:
                return None
            if size > room:
                parts.append(nri.SynchronizeRequest(more=True))
                room = largest - _MORE
            getattr(parts[-1], kind).append(message)
            room -= size
    parts[-1].more = False
    return parts


#: Size of the field `more`.
_MORE = 2


def _size(length: int) -> int:
    """Return the size of an embedded message: tag, length and content."""
    return 1 + max(1, (length.bit_length() + 6) // 7) + length
