"""A journal tells what changed since a mark, or that the mark is too old."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.ledger.change_log import NodeChangeLog


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 30))
def test_everything_after_a_mark_is_told(places: list[int], cut: int) -> None:
    journal, mark = NodeChangeLog(), 0
    for number, place in enumerate(places):
        if number == cut:
            mark = journal.mark
        journal.note(place)
    assert journal.since(mark) == (places[cut:] if cut < len(places) else places)
    assert journal.since(journal.mark) == []


def test_what_is_too_long_ago_is_said_to_be() -> None:
    journal = NodeChangeLog()
    early, marks = journal.mark, []
    for place in range(20_000):
        marks.append(journal.mark)
        journal.note(place)
    assert journal.since(early) is None
    assert journal.since(marks[19_000]) == [*range(19_000, 20_000)]
    for mark in marks[::211]:
        told = journal.since(mark)
        assert told is None or told == [*range(mark, 20_000)]
