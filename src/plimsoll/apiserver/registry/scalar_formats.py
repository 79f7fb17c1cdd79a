"""String formats of quantities, timestamps and base64, with the error messages of Go's decoders."""

from __future__ import annotations

import binascii
import json
import re
from functools import lru_cache
from typing import Any

from plimsoll.api.quantity import Quantity
from plimsoll.api.timestamps import normalize_micro_time, normalize_time
from plimsoll.errors import DecodeError, QuantityError

_SHOWN = 64

# -- quantities

_QUANTITY_TEXTS = {
    "format": "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    "numeric": "unable to parse numeric part of quantity",
    "suffix": "unable to parse quantity's suffix",
}


def is_quantity(value: Any) -> bool:
    try:
        Quantity.from_json(value)
    except QuantityError:
        return False
    return True


def quantity_error(value: Any) -> str:
    """Return the message for a value that is not a quantity."""
    try:
        Quantity.from_json(value)
    except QuantityError as error:
        return _QUANTITY_TEXTS[error.kind]
    return ""


# -- bytes


def is_base64(text: str) -> bool:
    return not base64_error(text)


def base64_error(value: str) -> str:
    """Return the message for a string that is not base64, or "". Line breaks are permitted."""
    text = value.replace("\n", "").replace("\r", "")
    bad = re.search(r"[^A-Za-z0-9+/=]", text)
    position = bad.start() if bad else len(text)
    try:
        if bad is None:
            binascii.a2b_base64(text.encode(), strict_mode=True)
            return ""
    except binascii.Error:
        position = text.find("=") if "=" in text else len(text) // 4 * 4
    return f"illegal base64 data at input byte {position}"


# -- times

_TIME_PARTS = (
    (re.compile(r"[0-9]{4}"), "2006"),
    (re.compile(r"-"), "-"),
    (re.compile(r"[0-9]{2}"), "01"),
    (re.compile(r"-"), "-"),
    (re.compile(r"[0-9]{2}"), "02"),
    (re.compile(r"T"), "T"),
    (re.compile(r"[0-9]{1,2}"), "15"),
    (re.compile(r":"), ":"),
    (re.compile(r"[0-9]{2}"), "04"),
    (re.compile(r":"), ":"),
    (re.compile(r"[0-9]{2}"), "05"),
)
_FRACTION = (re.compile(r"[.,][0-9]+"), "")
_MICROS = (re.compile(r"[.,][0-9]{6}"), ".000000")
_ZONE = (re.compile(r"Z|[+-][0-9]{2}:[0-9]{2}"), "Z07:00")


@lru_cache(maxsize=1024)
def is_time(text: str, *, micro: bool) -> bool:
    try:
        if micro:
            normalize_micro_time(text, "")
        else:
            normalize_time(text, "")
    except DecodeError:
        return False
    return True


def time_error(text: str, *, micro: bool) -> str:
    """Return Go's message for an invalid timestamp: the part where parsing stopped, and the expected
    layout.
    """
    layout = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
    shown = json.dumps(text[:_SHOWN], ensure_ascii=False)
    rest = text
    for pattern, wanted in (*_TIME_PARTS, _MICROS if micro else _FRACTION, _ZONE):
        match = pattern.match(rest)
        if match is None and wanted:
            stopped = f"cannot parse {json.dumps(rest[:_SHOWN])} as {json.dumps(wanted)}"
            return f"parsing time {shown} as {json.dumps(layout)}: {stopped}"
        rest = rest[match.end() :] if match else rest
    if rest:
        return f"parsing time {shown}: extra text: {json.dumps(rest[:_SHOWN])}"
    return f"parsing time {shown}: day out of range"
