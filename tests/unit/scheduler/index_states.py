"""States of indexes in a comparable form."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Fields that an index derives when it is asked, and discards when something changes.
CACHES = frozenset({"_sums", "_stale", "_known", "_journal"})
#: Indexes that only remember results: they may forget more than they must, or know more than before.
MEMORIES = frozenset({"UnschedulableCache", "SearchCache", "ChargingClasses"})


def comparable(value: Any, caches: frozenset[str] = CACHES) -> Any:
    """Return the state of an index in a comparable form, without empty entries and caches.

    An entry with nothing in it means the same as no entry.
    """
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    if isinstance(value, dict):
        seen = {key: comparable(each, caches) for key, each in value.items()}
        empty: tuple[Any, ...] = ({}, (), frozenset())
        return {key: each for key, each in seen.items() if each not in empty and key not in caches}
    if isinstance(value, list | tuple):
        return tuple(comparable(each, caches) for each in value)
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if type(value).__module__.startswith("plimsoll.scheduler") and hasattr(value, "__dict__"):
        return comparable(vars(value), caches)
    if hasattr(value, "__slots__") and type(value).__module__.startswith("plimsoll.scheduler"):
        fields = {name: getattr(value, name) for name in value.__slots__ if hasattr(value, name)}
        return comparable(fields, caches)
    return value
