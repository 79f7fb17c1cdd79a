"""Field paths, and validation shared by lists, sets and maps."""

from __future__ import annotations

import pytest

from plimsoll.apiserver.validation.field_errors import (
    OBJECT_ROOT,
    FieldError,
    FieldErrors,
    FieldErrorType,
    FieldPath,
    invalid,
    join_names,
    shorten,
    validate_list,
    validate_map,
    validate_set,
)

AT = FieldPath("spec").child("items")


def _complain(item: str, path: FieldPath) -> FieldErrors:
    if item == "bad":
        yield invalid(path, item, "must be good")


def _fields(errors: FieldErrors) -> list[str]:
    return [f"{error.field} {error.type.value}" for error in errors]


def test_path_style() -> None:
    path = FieldPath("spec").child("devices").index(0).child("capacity").key("vendor.io/x").child("value")
    assert str(path) == "spec.devices[0].capacity[vendor.io/x].value"
    assert str(OBJECT_ROOT) == "[]"


@pytest.mark.parametrize(
    ("text", "longest", "short"),
    [
        ("a" * 16, 3, "a" * 16),  # never below sixteen
        ("0123456789abcdefg", 3, "0123456...bcdefg"),
        ("0123456789abcdefg", 17, "0123456789abcdefg"),
        ("x" * 50 + "y" * 50, 21, "x" * 9 + "..." + "y" * 9),
        ("é" * 20, 20, "éééé\ufffd...éééé"),  # bytes count, also where one is left of a letter
    ],
)
def test_long_keys_are_shortened_in_the_middle(text: str, longest: int, short: str) -> None:
    assert shorten(text, longest) == short


def test_a_list_over_its_limit_is_one_error() -> None:
    assert _fields(validate_list(["bad"] * 3, 2, _complain, AT)) == ["spec.items FieldValueTooMany"]
    assert _fields(validate_list(["ok", "bad"], 2, _complain, AT)) == ["spec.items[1] FieldValueInvalid"]
    assert len(list(validate_list(["bad"] * 100, None, _complain, AT))) == 100


def test_a_set_reports_the_later_of_two() -> None:
    errors = validate_set(["a", "b", "a"], 3, _complain, lambda item: item, AT)
    assert _fields(errors) == ["spec.items[2] FieldValueDuplicate"]
    assert _fields(validate_set(["a", "a"], 1, _complain, lambda item: item, AT)) == [
        "spec.items FieldValueTooMany"
    ]


def test_map_keys_are_reported_on_the_map_and_values_on_their_key() -> None:
    errors = validate_map({"bad": "ok", "k" * 40: "bad"}, None, 20, _complain, _complain, AT)
    assert _fields(errors) == [
        "spec.items FieldValueInvalid",
        "spec.items[kkkkkkkkk...kkkkkkkk] FieldValueInvalid",
    ]
    assert _fields(validate_map({"a": "", "b": ""}, 1, 20, _complain, _complain, AT)) == [
        "spec.items FieldValueTooMany"
    ]


def test_error_messages_are_readable_and_short() -> None:
    error = invalid(FieldPath("spec").child("driver"), "x" * 10_000, "must be short")
    assert str(error).startswith("spec.driver: must be short (got 'xxx")
    assert len(str(error)) < 200
    assert str(FieldError("spec", FieldErrorType.REQUIRED, "must be given")) == "spec: must be given"
    assert str(invalid(AT, 7, "must be less")) == "spec.items: must be less (got 7)"


def test_lists_of_names_in_messages_stay_short() -> None:
    assert join_names(["b", "a"]) == "a, b"
    assert join_names(f"{i:03}" for i in range(1000)).endswith("and 990 more")
