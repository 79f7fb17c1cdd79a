"""Frames of watches, as a client reads them."""

from __future__ import annotations

import json
from typing import Any

from plimsoll.apiserver.protobuf import decode_body, wire

PROTOBUF = "application/vnd.kubernetes.protobuf"


def read_frames(content_type: str, received: bytes) -> list[tuple[str, Any]]:
    """Return the types and objects of complete frames: lines of JSON, or protobuf with lengths."""
    if content_type.startswith(PROTOBUF):
        return read_protobuf_frames(received)
    return [(frame["type"], frame["object"]) for frame in map(json.loads, received.splitlines())]


def read_protobuf_frames(received: bytes) -> list[tuple[str, dict[str, Any]]]:
    found = []
    while received:
        length = int.from_bytes(received[:4], "big")
        event, received = received[4 : 4 + length], received[4 + length :]
        assert len(event) == length, "the frame is complete"
        fields = dict(wire.read_fields(event))
        (raw,) = (value for number, value in wire.read_fields(wire.chunk(fields[2])) if number == 1)
        found.append((wire.text(fields[1]), decode_body(wire.chunk(raw))))
    return found
