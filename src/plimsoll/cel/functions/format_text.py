"""`string.format`: the `%s %d %f %e %b %x %X %o` clauses.

Doubles are formatted for US English, upstream's default locale: `%f` groups thousands with commas, `%e`
writes `1.5 x 10^3` with a multiplication sign and superscript digits, always with six decimals because
upstream uses the precision as a width. The text of every clause is charged before the result is joined.
"""

from __future__ import annotations

import math
import re

from plimsoll.api.go_text import quote_go
from plimsoll.cel.comparison import Meter
from plimsoll.cel.functions import numbers, time
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import DomainMap, Duration, Timestamp, TypeValue, Value, from_key, type_name
from plimsoll.errors import CelRuntimeError

_CLAUSE = re.compile(r"(?:\.([0-9]*))?(.)", re.DOTALL)
_DEFAULT_PRECISION = 6
_MAX_PRECISION = 1_000_000
_SUPERSCRIPTS = str.maketrans(
    "0123456789-", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b"
)


def format_string(meter: Meter, text: str, args: list[Value]) -> str:
    """Replace the clauses of a format string with the arguments."""
    meter.spend(len(text) >> 3)
    parts: list[str] = []
    at = index = 0
    while (percent := text.find("%", at)) >= 0:
        parts.append(text[at:percent])
        if text[percent + 1 : percent + 2] == "%":
            parts.append("%")
            at = percent + 2
            continue
        if index >= len(args):
            raise CelRuntimeError(f"index {index} out of range")
        clause = _CLAUSE.match(text, percent + 1)
        if clause is None:
            raise CelRuntimeError("unexpected end of format string")
        part = _fill(meter, clause[2], _precision(clause[1]), args[index])
        meter.spend(len(part) >> 3)
        parts.append(part)
        index += 1
        at = clause.end()
    parts.append(text[at:])
    return "".join(parts)


def _precision(digits: str | None) -> int | None:
    if digits is None:
        return None
    if not digits or len(digits) > 18:
        raise CelRuntimeError("could not parse formatting clause: bad precision")
    return int(digits)


def _fill(meter: Meter, verb: str, precision: int | None, value: Value) -> str:
    if verb == "s":
        return plain(meter, value)
    if verb == "d":
        return str(_as_int(value, "decimal"))
    if verb == "f":
        return _fixed(_double(value, "fixed-point"), precision)
    if verb == "e":
        return _scientific(_double(value, "scientific"), precision)
    if verb == "b":
        if type(value) is bool:
            return "1" if value else "0"
        return format(_as_int(value, "binary"), "b")
    if verb == "o":
        return format(_as_int(value, "octal"), "o")
    if verb in ("x", "X"):
        return _hexadecimal(value, verb)
    raise CelRuntimeError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def plain(meter: Meter, value: Value) -> str:
    """Return the `%s` text of a value."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is list:
        return _list(meter, value)
    if kind is dict or kind is DomainMap:
        return _map(meter, value)
    text = _scalar(value)
    if text is None:
        raise CelRuntimeError(f"string clause cannot be used on {type_name(value)}")
    return text


def _scalar(value: Value) -> str | None:
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is Uint:
        return str(value.value)
    if kind is float:
        return numbers.shortest(value)
    if value is None:
        return "null"
    if kind is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise CelRuntimeError("could not convert argument to string") from None
    if kind is Timestamp:
        return time.format_timestamp(value)
    if kind is Duration:
        return time.format_duration(value)
    if kind is TypeValue:
        return str(value.name)
    return None


def _member(meter: Meter, value: Value) -> str:
    """Format a value inside a list or map as a CEL literal."""
    meter.spend(8)
    kind = type(value)
    if kind is str:
        return quote_go(value)
    if kind is bytes:
        return "b" + quote_go(_scalar(value) or "")
    if kind is float:
        if math.isfinite(value):
            return f"{value:.6f}"
        return '"NaN"' if value != value else '"+Inf"' if value > 0 else '"-Inf"'
    if kind is Timestamp:
        return f"timestamp({quote_go(time.format_timestamp(value))})"
    if kind is Duration:
        return f"duration({quote_go(time.format_duration(value))})"
    if kind is list:
        return _list(meter, value)
    if kind is dict or kind is DomainMap:
        return _map(meter, value)
    text = _scalar(value)
    if text is None:
        raise CelRuntimeError(f"no formatting function for {type_name(value)}")
    return text


def _list(meter: Meter, items: list[Value]) -> str:
    parts = []
    for item in items:
        part = _member(meter, item)
        meter.spend(len(part) >> 3)
        parts.append(part)
    return "[" + ", ".join(parts) + "]"


def _map(meter: Meter, entries: dict[Value, Value]) -> str:
    parts = []
    for kept, value in entries.items():
        key = from_key(kept)
        if type(key) not in (str, bool, int, Uint):
            raise CelRuntimeError(f"no formatting function for map key of type {type_name(key)}")
        part = (_member(meter, key), _member(meter, value))
        meter.spend((len(part[0]) + len(part[1])) >> 3)
        parts.append(part)
    parts.sort(key=lambda part: part[0])
    return "{" + ", ".join(f"{key}:{value}" for key, value in parts) + "}"


def _as_int(value: Value, clause: str) -> int:
    if type(value) is int:
        return int(value)
    if type(value) is Uint:
        return int(value.value)
    raise CelRuntimeError(f"{clause} clause can only be used on integers, was given {type_name(value)}")


def _double(value: Value, clause: str) -> float:
    if type(value) is float:
        return float(value)
    if value in ("NaN", "Infinity", "-Infinity") and type(value) is str:
        return float(value)
    raise CelRuntimeError(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _hexadecimal(value: Value, verb: str) -> str:
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        return data.hex().upper() if verb == "X" else data.hex()
    if type(value) is int or type(value) is Uint:
        return format(_as_int(value, "hex"), verb)
    raise CelRuntimeError(f"hex clause cannot be used on {type_name(value)}")


def _format_special(value: float) -> str | None:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "\u221e" if value > 0 else "-\u221e"
    return None


def _fixed(value: float, precision: int | None) -> str:
    precision = _DEFAULT_PRECISION if precision is None else precision
    if precision > _MAX_PRECISION:
        raise CelRuntimeError("precision is too large")
    return _format_special(value) or f"{value:,.{precision}f}"


def _scientific(value: float, width: int | None) -> str:
    width = _DEFAULT_PRECISION if width is None else width
    if width > _MAX_PRECISION:
        raise CelRuntimeError("precision is too large")
    text = _format_special(value)
    if text is None:
        mantissa, _, exponent = f"{value:.{_DEFAULT_PRECISION}e}".partition("e")
        power = exponent.lstrip("+").translate(_SUPERSCRIPTS)
        text = f"{mantissa}\u202f\u00d7\u202f10{power}"
    return text.rjust(width)
