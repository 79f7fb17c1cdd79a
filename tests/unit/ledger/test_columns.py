"""Columns agree with the single ledgers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import INT64_MAX
from plimsoll.ledger.columns import NodeColumns
from plimsoll.ledger.fit import find_request_shortages
from plimsoll.ledger.node_ledger import NodeLedger
from tests.build import container, node, pod

AMOUNTS = st.one_of(st.integers(0, 8), st.sampled_from((INT64_MAX, INT64_MAX - 1, 2**62)))
NAMES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu")


@st.composite
def ledgers(draw: st.DrawFn) -> list[NodeLedger]:
    found = []
    for number in range(draw(st.integers(0, 5))):
        line = {n: str(draw(AMOUNTS)) for n in draw(st.lists(st.sampled_from(NAMES), unique=True))}
        ledger = NodeLedger(node(f"node-{number}", pods=str(draw(st.integers(0, 3))), extended=line))
        for index in range(draw(st.integers(0, 3))):
            wants = {n: str(draw(AMOUNTS)) for n in draw(st.lists(st.sampled_from(NAMES), unique=True))}
            ledger.add(pod(f"pod-{index}", container("a", **wants)))
        found.append(ledger)
    return found


DEMANDS = st.dictionaries(st.sampled_from(NAMES), AMOUNTS)


@given(ledgers(), DEMANDS, st.sets(st.sampled_from(NAMES)))
def test_columns_and_ledgers_agree(ledgers: list[NodeLedger], demand: dict[str, int], skip: set[str]) -> None:
    columns = NodeColumns(ledgers)
    by_requests = [
        not any(find_request_shortages(demand, b.allocatable, b.requested, len(b), skip)) for b in ledgers
    ]
    assert columns.fits_requests(demand, skip).tolist() == by_requests


@given(ledgers(), DEMANDS, st.data())
def test_a_refreshed_row_equals_a_new_one(
    ledgers: list[NodeLedger], demand: dict[str, int], data: st.DataObject
) -> None:
    columns = NodeColumns(ledgers)
    for place, ledger in enumerate(ledgers):
        if data.draw(st.booleans()):
            ledger.add(pod("late", container("a", **{n: str(a) for n, a in demand.items()})))
            columns.refresh(place, ledger)
    fresh = NodeColumns(ledgers)
    assert columns.fits_requests(demand).tolist() == fresh.fits_requests(demand).tolist()


@given(ledgers(), st.data())
def test_spare_is_allocatable_minus_non_zero_requests(ledgers: list[NodeLedger], data: st.DataObject) -> None:
    columns = NodeColumns(ledgers, size=len(ledgers) + 1)
    for place, ledger in enumerate(ledgers):
        if data.draw(st.booleans()):
            ledger.add(pod("late", container("a")))
            columns.refresh(place, ledger)
    columns.grow(len(ledgers) + 3)
    for name in NAMES:
        used = [b.non_zero[name] if name in b.non_zero else b.requested.get(name, 0) for b in ledgers]
        wanted = [
            min(INT64_MAX, max(-INT64_MAX - 1, b.allocatable.get(name, 0) - u))
            for b, u in zip(ledgers, used, strict=True)
        ]
        assert columns.non_zero_free(name).tolist() == [*wanted, 0, 0, 0]


def test_changes_name_the_touched_fields() -> None:
    ledger = NodeLedger(node("node-0"))
    columns = NodeColumns([ledger, ledger])
    mark = columns.changes.mark
    columns.refresh(1, ledger)
    columns.clear(0)
    assert columns.changes.since(mark) == [1, 0]
