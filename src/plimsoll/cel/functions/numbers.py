"""Number parsing and formatting as in Go, for CEL's conversions and `format`."""

from __future__ import annotations

import math
import re

from plimsoll.cel.values import INT_MAX, INT_MIN, UINT_MAX

_INT = re.compile(r"[+-]?[0-9]+")
_D = "[0-9]+(?:_[0-9]+)*"
_DECIMAL = re.compile(rf"[+-]?(?:{_D}\.?(?:{_D})?|\.{_D})(?:[eE][+-]?{_D})?")
_H = "[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
_HEX = re.compile(rf"[+-]?0[xX](?:_?{_H}\.?(?:{_H})?|\.{_H})[pP][+-]?{_D}")
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def parse_int(text: str) -> int | None:
    """Parse a decimal int64 with an optional sign."""
    if not _INT.fullmatch(text):
        return None
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 19:
        return None
    value = int(digits or "0") * (-1 if text[0] == "-" else 1)
    return value if INT_MIN <= value <= INT_MAX else None


def parse_uint(text: str) -> int | None:
    """Parse a decimal uint64 without a sign."""
    if not text.isascii() or not text.isdigit() or len(text.lstrip("0")) > 20:
        return None
    value = int(text.lstrip("0") or "0")
    return value if value <= UINT_MAX else None


def parse_bool(text: str) -> bool | None:
    return _BOOLS.get(text)


def parse_double(text: str) -> float | None:
    """Parse a double in decimal or hexadecimal notation; None also if it is too large."""
    if _DECIMAL.fullmatch(text):
        value = float(text)
        return None if math.isinf(value) else value
    if _INFINITE.fullmatch(text):
        return float(text)
    if text.lower() == "nan":
        return math.nan
    if _HEX.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", ""))
        except (OverflowError, ValueError):
            return None
    return None


def shortest(value: float, exponents: bool = True) -> str:
    """Return the shortest text that parses as the value: as `%g`, or positional if not `exponents`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, point = _digits(value)
    exponent = point - 1
    if exponents and (exponent < -4 or exponent >= 6):
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _digits(value: float) -> tuple[str, str, int]:
    """Return the sign, the significant digits and the position of the decimal point."""
    text = repr(value)
    sign, text = ("-", text[1:]) if text[0] == "-" else ("", text)
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return (sign, digits, point) if digits else (sign, "0", 1)
