"""JSON trees as a Hypothesis strategy."""

from __future__ import annotations

from hypothesis import strategies as st

json_trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
).filter(lambda tree: tree is not None)
