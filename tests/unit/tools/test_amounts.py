"""Texts of amounts: short ones for people, exact ones for values to apply and for comparisons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import Quantity
from plimsoll.ledger.units import from_units, to_unit
from plimsoll.tools.amounts import (
    format_amount,
    format_distinct,
    format_exact,
    format_quantity,
    format_resource,
    format_short,
)

Mi, Gi = 2**20, 2**30
resources = st.sampled_from(
    ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods", "example.com/gpu")
)
amounts = st.integers(-(2**50), 2**50)


@pytest.mark.parametrize(
    ("resource", "units", "text"),
    [
        ("cpu", 9850, "9.85"),
        ("cpu", 1, "0.001"),
        ("cpu", -1750, "-1.75"),
        ("memory", 32 * Gi, "32Gi"),
        ("memory", Gi + Gi // 2, "1.5Gi"),
        ("memory", 20324 * Mi, "20324Mi"),
        ("hugepages-2Mi", 0, "0"),
        ("example.com/gpu", 5000, "5000"),
        ("pods", 110, "110"),
    ],
)
def test_an_exact_amount_is_short_where_that_loses_nothing(resource: str, units: int, text: str) -> None:
    assert format_exact(resource, units) == text


@given(resources, amounts)
def test_an_exact_amount_can_be_read_back(resource: str, units: int) -> None:
    text = format_exact(resource, units)
    assert to_unit(resource, Quantity.parse(text)) == units
    assert text in (format_short(resource, units), format_amount(resource, units))


def test_compared_amounts_that_look_different_are_short() -> None:
    assert format_distinct("memory", 20324 * Mi, 32 * Gi) == ("19.8Gi", "32Gi")
    assert format_distinct("cpu", 9850, 9850) == ("9.85", "9.85")


def test_compared_amounts_that_would_look_the_same_are_exact() -> None:
    assert format_short("memory", 20324 * Mi) == format_short("memory", 20325 * Mi)
    assert format_distinct("memory", 20324 * Mi, 20325 * Mi) == ("20324Mi", "20325Mi")
    assert format_distinct("memory", 32 * Gi, 32 * Gi + Mi, Gi) == ("32Gi", "32769Mi", "1Gi")


@given(resources, st.lists(amounts, min_size=1, max_size=4))
def test_compared_amounts_have_the_same_text_only_if_they_are_equal(resource: str, units: list[int]) -> None:
    texts = format_distinct(resource, *units)
    for one, text in zip(units, texts, strict=True):
        assert [other == one for other in units] == [other == text for other in texts]


@pytest.mark.parametrize(
    ("quantity", "text"),
    [("9850m", "9.85"), ("500m", "0.5"), ("4", "4"), ("10G", "10G"), ("2Gi", "2Gi"), ("5u", "5u")],
)
def test_a_quantity_of_a_capacity_keeps_its_unit_but_for_thousandths(quantity: str, text: str) -> None:
    assert format_quantity(Quantity.parse(quantity)) == text
    assert Quantity.parse(text) == Quantity.parse(quantity)


@given(resources, amounts)
def test_a_quantity_of_a_resource_has_the_text_of_its_amount(resource: str, units: int) -> None:
    assert format_resource(resource, from_units(resource, units)) == format_exact(resource, units)
