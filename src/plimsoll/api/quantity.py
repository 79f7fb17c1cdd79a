"""Exact Kubernetes quantities: `500m`, `1.5Gi`, `2e3`.

Parsing, canonical text, comparison and arithmetic. A quantity is a whole number of nano-units, so no
operation rounds silently, nothing is a float and nothing wraps. Implements docs/spec/accounting.md,
"Quantity": the text forms, the remembered spelling, and upstream's small-integer representation (`scale`),
which CEL can observe through `isInteger()`.

Differences from upstream:

- DIFF: conversions to int64 saturate and never wrap (test_value_saturates_at_int64).
- DIFF: products finer than 1n round up, away from zero, to 1n (test_product_rounds_up_to_nano).
- DIFF: canonical text always reads back as the same value: beyond the largest suffix the digits grow, and
  binary amounts past int64 print without suffix (test_canonical_text_reads_back).
- DIFF: magnitudes past 1e1000 and texts past 1,024 characters are refused (test_huge_input_is_refused);
  results of arithmetic saturate there (test_arithmetic_saturates).
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from plimsoll.errors import QuantityError

NANO = 10**9
_MILLI = 10**6  # nano-units in a milli-unit
MILLI = 10**6  #: a thousandth, in nano-units
INT32_MAX = (1 << 31) - 1
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
_MAX_TEXT = 1024
_MAX_EXPONENT = 1000
_MAX_NANO = 10 ** (_MAX_EXPONENT + 9)
_MAX_BITS = _MAX_NANO.bit_length()
_SMALL = INT64_MAX * _MILLI  # nothing up to here saturates, in units or in milli-units


class Format(Enum):
    """Notation of a quantity, which determines how it is formatted."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"
    UNSET = ""


_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {exponent // 10: suffix for suffix, exponent in _BINARY.items()} | {0: ""}

# Sign, whole digits, fraction, and anything that may be a suffix; as upstream, its letters are checked later.
_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]+)", re.ASCII)

# Blanks that can stand raw inside a JSON string; tabs and line ends can only get there as escapes, which
# upstream does not decode and therefore refuses.
_JSON_BLANKS = " \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" + (
    "\u2028\u2029\u202f\u205f\u3000"
)


