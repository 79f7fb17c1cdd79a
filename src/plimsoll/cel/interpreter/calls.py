"""Closures for calls: arguments, cost, choice of overload.

A call of one or two arguments evaluates them all, even after one has failed, and is charged; a call that
stops `early` at a failing argument is charged only if that was the last one. Both rules are cel-go's and are
visible in the cost of a failing expression.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TypeAlias

from plimsoll.cel.comparison import equal
from plimsoll.cel.interpreter.access import Closure
from plimsoll.cel.interpreter.evaluation import Evaluation, over_limit
from plimsoll.cel.overloads.costs import FAILED, CallCost
from plimsoll.cel.overloads.overload import Function, Overload
from plimsoll.cel.overloads.signatures import Param
from plimsoll.cel.values import UNABSORBED, Value, no_overload
from plimsoll.errors import CelRuntimeError

Apply: TypeAlias = Callable[..., Value]


def choose(function: Function, overloads: tuple[str, ...]) -> tuple[Apply, bool]:
    """Return the implementation of a call, which takes the evaluation and the arguments, and whether it
    stops early.
    """
    if function.dynamic is not None:
        return (function.dynamic if function.metered else _unmetered(function.dynamic)), False
    settled = function.by_id.get(overloads[0]) if len(overloads) == 1 else None
    if settled is None and len(function.overloads) == 1:
        settled = function.overloads[0]
    if settled is not None:
        return _guarded(function, settled), settled.early
    return _dispatched(function), True


def _unmetered(call: Apply) -> Apply:
    return lambda run, *args: call(*args)


def _guarded(function: Function, overload: Overload) -> Apply:
    call, name = overload.call, function.name
    params = overload.params
    if any(param.item is not None for param in params) or len(params) > 2 or not params:
        return _guarded_slowly(function, overload)
    if len(params) == 1:
        return _guarded_one(name, call, params[0], overload.metered)
    return _guarded_two(name, call, params, overload.metered)


def _guarded_slowly(function: Function, overload: Overload) -> Apply:
    call, name, metered = overload.call, function.name, overload.metered

    def apply(run: Evaluation, *args: Value) -> Value:
        if not overload.accepts(args):
            raise no_overload(name, *args)
        return call(run, *args) if metered else call(*args)

    return apply


def _guarded_one(name: str, call: Apply, param: Param, metered: bool) -> Apply:
    kind = param.kind
    if kind is None:
        return call if metered else _unmetered(call)

    def apply(run: Evaluation, a: Value) -> Value:
        if type(a) is not kind:
            raise no_overload(name, a)
        return call(run, a) if metered else call(a)

    return apply


def _guarded_two(name: str, call: Apply, params: tuple[Param, ...], metered: bool) -> Apply:
    left, right = params[0].kind, params[1].kind

    def apply(run: Evaluation, a: Value, b: Value) -> Value:
        if (left is not None and type(a) is not left) or (right is not None and type(b) is not right):
            raise no_overload(name, a, b)
        return call(run, a, b) if metered else call(a, b)

    return apply


def _dispatched(function: Function) -> Apply:
    overloads, name = function.overloads, function.name

    def apply(run: Evaluation, *args: Value) -> Value:
        for overload in overloads:
            if overload.accepts(args):
                return overload.call(run, *args) if overload.metered else overload.call(*args)
        raise no_overload(name, *args)

    return apply


# -- evaluation


def call_closure(apply: Apply, args: tuple[Closure, ...], cost: CallCost, early: bool) -> Closure:
    """Return a closure that evaluates a call."""
    if len(args) == 1:
        return _call_one(apply, args[0], cost)
    if len(args) == 2 and not early:
        return _call_two(apply, args[0], args[1], cost)
    return _call_many(apply, args, cost)


def _call_one(apply: Apply, arg: Closure, cost: CallCost) -> Closure:
    if cost.measure is None:
        fixed = cost.fixed

        def call_fixed(run: Evaluation) -> Value:
            try:
                a = arg(run)
            except CelRuntimeError as error:
                raise _charge_failed(run, error, cost, (FAILED,)) from None
            run.left -= fixed
            if run.left < 0:
                raise over_limit(run)
            return apply(run, a)

        return call_fixed

    def call(run: Evaluation) -> Value:
        try:
            a = arg(run)
        except CelRuntimeError as error:
            raise _charge_failed(run, error, cost, (FAILED,)) from None
        return _call_at_cost(run, apply, cost, (a,))

    return call


def _call_two(apply: Apply, left: Closure, right: Closure, cost: CallCost) -> Closure:
    if cost.measure is None:
        fixed = cost.fixed

        def call_fixed(run: Evaluation) -> Value:
            try:
                a = left(run)
            except CelRuntimeError as error:
                raise _charge_failed_left(run, error, right, cost) from None
            try:
                b = right(run)
            except CelRuntimeError as error:
                raise _charge_failed(run, error, cost, (a, FAILED)) from None
            run.left -= fixed
            if run.left < 0:
                raise over_limit(run)
            return apply(run, a, b)

        return call_fixed

    def call(run: Evaluation) -> Value:
        try:
            a = left(run)
        except CelRuntimeError as error:
            raise _charge_failed_left(run, error, right, cost) from None
        try:
            b = right(run)
        except CelRuntimeError as error:
            raise _charge_failed(run, error, cost, (a, FAILED)) from None
        return _call_at_cost(run, apply, cost, (a, b))

    return call


def _call_many(apply: Apply, args: tuple[Closure, ...], cost: CallCost) -> Closure:
    count = len(args)

    def call(run: Evaluation) -> Value:
        values: list[Value] = []
        try:
            for arg in args:
                values.append(arg(run))
        except CelRuntimeError as error:
            if len(values) == count - 1:
                raise _charge_failed(run, error, cost, (*values, FAILED)) from None
            raise
        return _call_at_cost(run, apply, cost, tuple(values))

    return call


def _call_at_cost(run: Evaluation, apply: Apply, cost: CallCost, args: tuple[Value, ...]) -> Value:
    if not cost.after:
        run.charge(cost.of(run, args))
        return apply(run, *args)
    try:
        result = apply(run, *args)
    except CelRuntimeError as error:
        raise _charge_failed(run, error, cost, args) from None
    run.charge(cost.of(run, args, result))
    return result


def _charge_failed(
    run: Evaluation, error: CelRuntimeError, cost: CallCost, args: tuple[Value, ...]
) -> CelRuntimeError:
    """Charge for a call that failed; return the error to raise."""
    if not isinstance(error, UNABSORBED):
        run.charge(cost.of(run, args))
    return error


def _charge_failed_left(
    run: Evaluation, error: CelRuntimeError, right: Closure, cost: CallCost
) -> CelRuntimeError:
    """Evaluate the right argument after the left one failed."""
    if isinstance(error, UNABSORBED):
        return error
    try:
        b = right(run)
    except CelRuntimeError as other:
        if isinstance(other, UNABSORBED):
            return other
        b = FAILED
    return _charge_failed(run, error, cost, (FAILED, b))


# -- operators with their own evaluation rules


def equality(left: Closure, right: Closure, cost: CallCost, negated: bool) -> Closure:
    """Evaluate `==` and `!=`; incomparable operands are an error for `==` and true for `!=`, as upstream."""

    def compare(run: Evaluation) -> bool:
        try:
            a = left(run)
        except CelRuntimeError as error:
            raise _charge_failed_left(run, error, right, cost) from None
        try:
            b = right(run)
        except CelRuntimeError as error:
            raise _charge_failed(run, error, cost, (a, FAILED)) from None
        if type(a) is str and type(b) is str:
            run.left -= ceil(min(len(a), len(b)) * 0.1)
            if run.left >= 0:
                return (a == b) is not negated
        run.charge(cost.of(run, (a, b)))
        if not negated:
            return equal(a, b, run)
        try:
            return not equal(a, b, run)
        except CelRuntimeError as error:
            if isinstance(error, UNABSORBED):
                raise
            return True

    return compare


def logical(terms: tuple[Closure, ...], deciding: bool) -> Closure:
    """Evaluate `||` (true decides) or `&&` (false decides): an error counts only if no other term decides."""

    def evaluate(run: Evaluation) -> bool:
        failure: CelRuntimeError | None = None
        for term in terms:
            try:
                value = term(run)
            except CelRuntimeError as error:
                if isinstance(error, UNABSORBED):
                    raise
                failure = failure or error
                continue
            if value is deciding:
                return bool(value)
            if type(value) is not bool:
                failure = failure or CelRuntimeError("no such overload")
        if failure is not None:
            raise failure
        return not deciding

    return evaluate
