"""Defaults of fields that the schema states: the marks `fill`, `default` and `milli` of its data files.

Defaults that depend on other fields are functions of their kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.registry.schema_files import read_type
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree

Visit: TypeAlias = Callable[[Any], None]
_MILLI = -3


def set_schema_defaults(name: str, tree: Tree) -> None:
    """Set the defaults of a canonical tree in place; `name` is its type in the schema, `core.v1.Pod`."""
    visit = _visitor(name)
    if visit is not None:
        visit(tree)


@cache
def _visitor(name: str) -> Visit | None:
    """Return a function that sets the defaults of an object, or None if there are none."""
    package, _, short_name = name.rpartition(".")
    schema = read_type(package, short_name)
    assert schema is not None, f"no type {name}"  # the data files are part of the package
    fields = schema.fields.values()
    initial = [(f.name, f.pointer, f.initial_value) for f in fields if f.initial_value is not None]
    steps = [(f.name, step) for f in fields if (step := _round_up if f.milli else _step_into(f.type))]
    if not initial and not steps:
        return None

    def visit(tree: Tree) -> None:
        for name, pointer, value in initial:
            if name not in tree or not (pointer or tree[name]):
                tree[name] = copy_tree(value) if isinstance(value, (dict, list)) else value
        for name, step in steps:
            if name in tree:
                step(tree[name])

    return visit


def _step_into(schema: SchemaType) -> Visit | None:
    if schema.kind == "object":
        return _visitor(schema.name)
    inner = _step_into(schema.item) if schema.item else None
    if inner is None:
        return None

    def each(items: Any) -> None:
        for item in items.values() if isinstance(items, dict) else items:
            inner(item)

    return each


def _round_up(amounts: Tree) -> None:
    """Round the quantities of a resource list up to thousandths, as the core API stores them."""
    for name, text in amounts.items():
        amount = Quantity.parse(text)
        if amount.scale is None or amount.scale < _MILLI:
            amounts[name] = str(amount.round_up(_MILLI)[0])
