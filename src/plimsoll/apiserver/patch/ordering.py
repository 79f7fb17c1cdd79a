"""Order of lists after a strategic merge.

Elements of the patch keep the patch's order (or the order it sets), the others the live order; `interleave`
merges both so that a live element precedes the first patch element that it preceded.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.go_text import encode_go
from plimsoll.api.quantity import Number
from plimsoll.errors import PatchError

#: A scalar with its type, so that 1 and true differ.
ElementKey = tuple[type, Any]


def key_of(value: Any) -> ElementKey:
    """Return a scalar as a dict key."""
    if value is None or isinstance(value, str | int | Number):
        return (value.__class__, value)
    raise PatchError("a list is merged by scalars, and has something else there")


def interleave(items: list[Any], first: list[Any], live: list[Any], key: str) -> list[Any]:
    """Return the items of a merged list in order: `first` orders the items it names, `live` the others."""
    wanted = _element_keys(first, key)
    standing = _element_keys(live, key)
    named: list[tuple[ElementKey, Any]] = []
    others: list[tuple[ElementKey, Any]] = []
    for item in items:
        element = _element_key(item, key)
        (named if element in wanted else others).append((element, item))
    named.sort(key=lambda pair: wanted[pair[0]])
    others.sort(key=lambda pair: standing.get(pair[0], len(live)))
    woven: list[Any] = []
    waiting = 0
    for element, item in named:
        before = standing.get(element, -1)
        while waiting < len(others) and standing.get(others[waiting][0], len(live)) < before:
            woven.append(others[waiting][1])
            waiting += 1
        woven.append(item)
    woven.extend(item for _, item in others[waiting:])
    return woven


def _element_key(item: Any, key: str) -> ElementKey:
    if not key:
        return key_of(item)
    if not isinstance(item, dict):
        raise PatchError("a list that is merged by a key holds something that is no map")
    if key not in item:
        raise PatchError(f"map: {encode_go(item)} does not contain declared merge key: {key}")
    return key_of(item[key])


def _element_keys(items: list[Any], key: str) -> dict[ElementKey, int]:
    positions: dict[ElementKey, int] = {}
    for number, item in enumerate(items):
        positions.setdefault(_element_key(item, key), number)
    return positions


def check_order(patch: list[Any], wanted: list[Any], key: str) -> None:
    """Reject a patch whose elements are missing from the order it sets or are in another order."""
    if not wanted or not patch:
        return
    elements = patch
    if key:
        for item in patch:
            if not isinstance(item, dict):
                raise PatchError("a list that is merged by a key holds something that is no map")
        elements = [item for item in patch if item.get("$patch") != "delete"]
    position = 0
    for element in elements:
        directs = isinstance(element, dict) and "$patch" in element
        while position < len(wanted) and not directs:
            position += 1
            if _element_key(wanted[position - 1], key) == _element_key(element, key):
                break
        else:
            if position == len(wanted):
                raise PatchError(
                    f"The order in patch list:\n{encode_go(patch)}\n doesn't match $setElementOrder list:\n"
                    f"{encode_go(wanted)}\n"
                )
