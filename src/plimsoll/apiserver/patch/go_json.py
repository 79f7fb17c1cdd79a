"""JSON as Go encodes it: sorted keys, no whitespace, `<`, `>` and `&` escaped.

Used for values in path elements and for the last-applied annotation, which clients compare as text.
"""

from __future__ import annotations

import re
from typing import Any

from plimsoll.api.codec import encode
from plimsoll.api.quantity import Number

_SPECIAL = re.compile(r'[\x00-\x1f"\\<>&\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def quote(text: str) -> str:
    """Encode a JSON string."""
    if not _SPECIAL.search(text):
        return f'"{text}"'
    return '"' + _SPECIAL.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if "\ud800" <= char <= "\udfff":
        return "\\ufffd"
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


def encode_go(value: Any) -> str:
    """Encode a JSON value."""
    if value.__class__ is str:
        return quote(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote(key)}:{encode_go(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(encode_go, value)) + "]"
    if isinstance(value, Number):
        return value.text
    return encode(value).decode()
