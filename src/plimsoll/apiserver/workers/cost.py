"""Cost estimate of a request, from its bytes alone: decides between the event loop and a worker process.

The estimate is an upper bound for hostile bodies, made before anything is decoded: counting separators takes
about a nanosecond a byte, while decoding, defaulting, validating and tracking fields take microseconds per
separator. Requests and objects of a few kilobytes, which almost all are, are not even counted.
"""

from __future__ import annotations

import re

import msgspec

from plimsoll.apiserver.handlers.negotiation import JSON, YAML, AcceptedMediaType, parse_media_type
from plimsoll.apiserver.protobuf import CONTENT_TYPE as PROTOBUF

#: Requests up to this size, with the object they change, never cost more than `MAX_INLINE_MICROSECONDS`.
SMALL_BYTES = 16 << 10
#: Larger ones always go to a worker.
LARGE_BYTES = 512 << 10
#: Longest estimated time that one request may block the event loop.
MAX_INLINE_MICROSECONDS = 75_000

#: Worst case per `,` or `:` of JSON: pods of containers without fields, and lists of names.
_MICROSECONDS_PER_SEPARATOR = 20
#: Devices of ResourceSlices: many small fields with few rules each, so that 128 full devices stay in the
#: event loop.
_MICROSECONDS_PER_DEVICE_SEPARATOR = 6
_SLICES = "resourceslices.resource.k8s.io"
#: Worst case per byte of CEL: nested macros.
_MICROSECONDS_PER_CEL_BYTE = 25
_WITH_CEL = frozenset(
    f"{plural}.resource.k8s.io" for plural in ("resourceclaims", "resourceclaimtemplates", "deviceclasses")
)
#: YAML and protobuf are decoded by Python code.
_MICROSECONDS_PER_DECODED_BYTE = 2
_JSON_PATCH = "application/json-patch+json"
#: A few copy operations, each of all before, make an object of megabytes of a small one.
_MICROSECONDS_PER_COPYING_PATCH = MAX_INLINE_MICROSECONDS + 1
#: Objects longer than this are not rendered as YAML, protobuf or a table in the event loop.
_MAX_INLINE_RENDERING_BYTES = {YAML: 16 << 10, PROTOBUF: 64 << 10, JSON: 128 << 10}

_EXPRESSION = re.compile(rb'"expression"\s*:\s*"((?:[^"\\]|\\.)*)"')


def is_expensive_write(resource: str, body: bytes, content_type: str, stored: bytes) -> bool:
    """Return whether a write belongs in a worker; `resource` is its key, `stored` its object, if any."""
    size = len(body) + len(stored)
    if size <= SMALL_BYTES and resource not in _WITH_CEL and parse_media_type(content_type) != _JSON_PATCH:
        return False
    if size > LARGE_BYTES:
        return True
    return estimate_write(resource, body, content_type, stored) > MAX_INLINE_MICROSECONDS


def estimate_write(resource: str, body: bytes, content_type: str, stored: bytes) -> int:
    """Estimate the worst-case time of a write in microseconds."""
    cost = _separator_cost(resource, body) + _separator_cost(resource, stored)
    if resource in _WITH_CEL:
        cost += _MICROSECONDS_PER_CEL_BYTE * (_cel_bytes(body, content_type) + _cel_bytes(stored, JSON))
    if parse_media_type(content_type) == _JSON_PATCH and (b'"copy"' in body or b"\\u" in body):
        cost += _MICROSECONDS_PER_COPYING_PATCH
    if not _is_json(body, content_type):
        cost += _MICROSECONDS_PER_DECODED_BYTE * len(body)
    return cost


def is_expensive_rendering(raw: bytes, accepted: AcceptedMediaType) -> bool:
    """Return whether rendering one object in the accepted media type belongs in a worker."""
    if accepted.media == JSON and not accepted.table and not accepted.partial:
        return False
    return len(raw) > _MAX_INLINE_RENDERING_BYTES[accepted.media]


def _separator_cost(resource: str, text: bytes) -> int:
    devices = resource == _SLICES and b'"finalizers"' not in text and b"\\u" not in text
    rate = _MICROSECONDS_PER_DEVICE_SEPARATOR if devices else _MICROSECONDS_PER_SEPARATOR
    return rate * (text.count(b",") + text.count(b":"))


def _is_json(body: bytes, content_type: str) -> bool:
    """Return whether a body is read by the fast decoder, as JSON is (also as YAML)."""
    media = parse_media_type(content_type)
    if media in ("", JSON) or (media.startswith("application/") and media.endswith("+json")):
        return True
    if not media.endswith("yaml") or body[:1] not in (b"{", b"["):
        return False
    try:
        msgspec.json.decode(body, type=msgspec.Raw)  # checks the syntax without decoding
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _cel_bytes(text: bytes, content_type: str) -> int:
    """Return the bytes of CEL expressions in a body; all of it where they cannot be distinguished."""
    if not _is_json(text, content_type) or b"\\u" in text:  # field names may contain escapes
        return len(text)
    return sum(end - start for start, end in (found.span(1) for found in _EXPRESSION.finditer(text)))
