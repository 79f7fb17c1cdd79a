"""The state of one evaluation: what it may still cost, what work it may still do, and its variables.

`left` is what remains of the cost limit, in CEL's units. `allowance` pays for work and memory that CEL's
model prices at next to nothing (adding lists, comparing nested values, growing strings by `replace`), so that
every evaluation ends in bounded time and space whatever the expression.
"""

from __future__ import annotations

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
    """One evaluation under way."""

    __slots__ = ("allowance", "device", "left", "limit", "slots")

    def __init__(self, device: CelDevice, limit: int, slots: int) -> None:
        self.device = device
        self.limit = limit
        self.left = limit
        self.allowance = ALLOWANCE
        if slots:
            self.slots: list[Value] = [None] * slots

    def restart(self) -> None:
        """Forget what an evaluation has spent that is to be done again."""
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
        # Upstream counts in uint64: a negative charge shrinks the cost, and below zero it is past any limit.
        if self.left < 0 or self.left > self.limit:
            raise CelCostError("operation cancelled: actual cost limit exceeded")


def over_limit(run: Evaluation) -> CelCostError:
    """Return the error for an exceeded limit in steps of 1: evaluation stops right after it."""
    run.left = -1
    return CelCostError("operation cancelled: actual cost limit exceeded")
