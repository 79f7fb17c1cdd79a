"""Descriptions of what does not fit the schema: unknown fields and wrong types, with the fix."""

from __future__ import annotations

import re
from difflib import get_close_matches

from plimsoll.apiserver.registry.schema_types import SchemaType

_UNKNOWN = re.compile(r'unknown field "(.*)"', re.DOTALL)
_WRONG_TYPE = re.compile(r"json: cannot unmarshal (\w+).* of type (\S+)", re.DOTALL)
_INDEX = re.compile(r"\[\d+\]")
_FEW = 8
#: Types of JSON and of Go in messages; all others are objects.
_TYPES = {
    "string": "a string",
    "bool": "a boolean",
    "number": "a number",
    "array": "a list",
    "int32": "a whole number",
    "int64": "a whole number",
    "float64": "a number",
    "[]uint8": "a base64 string",
}


def describe_strict_error(text: str, schema: SchemaType) -> str:
    """Return a message of strict decoding with the fix, if there is one."""
    found = _UNKNOWN.fullmatch(text)
    if found is None:
        return text
    path = found[1]
    parent, _, name = path.rpartition(".")
    holder = _find(schema, parent)
    return f"{text}{_suggest(holder, name)}" if holder is not None else text


def describe_type_error(path: str, text: str) -> str:
    """Return a message about a value of the wrong type in the words of YAML."""
    found = _WRONG_TYPE.fullmatch(text)
    if found is None:
        return f"{path}: {text}" if path else text
    given, wanted = found.groups()
    fix = "; put it in quotes" if wanted == "string" and given in ("bool", "number") else ""
    return f"{path or 'the object'}: must be {_name(wanted)}, not {_name(given)}{fix}"


def _name(type: str) -> str:
    if type.startswith("[]") and type not in _TYPES:
        return "a list"
    return _TYPES.get(type, "an object")


def _find(schema: SchemaType, path: str) -> SchemaType | None:
    """Return the type of the object at a path; None below maps, whose keys may have dots."""
    for name in filter(None, _INDEX.sub("", path).split(".")):
        field = schema.fields.get(name) if schema.kind == "object" else None
        if field is None:
            return None
        schema = field.type
        while schema.kind == "list" and schema.item is not None:
            schema = schema.item
    return schema if schema.kind == "object" else None


def _suggest(holder: SchemaType, name: str) -> str:
    fields = holder.fields
    for field in fields.values():  # such as `deviceClassName`, which v1 has under `exactly`
        if field.type.kind == "object" and name in field.type.fields:
            return f"; it is a field of {field.name}"
    lowered = {known.lower(): known for known in fields}
    near = get_close_matches(name.lower(), lowered, 1)
    if near:
        return f"; did you mean {lowered[near[0]]}?"
    return f"; valid fields: {', '.join(fields)}" if len(fields) <= _FEW else ""
