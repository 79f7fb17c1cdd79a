"""Shuffle sharding: hands of distinct queues, evenly distributed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common.shuffle_sharding import deal_hand, fits_entropy, hash_flow, required_entropy_bits


@given(
    st.integers(0, 2**64 - 1),
    st.integers(1, 128).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, min(n, 8)))),
)
def test_a_hand_is_that_of_a_deck_from_which_cards_are_drawn(value: int, sizes: tuple[int, int]) -> None:
    queues, hand_size = sizes
    deck, hand, rest = list(range(queues)), [], value
    for _ in range(hand_size):
        rest, place = divmod(rest, len(deck))
        hand.append(deck.pop(place))
    assert deal_hand(value, queues, hand_size) == tuple(hand)


def test_flows_are_spread_over_all_queues() -> None:
    dealt = Counter(
        number for flow in range(3000) for number in deal_hand(hash_flow("schema", str(flow)), 16, 4)
    )
    assert set(dealt) == set(range(16))
    assert max(dealt.values()) < 2 * min(dealt.values())


def test_schema_and_distinguisher_are_separated() -> None:
    assert hash_flow("ab", "c") != hash_flow("a", "bc")


def test_hands_need_no_more_bits_than_a_hash_has() -> None:
    assert required_entropy_bits(128, 6) == 42
    assert fits_entropy(64, 10)
    assert not fits_entropy(64, 11)
