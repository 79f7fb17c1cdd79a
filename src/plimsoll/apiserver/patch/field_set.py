"""Set operations on field sets in FieldsV1 form.

A set is the FieldsV1 tree itself: a dict from path elements to the sets below them. A path element is
`f:NAME`, `k:{...}` (a list item by its keys), `v:VALUE` (an item of a set) or `i:INDEX`. An element with
nothing below it is a member; one with something below it is a member only if it contains ".". Sets therefore
need no decoding, and every non-empty dict has at least one member.

Sets are values: no function modifies its arguments, results may share parts with them, and an operation that
changes nothing returns its first argument itself, which callers may test with `is`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

#: A set of fields, or the set below a path element.
FieldSet = dict[str, Any]

#: A member with nothing below it. Shared; never modified.
LEAF: FieldSet = {}
SELF = "."


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the fields that are in either set."""
    if left is right or not right:
        return left
    if not left:
        return right
    merged: FieldSet | None = None
    for element, mine in right.items():
        theirs = left.get(element)
        if theirs is None:
            both = mine
        elif theirs is mine:
            continue
        else:
            both = _union_below(theirs, mine)
            if both is theirs:
                continue
        if merged is None:
            merged = dict(left)
        merged[element] = both
    return left if merged is None else merged


def union_all(sets: Iterable[FieldSet]) -> FieldSet:
    """Return the fields that are in any of the sets, joined pairwise for efficiency."""
    left = list(sets)
    while len(left) > 1:
        odd = left[-1:] if len(left) % 2 else []
        left = [union(left[index], left[index + 1]) for index in range(0, len(left) - 1, 2)] + odd
    return left[0] if left else LEAF


def _union_below(left: FieldSet, right: FieldSet) -> FieldSet:
    if not left:
        return left if not right else _with_self(right)
    if not right:
        return _with_self(left)
    return union(left, right)


def _with_self(node: FieldSet) -> FieldSet:
    return node if SELF in node else {SELF: LEAF, **node}


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the fields that are in both sets."""
    if left is right:
        return left
    common: FieldSet = {}
    for element, mine in left.items():
        theirs = right.get(element)
        if theirs is None:
            continue
        both = _intersection_below(mine, theirs)
        if both is not None:
            common[element] = both
    return common


def _intersection_below(left: FieldSet, right: FieldSet) -> FieldSet | None:
    if not left:
        return LEAF if not right or SELF in right else None
    if not right:
        return LEAF if SELF in left else None
    common = intersection(left, right)  # "." is an element like the others here
    if not common:
        return None
    return LEAF if len(common) == 1 and SELF in common else common


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the fields of the first set that are not in the second; fields below them are kept."""
    if not right or not left:
        return left
    if left is right:
        return {}
    rest: FieldSet | None = None
    for element, theirs in right.items():
        mine = left.get(element)
        if mine is None:
            continue
        kept = _difference_below(mine, theirs)
        if kept is mine:
            continue
        if rest is None:
            rest = dict(left)
        if kept is None:
            del rest[element]
        else:
            rest[element] = kept
    return left if rest is None else rest


def _difference_below(left: FieldSet, right: FieldSet) -> FieldSet | None:
    if not left:
        return None if not right or SELF in right else left
    if not right:
        right = {SELF: LEAF}
    kept = difference(left, right)
    if kept is left:
        return left
    if not kept:
        return None
    return LEAF if len(kept) == 1 and SELF in kept else kept


def without(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the first set without the fields of the second and everything below them."""
    if not right or not left:
        return left
    rest: FieldSet | None = None
    for element, theirs in right.items():
        mine = left.get(element)
        if mine is None:
            continue
        if not theirs or SELF in theirs:
            kept = None
        else:
            below = without(mine, theirs)
            if below is mine:
                continue
            kept = None if not below else LEAF if len(below) == 1 and SELF in below else below
        if rest is None:
            rest = dict(left)
        if kept is None:
            del rest[element]
        else:
            rest[element] = kept
    return left if rest is None else rest


def has_member(fields: FieldSet, element: str) -> bool:
    """Report whether the element is a member of the set's root level."""
    below = fields.get(element)
    return below is not None and (not below or SELF in below)


def has_path(fields: FieldSet, path: tuple[str, ...]) -> bool:
    """Report whether the field at a path is in the set."""
    here: FieldSet | None = fields
    for element in path[:-1]:
        here = here.get(element) if here else None
    return bool(path) and here is not None and has_member(here, path[-1])


def iter_paths(fields: FieldSet, sort_key: Any, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every path of the set: the fields of a level first, sorted, then those below each."""
    elements = sorted((element for element in fields if element != SELF), key=sort_key)
    for element in elements:
        if has_member(fields, element):
            yield (*prefix, element)
    for element in elements:
        if fields[element]:
            yield from iter_paths(fields[element], sort_key, (*prefix, element))


def from_paths(paths: Any) -> FieldSet:
    """Return the set of the given paths."""
    root: FieldSet = {}
    for path in paths:
        here = root
        for element in path[:-1]:
            below = here.get(element)
            if below is None:
                below = here[element] = {}
            elif not below:
                below[SELF] = LEAF
            here = below
        last = here.get(path[-1])
        if last is None:
            here[path[-1]] = {}
        elif last:
            last[SELF] = LEAF
    return root
