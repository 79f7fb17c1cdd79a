"""Configuration types: conversion as by msgspec, and errors that name the field and its valid values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from plimsoll.api.config import Config, check_fields, convert_config
from plimsoll.api.quantity import Number, Quantity
from plimsoll.errors import DecodeError, InputError


class Word(StrEnum):
    ONE = "one"
    OFF = "off"


class Part(Config, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=1, le=9)] = 1
    word: Word = Word.ONE


class Whole(Config, frozen=True, kw_only=True):
    kind: Literal["Whole", "1.5"] = "Whole"
    some_parts: tuple[Part, ...] = ()
    part: Part | None = None
    names: Annotated[tuple[str, ...], Meta(min_length=1)] = ("a",)
    flags: Mapping[str, bool] = {}
    any_value: Any = None


def read_even(value: Any) -> int:
    if not isinstance(value, int) or value % 2:
        raise InputError(f"must be even, not {value}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    name: Annotated[str, Meta(min_length=1, examples=["gpu-0"])]
    own: int = field(default=3, metadata={"name": "theirs"})
    even_number: Annotated[int, read_even] = 0
    amount: Quantity | None = None
    item: int | str = 0


PARTS = st.fixed_dictionaries(
    {}, optional={"size": st.integers(0, 10), "word": st.sampled_from(["one", "off", "x"])}
)
TREES = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["Whole", "1.5", "x", 1]),
        "someParts": st.lists(PARTS | st.integers(0, 1), max_size=2),
        "part": PARTS,
        "names": st.lists(st.text(max_size=2) | st.integers(), max_size=2),
        "flags": st.dictionaries(st.text(max_size=2), st.booleans() | st.none().map(lambda _: 1)),
        "anyValue": st.none() | st.lists(st.none()),
        "other": st.integers(),
    },
)


@given(TREES)
def test_valid_trees_are_those_of_msgspec(tree: dict[str, Any]) -> None:
    try:
        naive = msgspec.convert(tree, Whole)
    except msgspec.ValidationError:
        with pytest.raises(DecodeError):
            convert_config(tree, Whole)
        return
    assert convert_config(tree, Whole) == naive


def test_differences_to_msgspec() -> None:
    """Null means not set; YAML reads some words as numbers or booleans."""
    assert convert_config({"part": None, "names": None, "flags": {"a": None}}, Whole) == Whole()
    assert convert_config({"kind": Number("1.5"), "part": {"word": False}}, Whole) == Whole(
        kind="1.5", part=Part(word=Word.OFF)
    )


def test_a_dataclass_is_a_configuration_type_too() -> None:
    tree = {"name": "a", "theirs": 4, "evenNumber": 2, "amount": "5m", "item": "x"}
    made = Plain(name="a", own=4, even_number=2, amount=Quantity.parse("5m"), item="x")
    assert convert_config(tree, Plain) == made
    check_fields(made, "name", "evenNumber")
    with pytest.raises(DecodeError, match="evenNumber: must be even, not 1"):
        check_fields(Plain(name="a", even_number=1), "name", "evenNumber")


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "must be a mapping of settings, not []"),
        ({"theirs": 1}, "name: must be given, such as gpu-0"),
        ({"name": ""}, "name: must be a string that is not empty, such as gpu-0, not ''"),
        ({"name": 7}, "name: must be a string that is not empty, such as gpu-0, not 7; write it in quotes"),
        ({"name": "a", "evenNumber": 3}, "evenNumber: must be even, not 3"),
        ({"name": "a", "amount": "x"}, "amount: 'x' is not a quantity"),
        ({"name": "a", "item": []}, "item: must be a whole number or a string, not []"),
        ({"name": "a", "own": 3}, "own: unknown field; valid fields: name, theirs, evenNumber, amount"),
    ],
)
def test_errors_of_a_dataclass(tree: Any, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        convert_config(tree, Plain)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {"someParts": [{}, {"size": True}]},
            "someParts[1].size: must be a whole number",
        ),
        ({"someParts": [{"siez": 1}]}, "someParts[0].siez: unknown field; valid fields: size, word"),
        ({"part": {"word": "x" * 99}}, f"part.word: must be one of one, off, not '{'x' * 56}..."),
        ({"names": []}, "names: must be a list with at least one entry, not []"),
        ({"flags": {"a": 1}}, "flags.a: must be true or false, not 1"),
        ({"flags": 1}, "flags: must be a mapping, not 1"),
        ({1: 2}, "1: unknown field"),
        ({"a\nb": 2}, "'a\\nb': unknown field"),
        ({"flags": {"x" * 99: 1}}, f"flags.'{'x' * 56}...: must be true or false, not 1"),
    ],
)
def test_errors_name_the_exact_field(tree: Any, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        convert_config(tree, Whole)
    assert str(caught.value).startswith(message)
