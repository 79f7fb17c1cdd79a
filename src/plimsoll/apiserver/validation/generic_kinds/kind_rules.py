"""What a kind that nothing here acts on brings along beside the general rules (`generic.py`).

Owns `KindRules`, a row of the table in `kinds.py`: the view through which an object is read, its defaults,
what is settled before it is stored, and the rules without which a controller would do harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.meta import Object, Wire
from plimsoll.apiserver.validation.field_errors import FieldErrors
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.write_context import WriteContext


def _leave(*_: Any) -> None:
    """Nothing is to be done."""


def _allow(write: WriteContext[Any]) -> FieldErrors:
    yield from ()


@dataclass(frozen=True, slots=True)
class KindRules:
    """One row: how objects of a kind are read, filled in, settled and checked.

    `set_defaults` works on canonical trees, the new one and the stored one alike. `prepare` and `check` are
    for writes of the object itself, `prepare_status` for those of its status, by the name of the subresource.
    `initial_status` is that of a new object.
    """

    view: type[Wire] = Object
    set_defaults: Callable[[Tree], None] = _leave
    prepare: Callable[[WriteContext[Any]], None] = _leave
    validate: Callable[[WriteContext[Any]], FieldErrors] = _allow
    prepare_status: Callable[[WriteContext[Any], str], None] = _leave
    initial_status: Mapping[str, Any] = field(default_factory=dict)


DEFAULT_RULES = KindRules()


def default_if_empty(tree: Tree, **defaults: Any) -> None:
    """Set fields that are missing or empty; a field without a choice of its own cannot tell the two apart."""
    for name, value in defaults.items():
        if not tree.get(name):
            tree[name] = value


def default_if_missing(tree: Tree, **defaults: Any) -> None:
    """Set fields that are missing; an empty value was somebody's choice."""
    for name, value in defaults.items():
        tree.setdefault(name, value)
