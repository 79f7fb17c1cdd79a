"""Text as Go writes it: JSON (encoding/json) and quoted strings (strconv.Quote).

For values that clients and a kubelet compare as text, and for error messages of Kubernetes.
"""

from __future__ import annotations

import re
from typing import Any

from plimsoll.api.codec import encode
from plimsoll.api.quantity import Number

_JSON_SPECIAL = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_JSON_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_SHORT = _JSON_SHORT | {"\a": "\\a", "\v": "\\v"}


def quote_go(text: str) -> str:
    """Quote a string as Go's %q does: `"a\\n"`."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quote_json(text: str) -> str:
    """Encode a JSON string as encoding/json does, with `<`, `>` and `&` escaped."""
    return f'"{_JSON_SPECIAL.sub(_escape_json, text)}"'


def _escape_json(match: re.Match[str]) -> str:
    char = match[0]
    code = 0xFFFD if "\ud800" <= char <= "\udfff" else ord(char)
    return _JSON_SHORT.get(char) or f"\\u{code:04x}"


def encode_go(value: Any) -> str:
    """Encode a JSON value as encoding/json does: sorted keys, no whitespace."""
    if value.__class__ is str:
        return quote_json(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote_json(key)}:{encode_go(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(encode_go, value)) + "]"
    return value.text if isinstance(value, Number) else encode(value).decode()
