"""Compiled CEL expressions of any environment, evaluated by the interpreter with named variables.

`compile_expression` returns an `Expression`; errors in the text are CelCompileError, which
`format_compile_error` renders as cel-go does. Device selectors have a compiler of their own (`selector.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from plimsoll.cel.check import check_expression
from plimsoll.cel.interpreter.evaluation import COST_LIMIT, Evaluation, over_limit
from plimsoll.cel.interpreter.planner import plan_expression
from plimsoll.cel.recursion import run_on_new_stack, run_with_stack
from plimsoll.cel.static.environment import Declarations
from plimsoll.cel.types import CelType
from plimsoll.cel.values import Value
from plimsoll.errors import CelCompileError, CelCostError, CelRuntimeError


class ExpressionResult(NamedTuple):
    """Result of an evaluation: a value or an error, and its cost."""

    value: Value
    error: CelRuntimeError | None
    cost: int


class Expression:
    """A compiled expression."""

    __slots__ = ("_closure", "_slots", "result_type", "source")

    def __init__(self, source: str, environment: Declarations) -> None:
        checked = check_expression(source, environment)
        try:
            self._closure, self._slots = run_with_stack(lambda: plan_expression(checked))
        except RecursionError:
            raise CelCompileError("expression is nested too deeply") from None
        self.source = source
        self.result_type: CelType = checked.result

    def evaluate(self, variables: Mapping[str, Value], limit: int = COST_LIMIT) -> ExpressionResult:
        """Evaluate with the variables of the environment; the result includes the cost and any error."""
        run = Evaluation(None, limit, self._slots)
        run.variables = variables
        try:
            value = self._evaluate(run)
            if run.left < 0:
                raise over_limit(run)
        except CelRuntimeError as error:
            return ExpressionResult(None, error, run.cost)
        return ExpressionResult(value, None, run.cost)

    def _evaluate(self, run: Evaluation) -> Value:
        try:
            return self._closure(run)
        except RecursionError:
            run.restart()
        try:
            return run_on_new_stack(lambda: self._closure(run))
        except RecursionError:
            raise CelCostError("operation cancelled: values are nested too deeply") from None


def compile_expression(source: str, environment: Declarations) -> Expression:
    """Compile an expression; raises CelCompileError."""
    return Expression(source, environment)


def format_compile_error(source: str, error: CelCompileError) -> str:
    """Return the errors with their line and column, the line, and a mark below the column, as cel-go does."""
    return "\n".join(_format_one(source, one) for one in (error, *error.others))


def _format_one(source: str, error: CelCompileError) -> str:
    before = source[: error.position]
    line = before.count("\n")
    column = len(before) - (before.rfind("\n") + 1)
    text = source.split("\n")[line].replace("\t", " ")
    return f"ERROR: <input>:{line + 1}:{column + 1}: {error}\n | {text}\n | {'.' * column}^"
