"""Canonical JSON trees of objects.

`canonicalize` copies an object so that quantities and timestamps have their stored form and fields known to
the view are never null, which defaulting and dropping of fields rely on. Fields unknown to the view are
copied unchanged. The caller's tree is never modified; a tree that is not JSON (cycles, foreign objects,
unbounded depth) raises DecodeError. `decode.py` is the fast equivalent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias, get_args, get_origin

import msgspec

from plimsoll.api import codec
from plimsoll.api.coercion import strip_optional, wire_types, zero_value
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.quantity import Number, Quantity
from plimsoll.api.resource import Counter, DeviceCapacity
from plimsoll.api.timestamps import normalize_micro_time, normalize_time
from plimsoll.apiserver.registry.metadata_view import FullObjectMeta
from plimsoll.errors import DecodeError, QuantityError

Tree: TypeAlias = "dict[str, Any]"
#: A path of fields: each name with "", "[]" or "{}".
Steps: TypeAlias = "tuple[tuple[str, str], ...]"

#: DIFF: deeper objects are rejected; upstream accepts 10,000 levels (test_depth_is_limited).
MAX_DEPTH = 150
_LONGEST_NUMBER = 4096  # bits

#: Timestamp fields (metav1.Time).
TIMES = frozenset(
    (
        "allocationTimestamp",
        "creationTimestamp",
        "deletionTimestamp",
        "finishedAt",
        "firstTimestamp",
        "lastHeartbeatTime",
        "lastProbeTime",
        "lastTimestamp",
        "lastTransitionTime",
        "startTime",
        "startedAt",
        "time",
        "timeAdded",
    )
)

#: Timestamp fields with microseconds (metav1.MicroTime).
MICRO_TIMES = frozenset(("acquireTime", "eventTime", "lastObservedTime", "renewTime"))

#: Types whose quantity is always stored, "0" by default.
ALWAYS_STORED: frozenset[type] = frozenset((Counter, DeviceCapacity))


def canonicalize(tree: Any, view: type[msgspec.Struct]) -> Tree:
    """Copy an object into canonical form; raises DecodeError if it does not match the view."""
    if not isinstance(tree, dict):
        raise DecodeError("must be an object")
    return _copy_struct(tree, view, "", 0)


def copy_tree(value: Any) -> Any:
    """Deep-copy JSON that was decoded before, through its text form where that is lossless."""
    copied = codec.decode_tree(codec.encode(value))
    return copied if copied == value else _copy_plain(value, "", 0)


def _copy(value: Any, wanted: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise DecodeError("is nested too deeply", path)
    wanted = strip_optional(wanted)
    if wanted is Any:
        return _copy_plain(value, path, depth)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        return _copy_struct({} if value is None else value, wanted, path, depth)
    origin = get_origin(wanted)
    if origin is tuple:
        item = get_args(wanted)[0]
        value = [] if value is None else value
        _expect(isinstance(value, (list, tuple)), "a list", path)
        return [_copy(v, item, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    if origin is dict:
        item = get_args(wanted)[1]
        value = {} if value is None else value
        _expect(isinstance(value, dict), "an object", path)
        return {_key(k, path): _copy(v, item, f"{path}[{k}]", depth + 1) for k, v in value.items()}
    if wanted is Quantity:
        return _copy_quantity(value, path)
    if value is None:
        return zero_value(wanted)
    return _copy_plain(value, path, depth)


def _copy_struct(value: Any, view: type[msgspec.Struct], path: str, depth: int) -> Tree:
    _expect(isinstance(value, dict), "an object", path)
    if view is ObjectMeta:
        view = FullObjectMeta
    known = wire_types(view)
    copied: Tree = {}
    for key, item in value.items():
        index = f"{path}.{_key(key, path)}" if path else _key(key, path)
        wanted = known.get(key)
        if wanted is None:
            copied[key] = _copy_plain(item, index, depth + 1)
        elif item is not None:
            if key in TIMES and isinstance(item, str) and strip_optional(wanted) is str:
                copied[key] = normalize_time(item, index)
            elif key in MICRO_TIMES and isinstance(item, str) and strip_optional(wanted) is str:
                copied[key] = normalize_micro_time(item, index)
            else:
                copied[key] = _copy(item, wanted, index, depth + 1)
    if view in ALWAYS_STORED:
        copied.setdefault("value", "0")
    return copied


def _copy_quantity(value: Any, path: str) -> str:
    try:
        return str(Quantity.from_json(value))
    except QuantityError as error:
        raise DecodeError(str(error), path) from None


def _copy_plain(value: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise DecodeError("is nested too deeply", path)
    if type(value) is str:
        return _text(value, path)
    if value is None or isinstance(value, (bool, Number)):
        return value
    if isinstance(value, dict):
        return {_key(k, path): _copy_plain(v, path, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy_plain(v, path, depth + 1) for v in value]
    if isinstance(value, int):
        if value.bit_length() <= _LONGEST_NUMBER:
            return value
    elif isinstance(value, float) and math.isfinite(value):
        return value
    raise DecodeError("must be JSON", path)


def _key(key: Any, path: str) -> str:
    _expect(type(key) is str, "an object with text keys", path)
    return _text(key, path)


def _text(text: str, path: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DecodeError("must be Unicode text", path) from None
    return text


def _expect(ok: bool, what: str, path: str) -> None:
    if not ok:
        raise DecodeError(f"must be {what}", path)


# -- lookup of fields by path: `spec.devices[].capacity{}.requestPolicy`


def find_fields(tree: Any, path: str) -> Iterator[tuple[Tree, str]]:
    """Yield each object that has the field at the end of the path, with the field's name.

    `[]` iterates over the items of a list and `{}` over the values of a map. Paths end in a field.
    """
    return _find(tree, split_path(path), 0)


def has_steps(tree: Any, steps: Steps, index: int = 0) -> bool:
    """Report whether `find_fields` would find anything at a path that `split_path` has split; optimized for
    the common case that it would not.
    """
    last = len(steps) - 1
    while True:
        name, into = steps[index]
        if not isinstance(tree, dict) or name not in tree:
            return False
        if index == last:
            return True
        tree, index = tree[name], index + 1
        if into:
            return any(has_steps(item, steps, index) for item in _items(tree, into))


#: Paths that share their first steps: by name and kind of the step, what is below; nothing where a path ends.
StepTree: TypeAlias = dict[tuple[str, str], "StepTree"]


def merge_steps(paths: Iterable[Steps]) -> StepTree:
    """Return paths as one tree, for `has_any_steps`; without those that begin with another."""
    root: StepTree = {}
    for *first, last in paths:
        node = root
        for step in first:
            if step in node and not node[step]:
                break
            node = node.setdefault(step, {})
        else:
            node[last] = {}
    return root


def has_any_steps(tree: Any, paths: StepTree) -> bool:
    """Report whether `has_steps` is true for one of the paths."""
    if tree.__class__ is not dict:
        return False
    for (name, into), below in paths.items():
        if name in tree:
            if not below:
                return True
            value = tree[name]
            if not into:
                if has_any_steps(value, below):
                    return True
            else:
                for item in _items(value, into):
                    if has_any_steps(item, below):
                        return True
    return False


@lru_cache(maxsize=256)
def split_path(path: str) -> Steps:
    """Parse a path: `a[].b{}.c` -> ((a, []), (b, {}), (c, ))."""
    return tuple((step.rstrip("[]{}"), step[len(step.rstrip("[]{}")) :]) for step in path.split("."))


def _find(tree: Any, steps: Steps, index: int) -> Iterator[tuple[Tree, str]]:
    name, into = steps[index]
    if not isinstance(tree, dict) or name not in tree:
        return
    index += 1
    if index == len(steps):
        yield tree, name
    elif not into:
        yield from _find(tree[name], steps, index)
    else:
        for item in _items(tree[name], into):
            yield from _find(item, steps, index)


def _items(value: Any, into: str) -> Iterable[Any]:
    """Return what a step iterates over: nothing if the value is null or of another type."""
    if into == "[]":
        return value if isinstance(value, list) else ()
    return value.values() if isinstance(value, dict) else ()


def subtree(tree: Tree, *names: str) -> Tree:
    """Return a nested object, or an empty one if it is missing."""
    for name in names:
        tree = tree.get(name) or {}
    return tree
