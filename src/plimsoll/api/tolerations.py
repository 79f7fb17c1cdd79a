"""Matching of tolerations and node taints, for scheduling and eviction.

An empty effect or key matches all; values are compared for equality, existence, or (operators Lt and Gt) as
integers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from plimsoll.api.core import Taint, Toleration

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration matches a taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return _compares(toleration, taint)
    return False


def is_tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether any of these tolerations matches a taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def _compares(toleration: Toleration, taint: Taint) -> bool:
    """Compare integer values (operators Lt and Gt)."""
    if not (_WHOLE.fullmatch(toleration.value) and _WHOLE.fullmatch(taint.value)):
        return False
    limit, value = int(toleration.value), int(taint.value)
    return value < limit if toleration.operator == "Lt" else value > limit
