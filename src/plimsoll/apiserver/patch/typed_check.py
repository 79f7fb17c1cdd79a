"""Check that a configuration matches its schema well enough to be owned field by field.

Server-side apply rejects what other writes accept or drop: undeclared fields, values of another type, two
items with the same key.

DIFF: such a configuration is a bad request, not an internal error
(test_mismatching_configurations_are_rejected).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.api.go_text import encode_go
from plimsoll.api.quantity import Number
from plimsoll.apiserver.patch.path_elements import format_path, item_element
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.errors import PatchError

_NUMBERS = frozenset(("integer", "number"))
_ANY_SCALAR = frozenset(("quantity", "int-or-string"))
_WANTED = {
    "boolean": "boolean",
    "integer": "numeric (int or float)",
    "int-or-string": "any scalar",
    "number": "numeric (int or float)",
    "quantity": "any scalar",
}


def check_typed(tree: dict[str, Any], schema: SchemaType | None) -> None:
    """Raise PatchError with every mismatch of a configuration."""
    problems = find_mismatches(tree, schema)
    if problems:
        head = tree.get("metadata")
        metadata = head if isinstance(head, dict) else {}
        group, _, version = str(tree.get("apiVersion", "")).rpartition("/")
        what = f"{group}/{version}, Kind={tree.get('kind', '')}"
        shown = f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"
        listed = problems[0] if len(problems) == 1 else "errors:\n  " + "\n  ".join(problems)
        raise PatchError(f"failed to create typed patch object ({shown}; {what}): {listed}", malformed=True)


def find_mismatches(
    tree: dict[str, Any], schema: SchemaType | None, format_value: Callable[[Any], str] = encode_go
) -> list[str]:
    """Return every mismatch of a configuration."""
    problems = _Mismatches(format_value)
    _check(tree, schema, (), problems)
    return problems


class _Mismatches(list[str]):
    """Mismatches found, and how to show a value of the wrong type."""

    def __init__(self, format_value: Callable[[Any], str]) -> None:
        super().__init__()
        self.format_value = format_value


def _check(value: Any, schema: SchemaType | None, path: tuple[str, ...], problems: _Mismatches) -> None:
    if value is None or schema is None or schema.kind == "any":
        return
    kind = schema.kind
    if kind in ("object", "map"):
        if not isinstance(value, dict):
            problems.append(f"{format_path(path)}: expected map, got {problems.format_value(value)}")
            return
        for name, inner in value.items():
            here = (*path, "f:" + name)
            if kind == "map":
                _check(inner, schema.item, here, problems)
            elif name in schema.fields:
                _check(inner, schema.fields[name].type, here, problems)
            elif path or name not in ("apiVersion", "kind"):
                problems.append(f"{format_path(here)}: field not declared in schema")
    elif kind == "list":
        if not isinstance(value, list):
            problems.append(f"{format_path(path)}: expected list, got {problems.format_value(value)}")
            return
        _check_items(value, schema, path, problems)
    elif not _fits(value, kind):
        wanted = _WANTED.get(kind, "string")
        problems.append(f"{format_path(path)}: expected {wanted}, got {problems.format_value(value)}")


def _check_items(items: list[Any], schema: SchemaType, path: tuple[str, ...], problems: _Mismatches) -> None:
    seen: set[str] = set()
    for number, item in enumerate(items):
        if schema.list_type == "atomic":
            element = f"i:{number}"
        else:
            try:
                element = item_element(item, schema)
            except PatchError as error:
                problems.append(f"{format_path(path)}: element {number}: {error}")
                return
            if element in seen:
                problems.append(f"{format_path(path)}: duplicate entries for key {format_path((element,))}")
            seen.add(element)
        _check(item, schema.item, (*path, element), problems)


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, dict | list):
        return False
    if kind in _ANY_SCALAR:
        return True
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in _NUMBERS:
        return isinstance(value, int | Number) and not isinstance(value, bool)
    return isinstance(value, str)
