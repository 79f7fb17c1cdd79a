"""Compiled device selectors: the public interface of the CEL compiler.

`compile_selector` returns a `Selector`, whose `matches` evaluates a flattened device, with generated code for
common expressions and the interpreter otherwise; both return the same results. Errors of a device are raised
as CelRuntimeError (CelCostError beyond the cost limit).
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.cel.check import CheckedExpr, check
from plimsoll.cel.codegen.generator import generate
from plimsoll.cel.compiled_expression import CompiledExpression
from plimsoll.cel.device import CelDevice
from plimsoll.cel.interpreter.evaluation import COST_LIMIT
from plimsoll.cel.interpreter.program import EvaluationResult
from plimsoll.cel.static.environment import Environment


class Selector(CompiledExpression):
    """A compiled selector."""

    __slots__ = ("matches",)

    #: Whether a device matches; raises CelRuntimeError if the expression fails on it.
    matches: Callable[[CelDevice], bool]

    def __init__(self, checked: CheckedExpr) -> None:
        super().__init__(checked)
        # Most compiled expressions are only validated, so code is generated at the first `matches`.
        self.matches = self._first_match

    def evaluate_exact(self, device: CelDevice, cost_limit: int = COST_LIMIT) -> EvaluationResult:
        """Return the result or error, and the cost, of the interpreter."""
        return self._program.evaluate(device, cost_limit)

    def _first_match(self, device: CelDevice) -> bool:
        self.matches = generate(self._checked, self._program.matches, COST_LIMIT) or self._program.matches
        return self.matches(device)


def compile_selector(expression: str, environment: Environment | None = None) -> Selector:
    """Compile an expression; raises CelCompileError."""
    return Selector(check(expression, environment or Environment()))
