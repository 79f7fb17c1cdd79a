"""Shuffle sharding: each flow is dealt a hand of queues, so that two flows seldom have all queues in common.

The hash of a flow is read as a mixed-radix number, whose digits choose distinct queues.
"""

from __future__ import annotations

import hashlib
import math

#: More bits of the hash would make the last queue of a hand uneven.
MAX_HASH_BITS = 60


def required_entropy_bits(queues: int, hand_size: int) -> int:
    """Return the bits of a hash that a hand needs."""
    return math.ceil(math.log2(queues) * hand_size)


def fits_entropy(queues: int, hand_size: int) -> bool:
    return required_entropy_bits(queues, hand_size) <= MAX_HASH_BITS


def hash_flow(schema: str, distinguisher: str) -> int:
    """Return 64 bits that identify a flow."""
    digest = hashlib.sha256(f"{schema}\0{distinguisher}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def deal_hand(hash: int, queues: int, hand_size: int) -> tuple[int, ...]:
    """Return the numbers of the queues that a flow uses, all different."""
    taken = list[int]()  # in ascending order
    hand = []
    for dealt in range(hand_size):
        hash, number = divmod(hash, queues - dealt)
        for other in taken:
            if number >= other:
                number += 1
        taken.append(number)
        taken.sort()
        hand.append(number)
    return tuple(hand)
