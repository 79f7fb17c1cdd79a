"""Quantities: text, arithmetic and the edges where upstream wraps."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import INT64_MAX, INT64_MIN, NANO, Format, Quantity
from plimsoll.errors import QuantityError

parse = Quantity.parse


@pytest.mark.parametrize(
    ("text", "canonical", "format", "nano"),
    [
        ("0", "0", "DecimalSI", 0),
        ("500m", "500m", "DecimalSI", NANO // 2),
        ("0.5", "500m", "DecimalSI", NANO // 2),
        ("1024Mi", "1Gi", "BinarySI", 2**30 * NANO),
        ("1.5Gi", "1536Mi", "BinarySI", 3 * 2**29 * NANO),
        ("1023", "1023", "DecimalSI", 1023 * NANO),
        ("0.5Ki", "512", "BinarySI", 512 * NANO),
        ("1e3", "1e3", "DecimalExponent", 1000 * NANO),
        ("1E", "1E", "DecimalSI", 10**27),
        ("12E-1", "1200e-3", "DecimalExponent", 12 * NANO // 10),
        ("100000", "100k", "DecimalSI", 10**14),
        ("-5u", "-5u", "DecimalSI", -5000),
        ("0.1n", "1n", "DecimalSI", 1),
        ("-0.1n", "-1n", "DecimalSI", -1),
        ("0.0001Ki", "102400u", "DecimalSI", 102_400_000),
        (".5", "500m", "DecimalSI", NANO // 2),
        ("1.", "1", "DecimalSI", NANO),
        (".", "0", "DecimalSI", 0),
        ("-", "0", "DecimalSI", 0),
        ("m", "0", "DecimalSI", 0),
        ("e3", "0", "DecimalExponent", 0),
        ("10Ei", "9223372036854775807", "BinarySI", INT64_MAX * NANO),
        ("-10Ei", "-9223372036854775807", "BinarySI", -INT64_MAX * NANO),
    ],
)
def test_parses(text: str, canonical: str, format: str, nano: int) -> None:
    quantity = parse(text)
    assert (quantity.canonical(), quantity.format.value, quantity.nano) == (canonical, format, nano)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "format"),
        (" 1", "format"),
        ("1 ", "format"),
        ("1.1.1", "format"),
        ("0x10", "format"),
        ("1_000", "format"),
        ("١", "format"),  # digits are ASCII digits
        ("1\n", "format"),
        ("1K", "suffix"),
        ("1i", "suffix"),
        ("1e", "suffix"),
        ("-+1", "suffix"),
        ("Ei", "numeric"),
        (".e-20", "numeric"),
    ],
)
def test_refuses(text: str, kind: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse(text)
    assert error.value.kind == kind


@pytest.mark.parametrize("text", ["1.500", "+1", "001", "1E-3", "5.5225E4", "12.490G"])
def test_remembers_its_spelling_until_arithmetic(text: str) -> None:
    assert str(parse(text)) == text
    assert str(parse(text) + parse("0")) == parse(text).canonical()
    assert str(pickle.loads(pickle.dumps(parse(text)))) == text


def test_value_saturates_at_int64() -> None:
    assert parse("1e20").value() == INT64_MAX
    assert parse("3Ei").milli() == INT64_MAX
    assert parse("-1e20").value() == INT64_MIN
    assert parse("-2048Ti").milli() == -2048 * 2**40 * 1000


def test_product_rounds_up_to_nano() -> None:
    assert parse("1u").multiply(parse("1u")) == parse("1n")
    assert parse("-1u").multiply(parse("1u")) == parse("-1n")
    assert str(parse("4Gi").multiply(parse("1.5"))) == "6Gi"


def test_huge_input_is_refused() -> None:
    for text in ("1e1001", "1e2147483647", "9" * 2000, "1e" + "9" * 15):
        with pytest.raises(QuantityError) as error:
            parse(text)
        assert error.value.kind == "numeric"
    assert parse("0e2147483647").is_zero()
    assert parse("1e-2147483648") == parse("1n")
    assert len(str(QuantityError("numeric", "9" * 5000))) < 300


def test_arithmetic_saturates() -> None:
    top = parse("1e1000")
    for _ in range(5):
        top = top.multiply(top)
    assert top == parse("1e1000")
    assert str(-top) == "-10e999"
    assert parse(str(top)) == top


def test_addition_takes_the_right_format_only_from_zero() -> None:
    assert (parse("0") + parse("1Gi")).format is Format.BINARY_SI
    assert (parse("100m") + parse("1Gi")).format is Format.DECIMAL_SI


def test_as_int64_follows_the_small_form() -> None:
    assert parse("5").as_int64() == 5
    assert parse("1k").as_int64() == 1000
    assert parse("1000m").as_int64() is None
    assert parse("1.5Gi").as_int64() is None
    assert (parse("1") + parse("1")).as_int64() == 2
    assert (parse("1") + parse("1m") - parse("1m")).as_int64() is None
    assert parse("9223372036854775807").as_int64() is None  # nineteen digits are kept as a decimal


def test_quantities_are_immutable() -> None:
    with pytest.raises(AttributeError):
        parse("1").nano = 2
    assert len({parse("1"), parse("1000m"), parse("1.0")}) == 1


# -- agreement with exact fractions

texts = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{'.' + fraction if fraction else ''}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**22).map(str),
    st.text("0123456789", max_size=14),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
    | st.integers(-30, 30).map(lambda e: f"e{e}"),
)
_POWERS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_TENS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def away(number: Fraction) -> int:
    return math.ceil(number) if number > 0 else math.floor(number)


def naive(text: str) -> Fraction:
    """Return the value of a quantity's text (naive reference)."""
    for suffix, power in _POWERS.items():
        if text.endswith(suffix):
            value = Fraction(text.removesuffix(suffix)) * power
            return max(Fraction(-INT64_MAX), min(Fraction(INT64_MAX), _to_nano(value)))
    number = text.rstrip("numkMGTPE")
    return _to_nano(Fraction(number) * Fraction(10) ** _TENS[text[len(number) :]])


