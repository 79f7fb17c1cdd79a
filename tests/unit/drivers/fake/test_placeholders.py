"""Placeholders in texts: their values, and the messages for invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.drivers.fake.placeholders import fill, fill_value
from plimsoll.errors import InputError

VARIABLES: dict[str, int | str] = {"i": 5, "j": 2, "node": "node-1", "capacity.a/b-c": "40Gi"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("", ""),
        ("gpu", "gpu"),
        ("gpu-{i}", "gpu-5"),
        ("{node}/{i}", "node-1/5"),
        ("{ i }", "5"),
        ("{i+1}-{i-1}-{i*2}-{i/2}-{i%2}", "6-4-10-2-1"),
        ("{j*4+1}", "9"),
        ("{1+j*4}", "9"),
        ("{i-1-1}", "3"),
        ("{i*j/3}", "3"),
        ("{{i}}", "{i}"),
        ("{{{i}}}", "{5}"),
        ("{capacity.a/b-c}", "40Gi"),
    ],
)
def test_a_text_is_filled(text: str, filled: str) -> None:
    assert fill(text, VARIABLES) == filled


def test_one_placeholder_alone_keeps_its_type() -> None:
    assert fill_value("{i}", VARIABLES) == 5
    assert fill_value("{i*2}", VARIABLES) == 10
    assert fill_value("{node}", VARIABLES) == "node-1"
    assert fill_value("n{i}", VARIABLES) == "n5"
    assert fill_value("", VARIABLES) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{k}", "unknown name 'k'; known names: capacity.a/b-c, i, j, node"),
        ("{k+1}", "unknown name 'k'"),
        ("{capacity.gone}", "unknown name 'capacity.gone'"),
        ("gpu-{", "has an unmatched '{': write {{ for a literal brace"),
        ("gpu-}", "has an unmatched '}'"),
        ("{}", "a number or a name is missing"),
        ("{i+}", "a number or a name is missing"),
        ("{+i}", "a number or a name is missing before '+'"),
        ("{i i}", "an operator is missing"),
        ("{i/0}", "division by zero"),
        ("{i%0}", "division by zero"),
        ("{node+1}", "node is a string, 'node-1', not a number"),
        ("{(i)}", "use only names, integers and + - * / %"),
        ("{i**i}", "a number or a name is missing before '*'"),
        ("{" + "9" * 5000 + "*2}", "use only names, integers"),
        ("{" + "*".join(["999999999"] * 40) + "}", "exceeds 64 bits"),
    ],
)
def test_unfillable_placeholders(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        fill(text, VARIABLES)
    assert problem in str(caught.value)


PARTS = st.one_of(st.integers(0, 99).map(str), st.sampled_from(["i", "j"]))
SUMS = st.lists(st.tuples(st.sampled_from("+-*/%"), PARTS), max_size=6)


@given(PARTS, SUMS, st.integers(0, 50), st.integers(0, 50))
def test_arithmetic_equals_pythons(first: str, rest: list[tuple[str, str]], i: int, j: int) -> None:
    expression = first + "".join(sign + part for sign, part in rest)
    try:
        desired = eval(expression.replace("/", "//"), {"i": i, "j": j})
    except ZeroDivisionError:
        with pytest.raises(InputError, match="division by zero"):
            fill_value(f"{{{expression}}}", {"i": i, "j": j})
    else:
        found = fill_value(f"{{{expression}}}", {"i": i, "j": j})
        assert found == desired


@given(st.text(max_size=40))
def test_any_text_is_filled_or_refused(text: str) -> None:
    try:
        filled = fill(text, VARIABLES)
    except InputError:
        return
    if "{" not in text and "}" not in text:
        assert filled == text
