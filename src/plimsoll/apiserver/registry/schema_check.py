"""Checks of objects against their schema.

`check_fields` and `check_json` find unknown fields, duplicate fields and values of the wrong type.
Objects that match (`schema_match`) are not walked; the walk here finds what does not. Paths and messages are
those of Kubernetes' strict decoding (`unknown field "spec.foo"`, `json: cannot unmarshal string into Go
struct field ...`); null is accepted everywhere, as in Go; no input raises an exception.

DIFF: messages about wrong types name the basic type where upstream names one of its own string types
(test_a_wrong_type_names_the_plain_type).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from plimsoll.api.quantity import Number
from plimsoll.apiserver.registry.scalar_formats import (
    base64_error,
    is_quantity,
    is_time,
    quantity_error,
    time_error,
)
from plimsoll.apiserver.registry.schema_match import matches_schema
from plimsoll.apiserver.registry.schema_types import SchemaType

#: Maximum number of reported errors of each kind.
LIMIT = 100
_DEPTH = 200

_RANGES = {"int32": 2**31, "int64": 2**63}


@dataclass(slots=True)
class FieldReport:
    """Fields that do not match the schema; falsy if all match."""

    unknown: list[str] = field(default_factory=list)
    duplicate: list[str] = field(default_factory=list)
    type_errors: list[tuple[str, str]] = field(default_factory=list)  #: path and the decoder's message
    strict_errors: list[str] = field(
        default_factory=list
    )  #: upstream's messages for unknown and duplicate fields, in order

    def __bool__(self) -> bool:
        """Report whether there is any mismatch."""
        return bool(self.strict_errors or self.type_errors)


class ObjectPairs(list[tuple[str, Any]]):
    """A JSON object as a list of fields in order, duplicates included."""


#: Position of a value: its path, and the Go struct and path for messages.
_Location: TypeAlias = tuple[str, str, str]


def check_fields(tree: Any, type: SchemaType) -> FieldReport:
    """Check a tree against a type."""
    return FieldReport() if matches_schema(tree, type) else report_fields(tree, type)


def report_fields(tree: Any, type: SchemaType) -> FieldReport:
    """Like `check_fields`, without the fast path for matching trees."""
    report = FieldReport()
    _check(tree, type, ("", type.short_name, ""), report, 0)
    return report


def check_json(raw: bytes | str, type: SchemaType) -> FieldReport:
    """Check JSON text, which can also have duplicate fields; invalid JSON gives an empty report."""
    pairs_needed = False

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal pairs_needed
        tree = dict(pairs)
        pairs_needed |= len(tree) != len(pairs)
        return tree

    try:
        tree = json.loads(raw, object_pairs_hook=collect, parse_float=Number)
        if not pairs_needed:
            return check_fields(tree, type)
        return report_fields(json.loads(raw, object_pairs_hook=ObjectPairs, parse_float=Number), type)
    except (ValueError, RecursionError):
        return FieldReport()


def _check(value: Any, type: SchemaType, location: _Location, report: FieldReport, depth: int) -> None:
    if value is None or depth > _DEPTH:
        return
    kind = type.kind
    if kind == "object":
        if isinstance(value, (dict, ObjectPairs)):
            _check_object(value, type, location, report, depth)
        else:
            _refuse(value, type, location, report)
    elif kind == "list":
        if isinstance(value, list) and not isinstance(value, ObjectPairs):
            item = type.item
            assert item is not None
            if item.format == "string":
                for index, part in enumerate(value):
                    if not isinstance(part, str) and part is not None:
                        _refuse(part, item, _step(location, f"[{index}]"), report)
                return
            for index, part in enumerate(value):
                _check(part, item, _step(location, f"[{index}]"), report, depth + 1)
        else:
            _refuse(value, type, location, report)
    elif kind == "map":
        if isinstance(value, (dict, ObjectPairs)):
            assert type.item is not None
            for name, part in _entries(value, location[0], report):
                _check(part, type.item, _step(location, f".{name}"), report, depth + 1)
        else:
            _refuse(value, type, location, report)
    else:
        _CHECKS[type.format](value, type, location, report)


def _check_object(
    value: dict[str, Any] | ObjectPairs,
    type: SchemaType,
    location: _Location,
    report: FieldReport,
    depth: int,
) -> None:
    fields = type.fields
    path, _, go_path = location
    prefix = f"{path}." if path else ""
    for name, part in _entries(value, path, report, fields):
        known = fields.get(name)
        if known is None:
            _report(report, "unknown", f"{prefix}{name}")
        elif part is not None:
            if known.type.format == "string" and isinstance(part, str):
                continue
            go_name = f"{go_path}.{name}" if go_path else name
            _check(part, known.type, (f"{prefix}{name}", type.short_name, go_name), report, depth + 1)


def _entries(
    value: dict[str, Any] | ObjectPairs, path: str, report: FieldReport, fields: Any = None
) -> Iterable[tuple[str, Any]]:
    """Iterate over the fields of an object, reporting duplicates of known names."""
    if isinstance(value, dict):
        return value.items()
    return _entries_of_pairs(value, path, report, fields)


def _entries_of_pairs(
    value: ObjectPairs, path: str, report: FieldReport, fields: Any
) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for name, part in value:
        if name in seen:
            if fields is not None and name not in fields:
                continue
            _report(report, "duplicate", f"{path}.{name}" if path else name)
        seen.add(name)
        yield name, part


def _step(location: _Location, more: str) -> _Location:
    return location[0] + more, location[1], location[2]


def _report(report: FieldReport, sort: str, path: str) -> None:
    found = report.unknown if sort == "unknown" else report.duplicate
    if len(found) < LIMIT:
        found.append(path)
        report.strict_errors.append(f'{sort} field "{path}"')


def _refuse(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    wanted = "int32" if type.kind == "int-or-string" else _go_name(type)
    what = _json_name(value)
    if what == "number" and type.kind in ("integer", "int-or-string"):
        what = f"number {value!r}"
    where = _where(location)
    _fail(report, location, f"json: cannot unmarshal {what} into Go struct field {where} of type {wanted}")


def _where(location: _Location) -> str:
    return f"{location[1]}.{location[2]}" if location[2] else location[1]


def _fail(report: FieldReport, location: _Location, message: str) -> None:
    if len(report.type_errors) < LIMIT:
        report.type_errors.append((location[0], message))


def _json_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (dict, ObjectPairs)):
        return "object"
    return "array" if isinstance(value, list) else "number"


_GO_NAMES = {"bytes": "[]uint8", "time": "string", "micro-time": "string", "double": "float64"}


def _go_name(type: SchemaType) -> str:
    if type.kind == "object":
        _, version, name = type.name.split(".")
        return f"{version}.{name}"
    if type.item is not None:
        return ("[]" if type.kind == "list" else "map[string]") + _go_name(type.item)
    if type.kind == "quantity":
        return "resource.Quantity"
    return _GO_NAMES.get(type.format, type.format)


def _check_string(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    if not isinstance(value, str):
        _refuse(value, type, location, report)


def _check_bool(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    if not isinstance(value, bool):
        _refuse(value, type, location, report)


def _check_integer(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    bound = _RANGES[type.format]
    if isinstance(value, bool) or not isinstance(value, int) or not -bound <= value < bound:
        _refuse(value, type, location, report)


def _check_double(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, Number)):
        _refuse(value, type, location, report)


def _check_int_or_string(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    if isinstance(value, str):
        return
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        _refuse(value, type, location, report)


def _check_quantity(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    if not is_quantity(value):
        _fail(report, location, quantity_error(value))


def _check_bytes(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    if not isinstance(value, str):
        _refuse(value, type, location, report)
        return
    why = base64_error(value)
    if why:
        _fail(report, location, why)


def _check_time(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    micro = type.kind == "micro-time"
    if not isinstance(value, str):
        _refuse(value, type, location, report)
    elif not is_time(value, micro=micro):
        _fail(report, location, time_error(value, micro=micro))


def _accept(value: Any, type: SchemaType, location: _Location, report: FieldReport) -> None:
    """Accept any JSON."""


_CHECKS: dict[str, Callable[[Any, SchemaType, _Location, FieldReport], None]] = {
    "string": _check_string,
    "bool": _check_bool,
    "int32": _check_integer,
    "int64": _check_integer,
    "double": _check_double,
    "bytes": _check_bytes,
    "quantity": _check_quantity,
    "int-or-string": _check_int_or_string,
    "time": _check_time,
    "micro-time": _check_time,
    "raw": _accept,
    "fields": _accept,
    "any": _accept,
}