def _to_nano(value: Fraction) -> Fraction:
    return Fraction(away(value * NANO), NANO)


@given(texts)
def test_parsing_agrees_with_decimal_arithmetic(text: str) -> None:
    assert Fraction(parse(text).nano, NANO) == naive(text)


@given(texts)
def test_canonical_text_reads_back(text: str) -> None:
    quantity = parse(text)
    again = parse(quantity.canonical())
    assert again == quantity
    assert again.canonical() == quantity.canonical()
    assert parse(str(quantity)) == quantity


@given(texts, texts)
def test_sums_and_order_are_exact(a: str, b: str) -> None:
    x, y = naive(a), naive(b)
    assert Fraction((parse(a) + parse(b)).nano, NANO) == x + y
    assert Fraction((parse(a) - parse(b)).nano, NANO) == x - y
    assert (parse(a) < parse(b)) == (x < y)
    assert (parse(a) <= parse(b)) == (x <= y)
    assert (parse(a) == parse(b)) == (x == y)
    assert parse(a) + parse(b) - parse(b) == parse(a)


@given(texts, st.integers(INT64_MIN, INT64_MAX))
def test_multiples_are_exact(text: str, factor: int) -> None:
    assert Fraction(parse(text).times(factor).nano, NANO) == naive(text) * factor


@given(texts, texts)
def test_products_round_away_from_zero(a: str, b: str) -> None:
    assert parse(a).multiply(parse(b)).nano == away(naive(a) * naive(b) * NANO)


@given(texts, st.integers(-12, 24))
def test_rounding_is_away_from_zero(text: str, scale: int) -> None:
    unit = Fraction(10) ** max(scale, -9)
    rounded, exact = parse(text).round_up(scale)
    expected = away(naive(text) / unit) * unit
    assert Fraction(rounded.nano, NANO) == expected
    assert exact == (expected == naive(text))


@given(texts)
def test_numbers_round_and_saturate(text: str) -> None:
    for number, unit in ((parse(text).value(), 1), (parse(text).milli(), 1000)):
        assert number == max(INT64_MIN, min(INT64_MAX, away(naive(text) * unit)))


@given(st.text(max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        quantity = parse(text)
    except QuantityError:
        return
    assert parse(quantity.canonical()) == quantity
