"""Types of configuration files, and their strict conversion from parsed YAML.

A `Config` is a msgspec.Struct that describes a file: names, types, constraints (msgspec.Meta) and defaults of
its fields. A dataclass can do so, too; `metadata` has the "name" of a field if it differs. In
`Annotated[T, read]`, the function `read` converts the value of the file to a T.

`convert_config` differs from msgspec.convert in this: null means not set, and every error is a DecodeError
that names the exact field, the problem and the valid values.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import MISSING
from enum import Enum
from functools import lru_cache
from inspect import isfunction
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from plimsoll.api.coercion import is_union, strip_optional
from plimsoll.api.quantity import Number, Quantity
from plimsoll.errors import DecodeError, InputError

_VALUE_MAX = 60
_CAMEL = re.compile(r"_(\w)")
#: Metadata of a dataclass's field that a file cannot set.
NOT_IN_FILE = {"name": ""}


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Mapping in a configuration file."""


def convert_config(value: Any, wanted: Any) -> Any:
    """Convert a value of a configuration file to a type, or with a function.

    Raises InputError; a DecodeError has the field.
    """
    if isfunction(wanted):
        return wanted(value)
    wanted = strip_optional(wanted)
    if wanted is Any:
        return value
    notes = getattr(wanted, "__metadata__", ())
    kind = wanted.__origin__ if notes else wanted
    read = next(filter(callable, notes), None) or (Quantity.from_json if kind is Quantity else None)
    if read is not None:
        return read(value)
    if is_config(kind):
        return _convert_mapping(value, kind)
    origin = get_origin(kind)
    if origin is tuple:
        return _convert_list(value, kind, _find_meta(wanted))
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise DecodeError(f"must be a mapping, not {format_value(value)}")
        item = get_args(kind)[1]
        given = {str(name): each for name, each in value.items() if each is not None}
        return {name: convert_field(each, item, _format_name(name)) for name, each in given.items()}
    return _convert_scalar(value, wanted, kind)


def convert_field(value: Any, wanted: Any, name: str) -> Any:
    """Convert the value of a field or list entry (`[0]`); errors carry its name."""
    try:
        return convert_config(value, wanted)
    except InputError as error:
        inner = error.field if isinstance(error, DecodeError) else ""
        problem = error.problem if isinstance(error, DecodeError) else str(error)
        dot = "." if inner and not inner.startswith("[") else ""
        raise DecodeError(problem, f"{name}{dot}{inner}") from None


def format_value(value: object) -> str:
    """Format a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _VALUE_MAX else f"{text[: _VALUE_MAX - 3]}..."


def _format_name(name: str) -> str:
    """Format a name that comes from a file, on one line."""
    return name if name.isprintable() and len(name) <= _VALUE_MAX else format_value(name)


def check_fields(config: Any, *names: str) -> None:
    """Check fields of an object that was made in code, by their names in the file; raises DecodeError."""
    kind: Any = type(config)
    for name in names:
        field = config_fields(kind)[name]
        convert_field(getattr(config, field.name), field.type, name)


class ConfigField(NamedTuple):
    """Field of a configuration type: attribute and type."""

    name: str
    type: Any
    required: bool


@lru_cache(maxsize=256)
def config_fields(kind: Any) -> dict[str, ConfigField]:
    """Return the fields of a type by their name in the file; the dict must not be modified."""
    if issubclass(kind, msgspec.Struct):
        return {
            field.encode_name: ConfigField(field.name, field.type, field.required)
            for field in msgspec.structs.fields(kind)
        }
    types = get_type_hints(kind, include_extras=True)
    return {
        field.metadata.get("name") or _CAMEL.sub(lambda match: match[1].upper(), field.name): ConfigField(
            field.name, types[field.name], field.default is MISSING and field.default_factory is MISSING
        )
        for field in sorted(dataclasses.fields(kind), key=lambda each: each.name not in kind.__annotations__)
        if field.metadata.get("name") != ""
    }


def is_config(kind: Any) -> bool:
    """Report whether an object is a configuration type."""
    return isinstance(kind, type) and (issubclass(kind, Config) or dataclasses.is_dataclass(kind))


def _convert_mapping(value: Any, kind: Any) -> Any:
    value = {} if value is None else value
    if not isinstance(value, Mapping):
        raise DecodeError(f"must be a mapping of settings, not {format_value(value)}")
    given = {str(name): each for name, each in value.items() if each is not None}
    known = config_fields(kind)
    found = {
        field.name: convert_field(given.pop(name), field.type, name)
        for name, field in known.items()
        if name in given
    }
    if given:
        raise DecodeError(f"unknown field; valid fields: {', '.join(known)}", _format_name(min(given)))
    for name, field in known.items():
        if field.required and field.name not in found:
            words = ", ".join(_list_words(field.type))
            choice = f": one of {words}" if words else _format_example(field.type)
            raise DecodeError(f"must be given{choice}", name)
    return kind(**found)


def _convert_list(value: Any, kind: Any, meta: msgspec.Meta) -> tuple[Any, ...]:
    item, least, most = get_args(kind)[0], meta.min_length or 0, meta.max_length
    if not isinstance(value, list | tuple) or not least <= len(value) <= (most or len(value)):
        is_text = str in (item, getattr(item, "__origin__", None))
        entries = " with at least one entry" if least else " of strings" if is_text else ""
        entries = f" of at most {most} {'strings' if is_text else 'entries'}" if most else entries
        raise DecodeError(f"must be a list{entries}, not {format_value(value)}")
    return tuple(convert_field(each, item, f"[{index}]") for index, each in enumerate(value))


def _convert_scalar(value: Any, wanted: Any, kind: Any) -> Any:
    words = _list_words(kind)
    word = value
    if words and isinstance(value, Number):  # YAML reads 1.36 as a number, and `off` as false
        word = value.text
    elif value is False and "off" in words:
        word = "off"
    try:
        return msgspec.convert(word, wanted)
    except msgspec.ValidationError:
        quotes = "; write it in quotes" if kind is str and isinstance(value, int | Number) else ""
        problem = f"must be {_describe_type(wanted, kind, words)}, not {format_value(value)}{quotes}"
        raise DecodeError(problem) from None


def _list_words(kind: Any) -> tuple[str, ...]:
    """Return the valid words of a Literal or an Enum, or ()."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(each.value) for each in kind)
    return ()


def _describe_type(wanted: Any, kind: Any, words: tuple[str, ...]) -> str:
    if words:
        return f"one of {', '.join(words)}"
    if is_union(kind):
        texts = [_describe_type(each, each, _list_words(each)) for each in get_args(kind)]
        return f"{', '.join(texts[:-1])} or {texts[-1]}"
    meta = _find_meta(wanted)
    if kind is int:
        return "a whole number" if meta.le is None else f"a whole number from {meta.ge} to {meta.le}"
    text = "a string" if not meta.min_length else "a string that is not empty"
    return {bool: "true or false", str: text}.get(kind, "valid") + _format_example(wanted)


def _find_meta(wanted: Any) -> msgspec.Meta:
    notes = getattr(wanted, "__metadata__", ())
    return next((each for each in notes if isinstance(each, msgspec.Meta)), msgspec.Meta())


def _format_example(wanted: Any) -> str:
    examples = _find_meta(wanted).examples
    return f", such as {examples[0]}" if examples else ""
