"""Tables that fit: nothing is cut, at any width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.tools.columns import format_fitting_table, format_table

CELLS = st.lists(st.text("ab/-.", min_size=1, max_size=30), min_size=1, max_size=4).map(" ".join)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(40, 200))
def test_a_table_is_as_wide_as_it_may_be_and_complete(rows: list[tuple[str, ...]], width: int) -> None:
    rows = [("NAME", "NODE", "DEVICES"), *rows]
    table = list(format_table(rows))
    lines = list(format_fitting_table(rows, width))
    if max(map(len, table)) <= width:
        assert lines == table
        return
    assert all(len(line) <= width or len(line.split()) <= 2 for line in lines)
    shown = [word for line in lines for word in line.split()]
    for row in rows[1:]:
        for cell in row:
            assert cell == "-" or all(word in shown for word in cell.split())
