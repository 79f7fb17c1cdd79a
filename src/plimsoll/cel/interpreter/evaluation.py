"""State of one evaluation: remaining cost, remaining work and variables.

`left` is the remainder of the cost limit, in CEL's units. `allowance` limits work and memory for which CEL's
cost model charges almost nothing (adding lists, comparing nested values, growing strings by `replace`), so
that the time and space of every evaluation are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plimsoll.cel.values import Value
from plimsoll.errors import CelCostError

if TYPE_CHECKING:
    from plimsoll.cel.device import CelDevice

#: The run-time cost limit of a selector.
COST_LIMIT = 1_000_000

#: List elements copied or visited beyond what the cost model charges, or eighths of characters.
#: DIFF: upstream has no such bound; test_hostile_expressions_are_bounded.
ALLOWANCE = 4_000_000


class Evaluation:
    """State of one evaluation: on a device, or with the variables of an admission policy."""

    __slots__ = ("allowance", "device", "left", "limit", "slots", "variables")

    #: Variables by name; set for admission policies only, whose `device` is None.
    variables: Mapping[str, Value]

    def __init__(self, device: CelDevice | None, limit: int, slots: int) -> None:
        self.device: CelDevice = device  # type: ignore[assignment]  # never read without one
        self.limit = limit
        self.left = limit
        self.allowance = ALLOWANCE
        if slots:
            self.slots: list[Value] = [None] * slots

    def restart(self) -> None:
        """Reset the cost and the work before the evaluation is repeated."""
        self.left = self.limit
        self.allowance = ALLOWANCE

    @property
    def cost(self) -> int:
        return self.limit - self.left

    def spend(self, amount: int) -> None:
        """Count work outside the cost model."""
        self.allowance -= amount
        if self.allowance < 0:
            raise CelCostError("operation cancelled: the expression needs too much work or memory")

    def charge(self, cost: int) -> None:
        """Count cost in CEL's units."""
        self.left -= cost
        if self.left < 0 or cost < 0:
            self._settle()

    def _settle(self) -> None:
        # Upstream counts in uint64: a negative charge reduces the cost; below zero it exceeds any limit.
        if self.left < 0 or self.left > self.limit:
            raise CelCostError("operation cancelled: actual cost limit exceeded")


def over_limit(run: Evaluation) -> CelCostError:
    """Return the error for an exceeded limit, with the cost set to the limit plus 1."""
    run.left = -1
    return CelCostError("operation cancelled: actual cost limit exceeded")
