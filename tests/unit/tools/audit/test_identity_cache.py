"""Values are computed once per part, and parts that are merely equal are different parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.tools.audit.identity_cache import IdentityCache


def test_a_part_is_computed_once_for_each_context() -> None:
    cache: IdentityCache[str] = IdentityCache()
    part, calls = ["a"], []

    def make(text: str) -> str:
        calls.append(text)
        return text

    assert cache.get(part, lambda: make("one"), "x") == "one"
    assert cache.get(part, lambda: make("two"), "x") == "one"
    assert cache.get(part, lambda: make("three"), "y") == "three"
    assert cache.get(["a"], lambda: make("four"), "x") == "four"
    assert calls == ["one", "three", "four"]


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=40))
def test_deleted_parts_are_not_confused(contents: list[list[int]]) -> None:
    """Without the reference in the cache, a new part could get the address of one that was deleted."""
    cache: IdentityCache[int] = IdentityCache()
    for content in contents:
        part = list(content)
        assert cache.get(part, lambda part=part: sum(part)) == sum(content)  # type: ignore[misc]
        del part
