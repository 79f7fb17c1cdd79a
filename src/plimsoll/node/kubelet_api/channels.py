"""Messages of the WebSocket subprotocols `v4.channel.k8s.io` and `v5.channel.k8s.io`. Pure.

The first byte of a message is its channel, the rest the data; in the base64 form the first character is the
channel as a digit and the rest is encoded. In version 5 the client ends a channel with a message on channel
255 whose data is the number of the ended one.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
V4, V5, V4_BASE64 = "v4.channel.k8s.io", "v5.channel.k8s.io", "v4.base64.channel.k8s.io"
#: Supported subprotocols, best first.
PROTOCOLS = (V5, V4, V4_BASE64)


class ChannelMessage(NamedTuple):
    """Data on a channel."""

    channel: int
    data: bytes


def decode_message(message: bytes, protocol: str) -> ChannelMessage | None:
    """Decode a message of a client; None if it is not one."""
    if not message:
        return None
    if protocol != V4_BASE64:
        return ChannelMessage(message[0], message[1:])
    channel = message[0] - ord("0")
    if not 0 <= channel <= 9:
        return None
    try:
        return ChannelMessage(channel, base64.b64decode(message[1:], validate=True))
    except binascii.Error:
        return None


def encode_message(message: ChannelMessage, protocol: str) -> bytes:
    """Encode a message to a client."""
    if protocol != V4_BASE64:
        return bytes((message.channel,)) + message.data
    return b"%d%s" % (message.channel, base64.b64encode(message.data))


def ended_channel(message: ChannelMessage, protocol: str) -> int | None:
    """Return the channel that a message ends, or None."""
    if protocol != V5 or message.channel != CLOSE or len(message.data) != 1:
        return None
    return message.data[0]