class Number:
    """A JSON number with a fraction or exponent, kept as it was written so that no digit is lost."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Number) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


def divide_up(amount: int, unit: int) -> int:
    """Divide by a positive unit, rounding away from zero."""
    return -(-amount // unit) if amount >= 0 else amount // unit


def _saturate(number: int) -> int:
    return INT64_MAX if number > INT64_MAX else INT64_MIN if number < INT64_MIN else number


class Quantity:
    """An immutable exact amount, compared and hashed by value and formatted as it was written."""

    __slots__ = ("_text", "format", "nano", "scale")

    nano: int  #: the value in units of 1e-9
    format: Format
    _text: str | None
    scale: int | None  #: decimal scale of upstream's int64 form; None where upstream keeps a big decimal

    def __init__(
        self, nano: int, format: Format = Format.DECIMAL_SI, scale: int | None = None, text: str | None = None
    ) -> None:
        if nano.bit_length() >= _MAX_BITS and abs(nano) > _MAX_NANO:  # keeps every result printable
            nano = _MAX_NANO if nano > 0 else -_MAX_NANO
            scale = text = None
        put = object.__setattr__
        put(self, "nano", nano)
        put(self, "format", format)
        put(self, "scale", scale)
        put(self, "_text", text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Quantity is immutable; {name} cannot be set")

    def __reduce__(self) -> tuple[object, ...]:
        return (Quantity, (self.nano, self.format, self.scale, self._text))

    # -- constructors

    @staticmethod
    @lru_cache(maxsize=65536)
    def parse(text: str) -> Quantity:
        """Parse a quantity; raises QuantityError with kind format, suffix or numeric."""
        return _parse(text)

    @staticmethod
    def of(value: int, format: Format = Format.DECIMAL_SI, scale: int = 0) -> Quantity:
        """Return `value` times ten to the `scale`; scale -3 means milli-units."""
        if scale < -9:
            nano, scale = divide_up(value, 10 ** min(-9 - scale, 64)), -9
        else:
            nano = value * 10 ** min(scale + 9, _MAX_EXPONENT + 9)
        return Quantity(nano, format, _fit(nano, scale))

    @staticmethod
    def from_json(value: object) -> Quantity:
        """Convert a decoded JSON value: a string, a number or null (zero without a format)."""
        if isinstance(value, str):
            return Quantity.parse(value.strip(_JSON_BLANKS))
        if value is None:
            return Quantity(0, Format.UNSET, 0)
        if isinstance(value, (int, float, Number)) and not isinstance(value, bool):
            return Quantity.parse(repr(value))
        raise QuantityError("format", repr(value))

    # -- text

    def __str__(self) -> str:
        if self._text is None:
            object.__setattr__(self, "_text", self.canonical())
        return self._text  # type: ignore[return-value]

    def canonical(self) -> str:
        """Return the canonical text: no fraction, the largest suffix that preserves the value."""
        return _canonical(self.nano, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    # -- conversion to numbers

    def value(self) -> int:
        """Return the value in units, rounded away from zero, saturated to int64."""
        nano = self.nano
        if 0 <= nano <= _SMALL:  # most amounts; written out, because every pod and node is converted
            return -(-nano // NANO)
        return _saturate(divide_up(nano, NANO))

    def milli(self) -> int:
        """Return the value in milli-units, rounded away from zero, saturated to int64."""
        nano = self.nano
        if 0 <= nano <= _SMALL:
            return -(-nano // _MILLI)
        return _saturate(divide_up(nano, _MILLI))

    def scaled_value(self, scale: int) -> int:
        """Return the value in units of ten to the `scale`, rounded away from zero, saturated to int64."""
        if scale < -9:
            return _saturate(self.nano * 10 ** min(-9 - scale, _MAX_EXPONENT))
        return _saturate(divide_up(self.nano, 10 ** min(scale + 9, 2 * _MAX_EXPONENT)))

    def as_int64(self) -> int | None:
        """Return the value if upstream stores it as an int64, else None (also for 1000m)."""
        if self.scale is None or self.scale < 0:
            return None
        value = self.nano // NANO
        return value if INT64_MIN <= value <= INT64_MAX else None

    def sign(self) -> int:
        return (self.nano > 0) - (self.nano < 0)

    def is_zero(self) -> bool:
        return self.nano == 0

    # -- comparison

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano

    def __bool__(self) -> bool:
        return self.nano != 0

    # -- arithmetic: exact; a zero left side takes the right side's format

    def __add__(self, other: Quantity) -> Quantity:
        nano = self.nano + other.nano
        format = self.format if self.nano else other.format
        return Quantity(nano, format, self._common_scale(other, nano))

    def __sub__(self, other: Quantity) -> Quantity:
        nano = self.nano - other.nano
        format = self.format if self.nano else other.format
        return Quantity(nano, format, self._common_scale(other, nano))

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format, self.scale)

    def times(self, factor: int) -> Quantity:
        """Multiply by an integer."""
        nano = self.nano * factor
        scale = self.scale if factor or not self.nano else 0
        return Quantity(nano, self.format, None if scale is None else _fit_product(nano, scale))

    def multiply(self, other: Quantity) -> Quantity:
        """Multiply two quantities, rounding up to 1n; the left operand's format is kept."""
        return Quantity(divide_up(self.nano * other.nano, NANO), self.format)

    def round_up(self, scale: int) -> tuple[Quantity, bool]:
        """Round away from zero to a multiple of ten to the `scale`; also return whether it was exact."""
        if (self.scale is not None and self.scale >= scale) or scale <= -9:
            return (self if self.scale is not None else Quantity(self.nano, self.format)), True
        unit = 10 ** min(scale + 9, 2 * _MAX_EXPONENT)
        nano = divide_up(self.nano, unit) * unit
        rounded = Quantity(nano, self.format, None if self.scale is None else _fit(nano, scale))
        return rounded, nano == self.nano

    def _common_scale(self, other: Quantity, nano: int) -> int | None:
        if self.scale is None or other.scale is None:
            return None
        if not other.nano:
            return self.scale
        if not self.nano:
            return other.scale
        return _fit(nano, min(self.scale, other.scale))


ZERO = Quantity(0, Format.DECIMAL_SI, 0)


def format_bytes(size: int) -> str:
    """Format a number of bytes in the largest binary unit without a fraction: `512Mi`."""
    return Quantity.of(size, Format.BINARY_SI).canonical()


def _fit(nano: int, scale: int) -> int | None:
    """Return the scale, if the value fits an int64 at it."""
    if scale <= -9:
        unscaled = nano
    else:
        unscaled = nano // 10 ** min(scale + 9, 2 * _MAX_EXPONENT)
    return scale if INT64_MIN <= unscaled <= INT64_MAX else None


