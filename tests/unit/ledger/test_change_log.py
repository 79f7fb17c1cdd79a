"""The change log returns the rows changed since a position, or None if it is too old."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.ledger.change_log import NodeChangeLog


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 30))
def test_everything_after_a_mark_is_returned(places: list[int], cut: int) -> None:
    change_log, mark = NodeChangeLog(), 0
    for number, place in enumerate(places):
        if number == cut:
            mark = change_log.mark
        change_log.note(place)
    assert change_log.since(mark) == (places[cut:] if cut < len(places) else places)
    assert change_log.since(change_log.mark) == []


def test_changes_before_the_log_are_reported_as_lost() -> None:
    change_log = NodeChangeLog()
    early, marks = change_log.mark, []
    for place in range(20_000):
        marks.append(change_log.mark)
        change_log.note(place)
    assert change_log.since(early) is None
    assert change_log.since(marks[19_000]) == [*range(19_000, 20_000)]
    for mark in marks[::211]:
        expected = change_log.since(mark)
        assert expected is None or expected == [*range(mark, 20_000)]
