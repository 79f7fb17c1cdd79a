"""Suite `quantity`: parsing, text and arithmetic of quantities.

Where a row carries `quirks`, upstream's numbers are accidents; there our documented outcome is checked: the
`ideal_*` number saturated to int64, the exact value rounded up to whole nano-units, and a canonical text that
reads back as the same value.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from plimsoll.api import codec
from plimsoll.api.quantity import INT64_MAX, INT64_MIN, Format, Quantity
from plimsoll.errors import DecodeError, QuantityError


def check(row: dict[str, Any]) -> str | None:
    op, given, want = row["op"], row["in"], row["want"]
    if op == "parse" and "error_kind" in want:
        return _check_refused(given["s"], want["error_kind"])
    if op == "json":
        return _check_json(given["json"], want)
    if op == "cmp":
        return _check_order(Quantity.parse(given["a"]), Quantity.parse(given["b"]), want)
    if op == "chain":
        return _check_chain(given, want)
    if op == "scaled_value":
        return _compare_number(
            "scaled_value", Quantity.parse(given["a"]).scaled_value(given["scale"]), want, "scaled_value"
        )
    if op == "round_up":
        rounded, exact = Quantity.parse(given["a"]).round_up(given["scale"])
        return _compare(rounded, want) or _differ("returned", exact, want["returned"])
    if op == "mul":
        return _compare(Quantity.parse(given["a"]).times(given["by"]), want)
    return _compare(_make(op, given), want)


def _make(op: str, given: dict[str, Any]) -> Quantity:
    if op == "parse":
        return Quantity.parse(given["s"])
    if op == "add":
        return Quantity.parse(given["a"]) + Quantity.parse(given["b"])
    if op == "sub":
        return Quantity.parse(given["a"]) - Quantity.parse(given["b"])
    if op == "neg":
        return -Quantity.parse(given["a"])
    if op == "dra_mul":
        return Quantity.parse(given["consumed"]).multiply(Quantity.parse(given["multiplier"]))
    if op == "new":
        scale = {"quantity": 0, "milli": -3}.get(given["ctor"], given.get("scale", 0))
        return Quantity.of(given["v"], Format(given["format"]), scale)
    raise ValueError(f"unknown op {op}")


def _check_refused(text: str, kind: str) -> str | None:
    try:
        return f"took {text!r} as {Quantity.parse(text)!r}, wanted error {kind}"
    except QuantityError as error:
        return _differ("error kind", error.kind, kind)


def _check_json(document: str, want: dict[str, Any]) -> str | None:
    try:
        quantity = codec.decode('{"value":' + document + "}", dict[str, Quantity])["value"]
    except (DecodeError, QuantityError) as error:
        return None if want.get("error") else f"refused {document}: {error}"
    if want.get("error"):
        return f"took {document} as {quantity!r}, wanted an error"
    return _compare(quantity, {**want, "string": want["json"].strip('"')})


def _check_order(a: Quantity, b: Quantity, want: dict[str, Any]) -> str | None:
    return _differ("cmp", (a > b) - (a < b), want["cmp"]) or _differ("equal", a == b, want["equal"])


def _check_chain(given: dict[str, Any], want: dict[str, Any]) -> str | None:
    """Check several operations in a row.

    Once a product was finer than 1n upstream carries the finer digits along and we do not: from there on the
    chain is held to exact fractions with our rounding rule instead of upstream's digits.
    """
    quantity, ours = Quantity.parse(given["start"]), False
    model = Fraction(quantity.nano)
    for (step, *arguments), wanted in zip(given["steps"], want["steps"], strict=True):
        quantity, model = _take_step(step, arguments, quantity, model)
        ours = ours or Fraction(wanted["exact"]) * 10**9 % 1 != 0
        mismatch = _differ("exact", quantity.nano, model)
        if not ours:
            # Quirks are named once for the whole chain.
            mismatch = mismatch or _compare(quantity, {**wanted, "quirks": want["final"].get("quirks", [])})
        if mismatch:
            return f"after {step} {arguments}: {mismatch}"
    return None if ours else _compare(quantity, want["final"])


def _take_step(
    step: str, arguments: list[Any], quantity: Quantity, model: Fraction
) -> tuple[Quantity, Fraction]:
    if step == "neg":
        return -quantity, -model
    if step == "mul":
        return quantity.times(arguments[0]), model * arguments[0]
    if step == "round_up":
        unit = Fraction(10) ** (arguments[0] + 9)
        return quantity.round_up(arguments[0])[0], model if unit < 1 else _away(model / unit) * unit
    other = Quantity.parse(arguments[0])
    if step == "add":
        return quantity + other, model + other.nano
    if step == "sub":
        return quantity - other, model - other.nano
    if step == "dra_mul":
        return quantity.multiply(other), Fraction(_away(model * other.nano / 10**9))
    raise ValueError(f"unknown step {step}")


def _away(number: Fraction) -> int:
    """Round away from zero."""
    return math.ceil(number) if number > 0 else math.floor(number)


def _compare(quantity: Quantity, want: dict[str, Any]) -> str | None:
    quirks = want.get("quirks", [])
    exact = _nanos(want["exact"])
    mismatch = _differ("exact", quantity.nano, exact)
    mismatch = mismatch or _differ("format", quantity.format.value, want["format"])
    if "canonical_loses_value" in quirks:
        again = Quantity.parse(quantity.canonical())
        return mismatch or _differ("text reads back", again.nano, quantity.nano)
    mismatch = mismatch or _differ("canonical", quantity.canonical(), want["canonical"])
    if "string" in want:
        mismatch = mismatch or _differ("string", str(quantity), want["string"])
    for key, number in (("value", quantity.value), ("milli", quantity.milli), ("sign", quantity.sign)):
        if key in want:
            mismatch = mismatch or _compare_number(key, number(), want, key)
    if "is_zero" in want:
        mismatch = mismatch or _differ("is_zero", quantity.is_zero(), want["is_zero"])
    if "as_int64" in want:
        mismatch = mismatch or _differ("as_int64", quantity.as_int64(), want["as_int64"])
    return mismatch


def _compare_number(what: str, got: int, want: dict[str, Any], key: str) -> str | None:
    ideal = want.get(f"ideal_{key}", want[key])
    return _differ(what, got, max(INT64_MIN, min(INT64_MAX, ideal)))


def _nanos(text: str) -> int:
    return _away(Fraction(text) * 10**9)


def _differ(what: str, got: object, wanted: object) -> str | None:
    return None if got == wanted else f"{what}: got {got!r}, wanted {wanted!r}"
