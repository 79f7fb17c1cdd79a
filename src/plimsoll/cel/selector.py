"""Compiled device selectors: the public face of the CEL compiler.

`compile_selector` gives a `Selector`; `matches` asks it about a flattened device and is meant to be called
often. It runs generated code where the expression has one of the usual shapes and the exact closures
otherwise; both give the same answers. Errors of a device are raised as CelRuntimeError (CelCostError past the
cost limit).
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.cel.check import CheckedExpr, check
from plimsoll.cel.codegen.generator import generate
from plimsoll.cel.device import CelDevice
from plimsoll.cel.interpreter.evaluation import COST_LIMIT
from plimsoll.cel.interpreter.planner import EvaluationResult, Program
from plimsoll.cel.static.environment import Environment


class Selector:
    """One expression, ready to be asked about devices."""

    __slots__ = ("_checked", "_program", "is_fast", "matches")

    #: Whether a device matches; raises CelRuntimeError if the expression fails on it.
    matches: Callable[[CelDevice], bool]
    #: Whether generated code is used; known after the first `matches`.
    is_fast: bool | None

    def __init__(self, checked: CheckedExpr) -> None:
        self._checked = checked
        self._program = Program(checked)
        self.is_fast = None
        # Most compiled expressions are only ever validated, so code is generated when first asked for.
        self.matches = self._first_match

    @property
    def expression(self) -> str:
        return self._checked.source

    @property
    def environment(self) -> Environment:
        return self._checked.environment

    @property
    def estimated_cost(self) -> int:
        """The worst-case cost, which admission compares with the limit."""
        return self._checked.estimated_cost

    @property
    def too_expensive(self) -> bool:
        """True if admission would reject the expression."""
        return self.estimated_cost > COST_LIMIT

    def evaluate_exact(self, device: CelDevice, cost_limit: int = COST_LIMIT) -> EvaluationResult:
        """Return the result or error, and the cost, of the reference back end."""
        return self._program.evaluate(device, cost_limit)

    def matches_exact(self, device: CelDevice) -> bool:
        """Evaluate `matches` without generated code."""
        return self._program.matches(device)

    def _first_match(self, device: CelDevice) -> bool:
        generated = generate(self._checked, self._program.matches, COST_LIMIT)
        self.is_fast = generated is not None
        self.matches = generated or self._program.matches
        return self.matches(device)


def compile_selector(expression: str, environment: Environment | None = None) -> Selector:
    """Compile an expression; raises CelCompileError."""
    return Selector(check(expression, environment or Environment()))