def _fit_product(nano: int, scale: int) -> int | None:
    """Return the scale of a product; upstream keeps it small only if it also fits at scale zero exactly."""
    if scale > 0:
        return scale if _fit(nano, 0) is not None else None
    if scale < 0 and nano % NANO:
        return None
    return _fit(nano, scale)


def _parse(text: str) -> Quantity:
    if len(text) > _MAX_TEXT:
        raise QuantityError("numeric", text)
    match = _SHAPE.fullmatch(text)
    if match is None or not text:
        raise QuantityError("format", text)
    sign, whole, fraction, suffix = match.groups("")
    format, exponent = _read_suffix(text, suffix)
    digits = whole.lstrip("0") or "0"
    number = int(digits + fraction) * (-1 if sign == "-" else 1)

    if format is Format.BINARY_SI:
        fast = not fraction and 15 - len(digits) - exponent * 3 // 10 - 1 >= 0
        if fast:
            keeps = abs(number) & 0x07 != 0
            return Quantity((number << exponent) * NANO, format, 0, text if keeps else None)
    else:
        scale = exponent - len(fraction)
        fast = len(digits) + len(fraction) <= 18 and scale >= -9
        if fast and (number == 0 or scale <= 18):
            shifted = digits + fraction
            keeps = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
            nano = number * 10 ** (scale + 9) if number else 0
            return Quantity(nano, format, scale, text if keeps or text == "0" else None)

    if not whole and not fraction:  # upstream's big-decimal reader wants at least one digit
        raise QuantityError("numeric", text)
    if format is Format.BINARY_SI:
        limit = INT64_MAX * NANO
        nano = divide_up((number << exponent) * NANO, 10 ** len(fraction))
        nano = max(-limit, min(limit, nano))
        if 0 < abs(nano) < NANO:
            format = Format.DECIMAL_SI
        return Quantity(nano, format)
    return _parse_big(text, number, exponent - len(fraction), format, fast)


def _parse_big(text: str, number: int, scale: int, format: Format, fast: bool) -> Quantity:
    """Parse a decimal whose scale or digits leave the small form; the exponent is checked first."""
    if number == 0:
        return Quantity(0, format, None)
    if scale < -2 * _MAX_TEXT:  # far below 1n whatever the digits: rounds up to 1n
        return Quantity(1 if number > 0 else -1, format)
    if scale < -9:
        return Quantity(divide_up(number, 10 ** (-9 - scale)), format)
    shifted = str(abs(number))
    if scale + len(shifted) > _MAX_EXPONENT + 1 or abs(number) * 10 ** (scale + 9) > _MAX_NANO:
        raise QuantityError("numeric", text)
    keeps = fast and scale % 3 == 0 and not shifted.endswith("000")
    return Quantity(number * 10 ** (scale + 9), format, scale if fast else None, text if keeps else None)


def _read_suffix(text: str, suffix: str) -> tuple[Format, int]:
    if suffix in _DECIMAL:
        return Format.DECIMAL_SI, _DECIMAL[suffix]
    if suffix in _BINARY:
        return Format.BINARY_SI, _BINARY[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None or not INT64_MIN <= int(match[1]) <= INT64_MAX:
        raise QuantityError("suffix", text)
    return Format.DECIMAL_EXPONENT, int(match[1])


def _canonical(nano: int, format: Format) -> str:
    if nano == 0:
        return "0"
    if format is Format.BINARY_SI and abs(nano) >= 1024 * NANO and nano % NANO == 0:
        value = nano // NANO
        if abs(value) > INT64_MAX:  # with a binary suffix it would be cut to int64 when read back
            return str(value)
        power = min(6, ((value & -value).bit_length() - 1) // 10)
        return f"{value >> (10 * power)}{_BINARY_SUFFIX[power]}"
    digits = str(abs(nano))
    zeros = len(digits) - len(digits.rstrip("0"))
    exponent = zeros // 3 * 3 - 9
    exponential = format is Format.DECIMAL_EXPONENT or format is Format.UNSET
    if not exponential:
        exponent = min(exponent, 18)
    digits = digits[: len(digits) - (exponent + 9)]
    sign = "-" if nano < 0 else ""
    if exponential:
        return f"{sign}{digits}{f'e{exponent}' if exponent else ''}"
    return f"{sign}{digits}{_DECIMAL_SUFFIX[exponent]}"
