"""Protobuf wire format: tags, varints, length-delimited fields.

Truncated or malformed bytes raise DecodeError; reading never goes past the end and never copies more than the
message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from plimsoll.errors import DecodeError

#: A value on the wire: a varint, or the bytes of a length-delimited or fixed-size field.
Value: TypeAlias = int | bytes

_VARINT, _FIXED64, _CHUNK, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


def read_fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield every field of a message: its number, and an int (a varint) or bytes."""
    position, end = 0, len(data)
    while position < end:
        tag = data[position]
        position += 1
        if tag > 0x7F:
            tag, position = _read_varint(data, position - 1)
        number, kind = tag >> 3, tag & 7
        if not number or number > 0x1FFFFFFF:
            raise DecodeError(f"a protobuf field with number {number}")
        value: Value
        if kind == _CHUNK:
            length, position = _read_varint(data, position)
            value = data[position : position + length]
            if len(value) != length:
                raise DecodeError("the protobuf ends inside a field")
            position += length
        elif kind == _VARINT:
            value, position = _read_varint(data, position)
        elif kind in _SIZES:
            value = data[position : position + _SIZES[kind]]
            if len(value) != _SIZES[kind]:
                raise DecodeError("the protobuf ends inside a field")
            position += _SIZES[kind]
        else:
            raise DecodeError(f"a protobuf field of the unknown wire type {kind}")
        yield number, value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
    raise DecodeError("a protobuf number that does not end")


def read_varints(data: bytes) -> Iterator[int]:
    """Return the numbers of a packed list."""
    position = 0
    while position < len(data):
        value, position = _read_varint(data, position)
        yield value


def chunk(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    raise DecodeError("a protobuf number where a text or a message is expected")


def text(value: Value) -> str:
    """Decode a string; invalid UTF-8 becomes the replacement character, as in Go's JSON."""
    return chunk(value).decode("utf-8", "replace")


def number(value: Value) -> int:
    if isinstance(value, int):
        return value
    raise DecodeError("a protobuf text or message where a number is expected")


def signed(value: int, bits: int) -> int:
    """Convert a varint to a two's complement number of this many bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def varint(value: int) -> bytes:
    """Encode a number as a varint; negative ones take ten bytes."""
    value &= 0xFFFFFFFFFFFFFFFF
    if value < 0x80:
        return _ONE[value]
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


_ONE = [bytes((value,)) for value in range(0x80)]


def put(number: int, data: bytes) -> bytes:
    """Encode a length-delimited field."""
    return varint(number << 3 | _CHUNK) + varint(len(data)) + data


def put_length(number: int, length: int) -> bytes:
    """Encode the start of a length-delimited field of this many bytes."""
    return varint(number << 3 | _CHUNK) + varint(length)


def put_number(number: int, value: int) -> bytes:
    """Encode a varint field."""
    return varint(number << 3 | _VARINT) + varint(value)


def put_fixed64(number: int, data: bytes) -> bytes:
    """Encode an eight-byte field."""
    return varint(number << 3 | _FIXED64) + data
