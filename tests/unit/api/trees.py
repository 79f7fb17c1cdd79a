"""Random API objects as JSON trees for property tests, with typed and unknown fields."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from plimsoll.api.codec import KINDS
from plimsoll.api.coercion import is_union, members, strip_optional
from plimsoll.api.meta import Wire
from plimsoll.api.quantity import Quantity

VIEWS: tuple[type[Wire], ...] = tuple(KINDS.values())

words = st.sampled_from(["a", "b", "cpu", "memory", "gpu-0", "vendor.io/x", ""])
quantities = st.sampled_from(["0", "1", "1.500", "500m", "1Gi", "1024Mi", "1e3", "-2", "10E"])
strangers = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


def tree_of(wanted: Any, draw: st.DrawFn, unknown: float = 0.15, depth: int = 0, nulls: float = 0.0) -> Any:
    """A JSON tree that decodes as `wanted`, with fields under `x-...` that no view knows.

    `nulls` is the probability that a field, list item or map value is an explicit null.
    """
    if nulls and depth and draw(st.floats(0, 1)) < nulls:
        return None
    wanted = strip_optional(wanted)
    if wanted is Any:
        return draw(strangers)
    if is_union(wanted):
        return draw(st.integers(-5, 2**16) | words)
    if wanted is Quantity:
        return draw(quantities)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        tree: dict[str, Any] = {}
        for member in members(wanted):
            if draw(st.integers(0, 9)) < (7 if depth < 3 else 3):
                tree[member.wire] = tree_of(member.type, draw, unknown, depth + 1, nulls)
        if draw(st.floats(0, 1)) < unknown:
            tree["x-" + draw(st.text("abc", max_size=2))] = draw(strangers)
        return tree
    if get_origin(wanted) is tuple:
        return [
            tree_of(get_args(wanted)[0], draw, unknown, depth + 1, nulls)
            for _ in range(draw(st.integers(0, 2)))
        ]
    if get_origin(wanted) is dict:
        keys = draw(st.lists(words, max_size=2, unique=True))
        return {key: tree_of(get_args(wanted)[1], draw, unknown, depth + 1, nulls) for key in keys}
    if wanted is bool:
        return draw(st.booleans())
    if wanted is int:
        return draw(st.integers(-5, 2**40))
    assert wanted is str
    return draw(words)


@st.composite
def objects(draw: st.DrawFn, nulls: float = 0.0) -> tuple[type[Wire], dict[str, Any]]:
    view = draw(st.sampled_from(VIEWS))
    return view, tree_of(view, draw, nulls=nulls)
