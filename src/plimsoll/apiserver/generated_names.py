"""Names that the server generates: a prefix and a random suffix."""

from __future__ import annotations

import random
from collections.abc import Callable

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that generated names contain no words
_SUFFIX_LENGTH = 5
_PREFIX_MAX = 63 - _SUFFIX_LENGTH


def generate_name(prefix: str, choose: Callable[[str], str] = random.choice) -> str:
    """Generate a name from a prefix, which is truncated if necessary."""
    return prefix[:_PREFIX_MAX] + "".join(choose(_ALPHABET) for _ in range(_SUFFIX_LENGTH))
