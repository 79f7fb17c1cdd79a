"""Fast decoding of an object into its canonical tree, with type checks against its view.

Equivalent to `object_trees.canonicalize`. The object passes through msgspec as text, which copies it and
checks all types at once; then only fields whose stored form can differ are visited: quantities, timestamps
and nulls. Anything unusual (a wrong type, a null in a list, deep nesting) falls back to `canonicalize`, which
can name the field in its error. A property test compares both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeAlias, cast, get_args, get_origin

import msgspec

from plimsoll.api import codec
from plimsoll.api.coercion import strip_optional, wire_types
from plimsoll.api.meta import ObjectMeta, Wire
from plimsoll.api.quantity import Quantity
from plimsoll.api.timestamps import normalize_micro_time, normalize_time
from plimsoll.apiserver.registry.metadata_view import FullObjectMeta, PartialObjectMetadata
from plimsoll.apiserver.validation.object_trees import (
    ALWAYS_STORED,
    MAX_DEPTH,
    MICRO_TIMES,
    TIMES,
    Tree,
    canonicalize,
)
from plimsoll.errors import DecodeError, PlimsollError, QuantityError

Visit: TypeAlias = Callable[[Any], None]

_DIGITS = bytes(ord("0") if letter in b"0123456789" else ord(" ") for letter in range(256))
_BIG_NUMBER = b"0" * 19
_NOT_BRACKETS = bytes(letter for letter in range(256) if letter not in b"[]{}")


def decode_canonical(tree: Any, view: type[Wire]) -> Tree:
    """Copy an object into canonical form; raises DecodeError if it does not match the view."""
    if not isinstance(tree, dict):
        raise DecodeError("must be an object")
    try:
        return _decode_fast(tree, view)
    except (msgspec.MsgspecError, PlimsollError, LookupError, TypeError, ValueError, RuntimeError):
        return _decode_slow(tree, view)


def _decode_fast(tree: Tree, view: type[Wire]) -> Tree:
    raw = codec.encode(tree)
    if not _is_shallow(raw) or _BIG_NUMBER in raw.translate(_DIGITS):
        raise DecodeError("needs the slow path")
    for wanted in (view, PartialObjectMetadata):
        msgspec.convert(tree, wanted, dec_hook=_read_quantity)
    copied = cast(Tree, codec.decode_tree(raw))
    if copied != tree:  # not JSON, but encoded as if it were
        raise DecodeError("needs the slow path")
    visit = _visitor(view, b"null" in raw)
    if visit is not None:
        visit(copied)
    return copied


def _decode_slow(tree: Tree, view: type[Wire]) -> Tree:
    copied = canonicalize(tree, view)
    raw = codec.encode(copied)
    for wanted in (view, PartialObjectMetadata):
        codec.decode(raw, wanted)  # raises an error that names the field
        try:
            _decoder(wanted).decode(raw)
        except msgspec.ValidationError as error:  # a number that overflows its field
            raise DecodeError(str(error)) from None
    return copied


def _read_quantity(wanted: type[Any], value: Any) -> Any:
    try:
        return Quantity.parse(value)
    except (QuantityError, TypeError):
        raise ValueError("is not a quantity") from None


@lru_cache(maxsize=256)
def _decoder(view: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(view, dec_hook=_read_quantity)


def _is_shallow(raw: bytes) -> bool:
    """Report whether JSON is within the depth limit; brackets in strings can cause a false negative."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return True
    brackets = raw.translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return True
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return not brackets


# -- fields whose stored form can differ


@lru_cache(maxsize=512)
def _visitor(view: type[msgspec.Struct], nulls: bool) -> Visit | None:
    """Return a function that canonicalizes an object in place, or None if there is never anything to do."""
    if view is ObjectMeta:
        view = FullObjectMeta
    known = wire_types(view)
    steps = [(name, step) for name, wanted in known.items() if (step := _step(name, wanted, nulls))]
    always = view in ALWAYS_STORED
    if not steps and not nulls and not always:
        return None

    def visit(tree: Tree) -> None:
        if nulls:
            for name in [name for name, value in tree.items() if value is None and name in known]:
                del tree[name]
        if always:
            tree.setdefault("value", "0")
        for name, step in steps:
            if name in tree:
                step(tree, name)

    return visit


Step: TypeAlias = Callable[
    [Any, Any], None
]  # container and key: an object and a name, or a list and an index


def _step(name: str, wanted: Any, nulls: bool) -> Step | None:
    """Return the canonicalization of one field; the name distinguishes timestamps from other strings."""
    wanted = strip_optional(wanted)
    if wanted is str and name in TIMES:
        return _set_time
    if wanted is str and name in MICRO_TIMES:
        return _set_micro_time
    return _step_into(wanted, nulls)


def _step_into(wanted: Any, nulls: bool) -> Step | None:
    wanted = strip_optional(wanted)
    if wanted is Quantity:
        return _set_quantity
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        visit = _visitor(wanted, nulls)
        return None if visit is None else partial(_visit_at, visit)
    origin = get_origin(wanted)
    if origin is tuple:
        return _step_into_list(get_args(wanted)[0], nulls)
    if origin is dict:
        return _step_into_map(get_args(wanted)[1], nulls)
    return None


def _visit_at(visit: Visit, container: Any, key: Any) -> None:
    if container[key] is None:  # null in a list is an empty object, as in Go
        container[key] = {}
    visit(container[key])


def _step_into_list(item: Any, nulls: bool) -> Step | None:
    inner = _step_into(item, nulls)
    if inner is None:
        return None

    def each(container: Any, key: Any) -> None:
        items = container[key]
        for index in range(len(items)):
            inner(items, index)

    return each


def _step_into_map(item: Any, nulls: bool) -> Step | None:
    inner = _step_into(item, nulls)
    if inner is None:
        return None

    def each(container: Any, key: Any) -> None:
        items = container[key]
        for key in items:
            inner(items, key)

    return each


@lru_cache(maxsize=65536)
def _normalize(text: str) -> str:
    return str(Quantity.parse(text))


def _set_quantity(container: Any, key: Any) -> None:
    text = container[key]
    normalized = _normalize(text)
    if normalized != text:
        container[key] = normalized


def _set_time(container: Any, key: Any) -> None:
    container[key] = normalize_time(container[key], "")


def _set_micro_time(container: Any, key: Any) -> None:
    container[key] = normalize_micro_time(container[key], "")
