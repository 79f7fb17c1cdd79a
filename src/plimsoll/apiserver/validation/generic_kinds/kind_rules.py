"""`KindRules`: what one kind adds to the generic strategy (`generic_strategy.py`).

A row of the table in `kind_table.py`: the schema of an object, its defaults, its preparation, and the rules
that controllers rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.apiserver.validation.field_errors import FieldErrors
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.write_context import WriteContext


def _do_nothing(*_: Any) -> None:
    """Do nothing."""


def _accept(write: WriteContext[Any], subresource: str = "") -> FieldErrors:
    yield from ()


@dataclass(frozen=True, slots=True)
class KindRules:
    """One row: schema, defaults, preparation and validation of a kind.

    `package` has the schema of the kind; without it, only the metadata of objects is decoded. `set_defaults`
    works on canonical trees, the new one and the stored one. `prepare` and `validate` apply to writes of the
    object itself, `prepare_status` and `validate_status` to writes of its status, by the name of the
    subresource.
    `initial_status` has the fields of a new object's status that are not the zero values of its type.
    `finish` runs at the end of the preparation, when the generation is known.
    """

    package: str = ""
    set_defaults: Callable[[Tree], None] = _do_nothing
    prepare: Callable[[WriteContext[Any]], None] = _do_nothing
    validate: Callable[[WriteContext[Any]], FieldErrors] = _accept
    prepare_status: Callable[[WriteContext[Any], str], None] = _do_nothing
    validate_status: Callable[[WriteContext[Any], str], FieldErrors] = _accept
    initial_status: Mapping[str, Any] = field(default_factory=dict)
    finish: Callable[[WriteContext[Any]], None] = _do_nothing


DEFAULT_RULES = KindRules()


def default_if_empty(tree: Tree, **defaults: Any) -> None:
    """Set fields that are missing or empty, for fields that cannot distinguish the two."""
    for name, value in defaults.items():
        if not tree.get(name):
            tree[name] = value


def default_if_missing(tree: Tree, **defaults: Any) -> None:
    """Set fields that are missing; empty values are kept."""
    for name, value in defaults.items():
        tree.setdefault(name, value)
