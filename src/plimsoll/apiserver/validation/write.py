"""START HERE: preparation and validation of one write, from the request to the object to store.

The pipeline (docs/spec/api.md, "Pipeline of a write"):

    decode -> set defaults -> prepare (reset, drop, set generation) -> validate

`prepare` takes a `Write` and returns a `PreparedObject`: the tree to store, the errors that forbid storing
it, and warnings. It is pure: it does not modify the caller's trees, and the current time is part of the
write. JSON that is not an object of its kind raises DecodeError (HTTP 400); an object that violates a rule
has errors (HTTP 422).

The strategy of each kind is in `strategies.py`. Kinds without a strategy of their own use the generic one
(`generic_kinds/generic_strategy.py`), which needs `Write.traits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Literal, TypeAlias

from plimsoll.api.gates import Gates
from plimsoll.api.meta import Wire
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.registry.status_shape import complete_status
from plimsoll.apiserver.validation.claim_status_authorization import Caller
from plimsoll.apiserver.validation.decode import decode_canonical
from plimsoll.apiserver.validation.defaults import set_defaults
from plimsoll.apiserver.validation.field_errors import FieldError
from plimsoll.apiserver.validation.generic_kinds.generic_strategy import (
    KindTraits,
    prepare_object,
    validate_object,
)
from plimsoll.apiserver.validation.generic_kinds.kind_table import view_for_kind
from plimsoll.apiserver.validation.generic_kinds.kind_warnings import find_warnings
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.strategies import STRATEGIES
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy
from plimsoll.errors import InputError

_ALL_ON = Gates.default()

#: DIFF: validation of one object stops after this many errors; upstream reports all of them
#: (test_errors_are_reported_up_to_a_limit).
ERRORS_MAX = 1000

Operation: TypeAlias = Literal["create", "update"]


@dataclass(frozen=True, slots=True)
class Write:
    """One request to write an object.

    `object` is the JSON tree of the request, with its name generated and its metadata completed; `old` is
    the stored object, for updates. `namespace_labels` are the labels of the object's namespace, None if
    unknown. Without a `caller`, every part of a claim's status may be written. `traits` are required for
    kinds without a strategy of their own. `old_is_canonical` states that the stored object was prepared
    under the same rules when it was written; it is then used as is, which is faster.
    """

    kind: str
    operation: Operation
    object: Any
    now: datetime
    old: Any = None
    subresource: str = ""
    gates: Gates = _ALL_ON
    namespace_labels: Mapping[str, str] | None = None
    caller: Caller | None = None
    traits: KindTraits | None = None
    old_is_canonical: bool = False


@dataclass(frozen=True, slots=True)
class PreparedObject:
    """The object as it would be stored, and the errors that forbid storing it."""

    tree: Tree
    errors: tuple[FieldError, ...]
    warnings: tuple[str, ...] = ()


def decode_with_defaults(kind: str, tree: Any, view: type[Wire], now: str, gates: Gates = _ALL_ON) -> Tree:
    """Decode a tree into canonical form and set its defaults; raises DecodeError on wrong types."""
    decoded = decode_canonical(tree, view)
    set_defaults(kind, decoded, now, gates)
    return decoded


def default_object(kind: str, tree: Tree, now: str, gates: Gates) -> Tree:
    """Return an object of the storage version in canonical form with its defaults; raises DecodeError."""
    strategy = STRATEGIES.get(("create", kind, ""))
    if strategy is not None and strategy.to_internal is not None:
        return tree  # events have no defaults
    view = view_for_kind(kind) if strategy is None else strategy.view
    return decode_with_defaults(kind, tree, view, now, gates)


def prepare(write: Write) -> PreparedObject:
    """Run a write through the pipeline."""
    strategy = STRATEGIES.get((write.operation, write.kind, write.subresource))
    if strategy is None:
        strategy = _generic_strategy(write)
    if (write.old is None) != (write.operation == "create"):
        raise InputError("an update needs the stored object, a create has none")
    is_create, now = write.operation == "create", format_datetime(write.now)
    given, before = write.object, write.old
    if strategy.to_internal is not None:
        given, before = strategy.to_internal(given), strategy.to_internal(before)
    elif strategy.reset_fields and write.old_is_canonical and not is_create:
        given = _without_reset_fields(given, before, strategy.reset_fields)
    tree = decode_with_defaults(write.kind, given, strategy.view, now, write.gates)
    old: Tree = {}
    if write.old_is_canonical and not is_create:
        old = before
    elif not is_create:
        old = decode_with_defaults(write.kind, before, strategy.view, now, write.gates)
    context = WriteContext(
        strategy.view,
        is_create,
        tree,
        old,
        write.gates,
        now,
        write.namespace_labels,
        write.caller,
        str(write.object.get("apiVersion", "")),
    )
    strategy.prepare(context)
    complete_status(write.kind, context.tree)
    context.freeze()
    errors = tuple(islice(strategy.validate(context), ERRORS_MAX))
    warnings = tuple(islice(strategy.warn(context), ERRORS_MAX))
    if strategy.from_internal is not None and given is not write.object:
        return PreparedObject(strategy.from_internal(context.tree), errors, warnings)
    return PreparedObject(context.tree, errors, warnings)


def _without_reset_fields(given: Any, old: Tree, names: tuple[str, ...]) -> Any:
    """Return the object without reset fields that are identical to the stored ones, to skip decoding them."""
    if not isinstance(given, dict):
        return given
    unchanged = [name for name in names if name in given and given[name] is old.get(name)]
    return {name: value for name, value in given.items() if name not in unchanged} if unchanged else given


def prepare_generic(write: Write, *, namespaced: bool, has_status: bool) -> PreparedObject:
    """Run a write of a kind without a strategy of its own through the pipeline."""
    return prepare(replace(write, traits=KindTraits(namespaced, has_status)))


def _generic_strategy(write: Write) -> WriteStrategy:
    traits = write.traits
    if traits is None:
        what = f"{write.kind}/{write.subresource}" if write.subresource else write.kind
        raise InputError(f"{write.operation} of {what} is not supported")
    return WriteStrategy(
        view_for_kind(write.kind),
        lambda context: prepare_object(context, write.kind, write.subresource, traits),
        lambda context: validate_object(context, write.kind, write.subresource, traits),
        lambda context: find_warnings(write.kind, context, write.subresource),
    )
