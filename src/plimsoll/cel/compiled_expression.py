"""`CompiledExpression`: base of compiled selectors and of compiled derived attributes."""

from __future__ import annotations

from plimsoll.cel.check import CheckedExpr
from plimsoll.cel.interpreter.program import Program
from plimsoll.cel.static.attribute_reads import find_attributes_read
from plimsoll.cel.static.environment import Environment


class CompiledExpression:
    """An expression that was checked and planned."""

    __slots__ = ("_checked", "_program", "attributes_read")

    def __init__(self, checked: CheckedExpr) -> None:
        self._checked = checked
        self._program = Program(checked)
        #: (domain, name) of the attributes that decide the result; None if any may.
        self.attributes_read = find_attributes_read(checked.root)

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
