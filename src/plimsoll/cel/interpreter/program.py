"""Programs of the interpreter: planned expressions, evaluated for one device at a time."""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.cel.check import CheckedExpr
from plimsoll.cel.device import CelDevice
from plimsoll.cel.interpreter.evaluation import COST_LIMIT, Evaluation, over_limit
from plimsoll.cel.interpreter.planner import plan_expression
from plimsoll.cel.recursion import run_on_new_stack, run_with_stack
from plimsoll.cel.values import Optional, Value, content, type_name
from plimsoll.errors import CelCompileError, CelCostError, CelRuntimeError


class EvaluationResult(NamedTuple):
    """Result of an evaluation: a bool or an error, and its cost."""

    result: bool | None
    error: CelRuntimeError | None
    cost: int


class Program:
    """Executable form of a selector in the interpreter."""

    __slots__ = ("_closure", "_lists", "_slots")

    def __init__(self, checked: CheckedExpr) -> None:
        try:
            self._closure, self._slots = run_with_stack(lambda: plan_expression(checked))
        except RecursionError:
            raise CelCompileError("expression is nested too deeply") from None
        self._lists = checked.device_environment.list_attributes

    def evaluate(self, device: CelDevice, limit: int = COST_LIMIT) -> EvaluationResult:
        """Evaluate for one device; the result includes the cost and the error, if any."""
        run = Evaluation(device, limit, self._slots)
        try:
            return EvaluationResult(self._evaluate(run), None, run.cost)
        except CelRuntimeError as error:
            return EvaluationResult(None, error, run.cost)

    def matches(self, device: CelDevice) -> bool:
        """Evaluate for one device; raises CelRuntimeError."""
        return self._evaluate(Evaluation(device, COST_LIMIT, self._slots))

    def evaluate_value(self, device: CelDevice) -> Value:
        """Return the value for one device, of any type; raises CelRuntimeError."""
        return self._evaluate_value(Evaluation(device, COST_LIMIT, self._slots))

    def _evaluate(self, run: Evaluation) -> bool:
        value = self._evaluate_value(run)
        return value if value is True or value is False else as_bool(value)

    def _evaluate_value(self, run: Evaluation) -> Value:
        device = run.device
        if device.problem is not None:
            raise CelRuntimeError(device.problem)
        if device.lists is not None and not self._lists:
            raise CelRuntimeError(f"attribute {device.lists}: unsupported attribute value")
        try:
            value = self._closure(run)
        except RecursionError:
            value = self._evaluate_deep(run)
        if run.left < 0:
            raise over_limit(run)
        return value

    def _evaluate_deep(self, run: Evaluation) -> Value:
        """Repeat the evaluation on a fresh stack, for a deep expression or value."""
        run.restart()
        try:
            return run_on_new_stack(lambda: self._closure(run))
        except RecursionError:
            raise CelCostError("operation cancelled: values are nested too deeply") from None


def as_bool(value: Value) -> bool:
    """Return the result of a selector, which must be a bool."""
    while type(value) is Optional:
        value = content(value)
    if type(value) is not bool:
        raise CelRuntimeError(f"CEL result of type {type_name(value)} could not be converted to bool")
    return value
