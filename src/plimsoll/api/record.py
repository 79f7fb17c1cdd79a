"""Stored objects: the JSON bytes, with a typed view of the fields in use.

Implements read-modify-write. `Record.replace` changes in the JSON exactly what differs between two views:
fields the view does not know, at every level, are unchanged. List items keep their unknown fields by key
(`Wire.item_key`), or by position for types without one.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from plimsoll.api import codec
from plimsoll.api.coercion import members
from plimsoll.api.meta import Wire
from plimsoll.api.quantity import Quantity

T = TypeVar("T", bound=Wire)


class Record(Generic[T]):
    """One stored object: `raw` is authoritative, `view` is decoded from it on first use."""

    __slots__ = ("_view", "raw", "type")

    def __init__(self, raw: bytes, type: type[T], view: T | None = None) -> None:
        self.raw = raw
        self.type = type
        self._view = view

    @staticmethod
    def of(view: T) -> Record[T]:
        """Return a new object with the fields of its view."""
        return Record(codec.encode(view), type(view), view)

    @property
    def view(self) -> T:
        if self._view is None:
            self._view = codec.decode(self.raw, self.type)
        return self._view

    def tree(self) -> Any:
        """Return the entire object as plain dicts and lists, including unknown fields; a new copy."""
        return codec.decode_tree(self.raw)

    def replace(self, view: T) -> Record[T]:
        """Return the object with its view changed; unknown fields are kept."""
        return Record(codec.encode(apply_changes(self.tree(), self.view, view)), self.type, view)

    def __eq__(self, other: object) -> bool:
        return self.raw == other.raw if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.raw)


def apply_changes(tree: Any, old: Any, new: Any) -> Any:
    """Apply the difference between two views of a JSON tree to the tree, and return it."""
    if type(old) is not type(new) or old is None:
        return _plain(new)
    if isinstance(new, msgspec.Struct):
        return _apply_to_struct(tree, old, new) if isinstance(tree, dict) else _plain(new)
    if isinstance(new, dict):
        return _apply_to_map(tree, old, new) if isinstance(tree, dict) else _plain(new)
    if isinstance(new, tuple):
        return _apply_to_list(tree, old, new) if isinstance(tree, list) else _plain(new)
    return tree if _same(old, new) else _plain(new)


def _apply_to_struct(tree: dict[str, Any], old: msgspec.Struct, new: msgspec.Struct) -> dict[str, Any]:
    for member in members(type(new)):
        before, after = getattr(old, member.attribute), getattr(new, member.attribute)
        if _same(before, after):
            continue
        default = getattr(type(new)(), member.attribute)
        if after == default and not isinstance(after, msgspec.Struct):
            tree.pop(member.wire, None)
        elif member.wire in tree:
            tree[member.wire] = apply_changes(tree[member.wire], before, after)
        else:
            tree[member.wire] = _plain(after)
    return tree


def _apply_to_map(tree: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    for key in old.keys() - new.keys():
        tree.pop(key, None)
    for key, value in new.items():
        if key in tree and key in old:
            tree[key] = apply_changes(tree[key], old[key], value)
        else:
            tree[key] = _plain(value)
    return tree


def _apply_to_list(tree: list[Any], old: tuple[Any, ...], new: tuple[Any, ...]) -> list[Any]:
    """Match new items to old ones by key, or else by position, and apply their changes."""
    if len(tree) != len(old):
        return [_plain(item) for item in new]
    indices: dict[Any, list[int]] = {}
    for index, item in enumerate(old):
        indices.setdefault(_item_key(item, index), []).append(index)
    carried = []
    for index, item in enumerate(new):
        match = indices.get(_item_key(item, index))
        if match:
            before = match.pop(0)
            carried.append(apply_changes(tree[before], old[before], item))
        else:
            carried.append(_plain(item))
    return carried


def _item_key(item: Any, index: int) -> Any:
    if isinstance(item, Wire):
        if item.item_key:
            return tuple(getattr(item, attribute) for attribute in item.item_key)
        return index
    return item if isinstance(item, (str, int, bool)) else index


def _same(old: Any, new: Any) -> bool:
    """Return whether values are equal and have equal text: 1024Mi and 1Gi do not."""
    if isinstance(old, Quantity) and isinstance(new, Quantity):
        return old == new and str(old) == str(new)
    if isinstance(old, msgspec.Struct) and type(old) is type(new):
        return all(_same(getattr(old, f), getattr(new, f)) for f in old.__struct_fields__)
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(value, new[key]) for key, value in old.items())
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and bool(old == new)


def _plain(value: Any) -> Any:
    return codec.to_tree(value)
