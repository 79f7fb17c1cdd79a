"""Parser of the data files that hold the schemas.

One file per group and version, `data/GROUP.VERSION.txt`, with a block of lines per type. A block begins with
`kind NAME` for types with their own apiVersion and kind, or `part NAME` for nested types, followed by
`atomic` if server-side apply treats the type as atomic. Then one line per field:

    NAME TYPE NUMBER [MARK...]

TYPE is a word (string, bool, int32, int64, double, bytes, quantity, int-or-string, time, micro-time, raw for
any JSON, fields for FieldsV1, any), the name of a part, `[TYPE]` (a list) or `{TYPE}` (a map). NUMBER is the
field's protobuf number, 0 if it has none; `2.5` is number 5 inside a message that is number 2 and that does
not appear in JSON. The marks:

    !             required
    *             zero values appear in JSON: the field is a pointer or lacks omitempty
    ~             an empty value is omitted, although it is a message
    atomic, set, map:KEY,...   list type for server-side apply; atomic also for maps
    granular      the field's type is atomic elsewhere, not here
    merge, merge:KEY, retain, replace   strategies of strategic merge patch
    default:TEXT  default value, also in OpenAPI
    fill:TEXT     default value that OpenAPI does not mention
    milli         the quantities of a map are stored rounded up to thousandths
    value, pointer   the Go field is a value or a pointer, where that does not follow from the rest: a
                  required field is a value; a scalar is a pointer if it has `*`, an int-or-string always, an
                  object unless it is called metadata, spec or status; a list never

A file may begin with `like GROUP.VERSION`: types it does not define are looked up there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from plimsoll.apiserver.registry.descriptions import read_data
from plimsoll.apiserver.registry.schema_types import Kind, SchemaField, SchemaType

_WORDS: Mapping[str, Kind] = {
    "string": "string",
    "bool": "boolean",
    "int32": "integer",
    "int64": "integer",
    "double": "number",
    "bytes": "bytes",
    "quantity": "quantity",
    "int-or-string": "int-or-string",
    "time": "time",
    "micro-time": "micro-time",
    "raw": "any",
    "fields": "any",
    "any": "any",
}
_SCALARS = {word: SchemaType(kind, format=word) for word, kind in _WORDS.items()}
_STRATEGIES = {"merge": "merge", "retain": "retainKeys", "replace": "replace"}


@cache
def _blocks(package: str) -> tuple[dict[str, str], str]:
    """Return the blocks of a file by type name, and the package it falls back to."""
    text = read_data(f"{package}.txt")
    blocks: dict[str, str] = {}
    like = ""
    for block in (text or "").strip().split("\n\n"):
        if block.startswith("like "):
            like = block[5:].strip()
        elif block and not block.startswith("#"):
            head, _, _ = block.partition("\n")
            blocks[head.split()[1]] = block
    return blocks, like


def _block(package: str, name: str) -> str | None:
    while package:
        blocks, like = _blocks(package)
        if name in blocks:
            return blocks[name]
        package = like
    return None


@cache
def read_type(package: str, name: str) -> SchemaType | None:
    """Return the type of this name as seen from a package (`core.v1`), or None."""
    block = _block(package, name)
    if block is None:
        return None
    head = block.partition("\n")[0].split()
    atomic = "atomic" in head[2:]
    stated = frozenset({"map"}) if atomic else frozenset[str]()
    load = partial(_read_fields, package, name, block)
    return SchemaType("object", f"{package}.{name}", atomic=atomic, stated=stated, load=load)


def is_top_level_kind(package: str, name: str) -> bool:
    """Report whether objects of this type have an apiVersion and a kind."""
    return (_block(package, name) or "").startswith("kind ")


def _read_fields(package: str, name: str, block: str) -> Mapping[str, SchemaField]:
    owner = f"{package}.{name}"
    fields: dict[str, SchemaField] = {}
    head, *lines = block.split("\n")
    if head.startswith("kind "):
        for text in ("apiVersion", "kind"):
            fields[text] = SchemaField(text, _SCALARS["string"], owner=owner)
    for line in lines:
        field = _read_field(package, owner, line)
        fields[field.name] = field
    return fields


def _read_field(package: str, owner: str, line: str) -> SchemaField:
    name, word, numbers, *marks = line.split()
    *message_path, number = (int(part) for part in numbers.split("."))
    type, default = _apply_marks(_read_word(package, word), marks)
    keeps = "*" in marks or (type.format not in _DROPS_ZERO and "~" not in marks)
    pointer = "pointer" in marks or ("value" not in marks and _is_pointer(name, type, marks))
    fill = next((mark[5:] for mark in marks if mark.startswith("fill:")), None)
    return SchemaField(
        name=name,
        type=type,
        required="!" in marks,
        number=number,
        message_path=tuple(message_path),
        emits_zero=keeps,
        default=default,
        owner=owner,
        pointer=pointer,
        fill=fill,
        milli="milli" in marks,
    )


def _is_pointer(name: str, type: SchemaType, marks: list[str]) -> bool:
    if type.kind in ("quantity", "time", "micro-time"):
        return True
    if type.kind == "object":
        return "!" not in marks and name not in ("metadata", "spec", "status")
    return "!" not in marks and ("*" in marks or type.kind == "int-or-string")


_DROPS_ZERO = {"string", "bool", "int32", "int64", "double", "bytes"}


def _read_word(package: str, word: str) -> SchemaType:
    if word[0] == "[":
        return SchemaType("list", item=_read_word(package, word[1:-1]))
    if word[0] == "{":
        return SchemaType("map", item=_read_word(package, word[1:-1]))
    scalar = _SCALARS.get(word)
    if scalar is not None:
        return scalar
    elsewhere, _, name = word.rpartition(".")
    found = read_type(elsewhere or package, name)
    assert found is not None, f"{package}: no type {word}"  # the data files are part of the package
    return found


def _apply_marks(type: SchemaType, marks: list[str]) -> tuple[SchemaType, str]:
    """Return the type with the marks of a field applied, and the field's default."""
    more: dict[str, Any] = {}
    stated: set[str] = set(type.stated)
    strategies: set[str] = set()
    default = ""
    for mark in marks:
        word, _, argument = mark.partition(":")
        if word in _STRATEGIES:
            strategies.add(_STRATEGIES[word])
            more["merge_key"] = more.get("merge_key", "") or argument
        elif word == "default":
            default = argument
        elif word == "granular":
            more["atomic"] = False
            stated.add("granular")
        elif word == "atomic" and type.kind != "list":
            more["atomic"] = True
            stated.add("map")
        elif word in ("atomic", "set", "map"):
            more |= {"list_type": word, "keys": tuple(argument.split(",")) if argument else ()}
            stated.add("list")
    if not more and not strategies:
        return type, default
    if type.kind == "list" and "list" not in stated and "merge" in strategies:
        # Lists with only a patch strategy have the same list type for server-side apply.
        key = more.get("merge_key", "")
        more |= {"list_type": "map" if key else "set", "keys": (key,) if key else ()}
    return _copy_with(type, strategies=frozenset(strategies), stated=frozenset(stated), **more), default


def _copy_with(type: SchemaType, **more: Any) -> SchemaType:
    values: dict[str, Any] = {
        "format": type.format,
        "item": type.item,
        "list_type": type.list_type,
        "atomic": type.atomic,
    }
    values |= more
    return SchemaType(type.kind, type.name, load=lambda: type.fields, **values)


def list_of(item: SchemaType) -> SchemaType:
    """Return the type of a list of a kind, such as `PodList` for `Pod`."""
    metadata = read_type("meta.v1", "ListMeta")
    assert metadata is not None
    name = f"{item.name}List"
    text = _SCALARS["string"]
    fields = {
        "apiVersion": SchemaField("apiVersion", text, owner=name),
        "kind": SchemaField("kind", text, owner=name),
        "metadata": SchemaField("metadata", metadata, False, 1, (), True, "", name),
        "items": SchemaField("items", SchemaType("list", item=item), True, 2, (), False, "", name),
    }
    return SchemaType("object", name, load=lambda: fields)
