"""`CompiledExpression`: base of compiled selectors and of compiled derived attributes."""

from __future__ import annotations

from plimsoll.cel.check import CheckedExpr
from plimsoll.cel.interpreter.program import Program
from plimsoll.cel.static.environment import Environment


class CompiledExpression:
    """An expression that was checked and planned."""

    __slots__ = ("_checked", "_program")

    def __init__(self, checked: CheckedExpr) -> None:
        self._checked = checked
        self._program = Program(checked)

    @property
    def expression(self) -> str:
        return self._checked.source

    @property
    def environment(self) -> Environment:
        return self._checked.device_environment

    @property
    def estimated_cost(self) -> int:
        """The worst-case cost, which admission compares with the limit."""
        return self._checked.estimated_cost
