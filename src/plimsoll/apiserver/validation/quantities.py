"""Rounding of resource quantities before they are stored."""

from __future__ import annotations

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.object_trees import Tree

_MILLI = -3


def round_resource_list(amounts: Tree | None) -> None:
    """Round the quantities of a canonical resource list up to thousandths in place, as the core API stores
    them.
    """
    for name, text in (amounts or {}).items():
        amount = Quantity.parse(text)
        if amount.scale is None or amount.scale < _MILLI:
            amounts[name] = str(amount.round_up(_MILLI)[0])  # type: ignore[index]
