"""Ordered keys, compared with a list that is sorted every time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.scheduler.queue.ordered_keys import OrderedKeys

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef"), st.integers(0, 5)),
        st.tuples(st.just("drop"), st.sampled_from("abcdef"), st.just(0)),
        st.tuples(st.just("take"), st.just(""), st.just(0)),
        st.tuples(st.just("up to"), st.just(""), st.integers(0, 5)),
    )
)


@given(_STEPS)
def test_agrees_with_a_sorted_list(steps: list[tuple[str, str, int]]) -> None:
    keys, naive = OrderedKeys(), dict[str, tuple[int, int]]()
    for number, (what, key, order) in enumerate(steps):
        expected = sorted(naive, key=naive.__getitem__)
        match what:
            case "put":
                keys.put(key, (order,))
                naive[key] = (order, number)
            case "drop":
                assert keys.remove(key) is (naive.pop(key, None) is not None)
            case "take":
                assert keys.pop() == (expected[0] if expected else None)
                if expected:
                    del naive[expected[0]]
            case _:
                found = keys.pop_up_to(order)
                assert found == [each for each in expected if naive[each][0] <= order]
                for each in found:
                    del naive[each]
        assert len(keys) == len(naive)
        assert all(each in keys for each in naive)
        first = keys.first()
        assert (first and first[1]) == (min(naive, key=naive.__getitem__) if naive else None)


def test_removed_keys_are_compacted() -> None:
    keys = OrderedKeys()
    for number in range(10_000):
        keys.put(f"k{number % 10}", (number,))
    assert len(keys) == 10
    assert len(keys.heap) < 200
