"""Closures for comprehensions: `all`, `exists`, `exists_one`, `map`, `filter`, two-variable macros and bind.

The checked tree contains macros in expanded form, as folds over an accumulator. Each macro has its own loop,
which charges exactly the cost of evaluating the expanded form: for `all`, reading the accumulator and testing
it (2) and reading it again in the step (1) per element, and so on. A failing step does not end a fold; its
error becomes the accumulator, which later elements may replace only where CEL's `&&` and `||` would.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plimsoll.cel.functions.maps import insert
from plimsoll.cel.interpreter.access import Closure
from plimsoll.cel.interpreter.evaluation import Evaluation, over_limit
from plimsoll.cel.overloads.costs import LIST_COST
from plimsoll.cel.values import (
    UNABSORBED,
    DomainMap,
    Value,
    from_key,
    is_map,
    no_overload,
    type_name,
)
from plimsoll.errors import CelRuntimeError

UNSET = object()


@dataclass(frozen=True, slots=True)
class ElementFailure:
    """Value of a variable whose evaluation failed; every read raises the error again."""

    error: CelRuntimeError


@dataclass(frozen=True, slots=True)
class ComprehensionLoop:
    """The iterated value, and the slots of the iteration variables (`second` is negative if absent)."""

    over: Closure
    first: int
    second: int

    def items(self, run: Evaluation) -> Iterable[Value]:
        """Return the elements: list elements or keys; for two variables pairs of index or key and value."""
        source = self.over(run)
        kind = type(source)
        if kind is list:
            return source if self.second < 0 else enumerate(source)
        if kind is dict or kind is DomainMap:
            if self.second < 0:
                return [from_key(key) for key in source]
            return [(from_key(key), value) for key, value in source.items()]
        raise CelRuntimeError(f"got '{type_name(source)}', expected iterable type")

    def bind(self, run: Evaluation, item: Value) -> None:
        if self.second < 0:
            run.slots[self.first] = item
        else:
            run.slots[self.first], run.slots[self.second] = item


def _absorbed(error: CelRuntimeError) -> CelRuntimeError:
    if isinstance(error, UNABSORBED):
        raise error
    return error


def quantifier(loop: ComprehensionLoop, predicate: Closure, deciding: bool) -> Closure:
    """Evaluate `all` (false decides) or `exists` (true decides)."""
    condition_cost = 3 if deciding else 2  # `exists` negates the accumulator first
    first, single = loop.first, loop.second < 0

    def fold(run: Evaluation) -> bool:
        slots = run.slots
        decided = False
        failure: CelRuntimeError | None = None
        for item in loop.items(run):
            run.left -= condition_cost
            if decided:
                break
            run.left -= 1
            if run.left < 0:
                raise over_limit(run)
            if single:
                slots[first] = item
            else:
                loop.bind(run, item)
            try:
                value = predicate(run)
            except CelRuntimeError as error:
                failure = failure or _absorbed(error)
                continue
            if value is deciding:
                decided, failure = True, None
            elif type(value) is not bool:
                failure = failure or CelRuntimeError("no such overload")
        run.charge(1)
        if failure is not None:
            raise failure
        return deciding if decided else not deciding

    return fold


def exactly_one(loop: ComprehensionLoop, predicate: Closure) -> Closure:
    """Evaluate `exists_one`: an error anywhere is an error."""

    def fold(run: Evaluation) -> bool:
        count = 0
        failure: CelRuntimeError | None = None
        for item in loop.items(run):
            if run.left < 0:
                raise over_limit(run)
            loop.bind(run, item)
            try:
                value = predicate(run)
            except CelRuntimeError as error:
                failure = _absorbed(error)
                continue
            if value is True:
                run.left -= 2
                count += 1
            elif value is not False:
                failure = CelRuntimeError("no such overload")
        run.charge(2)
        if failure is not None:
            raise failure
        return count == 1

    return fold


def to_list(loop: ComprehensionLoop, keep: Closure | None, item: Closure, constant_item: bool) -> Closure:
    """Evaluate `map`, `filter` or `transformList`."""
    step_cost = 1 if constant_item else 1 + LIST_COST

    def fold(run: Evaluation) -> list[Value]:
        result: list[Value] = []
        failure: CelRuntimeError | None = None
        for element in loop.items(run):
            if run.left < 0:
                raise over_limit(run)
            loop.bind(run, element)
            try:
                if keep is not None and not _kept(keep(run)):
                    continue
            except CelRuntimeError as error:
                failure = _absorbed(error)
                continue
            run.left -= 1
            try:
                value = item(run)
            except CelRuntimeError as error:
                failure = failure or _absorbed(error)
            else:
                if failure is None:
                    result.append(value)
            run.left -= step_cost
        run.charge(1)
        if failure is not None:
            raise failure
        return result

    return fold


def _kept(value: Value) -> bool:
    if type(value) is not bool:
        raise CelRuntimeError("no such overload")
    return value


def to_map(loop: ComprehensionLoop, keep: Closure | None, value: Closure) -> Closure:
    """Evaluate `transformMap`: the first variable is the key."""

    def fold(run: Evaluation) -> dict[Value, Value]:
        result: dict[Value, Value] = {}
        failure: CelRuntimeError | None = None
        for element in loop.items(run):
            if run.left < 0:
                raise over_limit(run)
            loop.bind(run, element)
            try:
                if keep is not None and not _kept(keep(run)):
                    continue
            except CelRuntimeError as error:
                failure = _absorbed(error)
                continue
            run.left -= 1
            if failure is not None:
                continue  # inserting into an error stops at its first argument
            run.left -= 1
            try:
                made = value(run)
                insert(result, run.slots[loop.first], made)
            except CelRuntimeError as error:
                failure = _absorbed(error)
            run.left -= 1
        run.charge(1)
        if failure is not None:
            raise failure
        return result

    return fold


def to_map_entries(loop: ComprehensionLoop, keep: Closure | None, entry: Closure) -> Closure:
    """Evaluate `transformMapEntry`: each step yields a map to merge."""

    def fold(run: Evaluation) -> dict[Value, Value]:
        result: dict[Value, Value] = {}
        failure: CelRuntimeError | None = None
        for element in loop.items(run):
            if run.left < 0:
                raise over_limit(run)
            loop.bind(run, element)
            try:
                if keep is not None and not _kept(keep(run)):
                    continue
            except CelRuntimeError as error:
                failure = _absorbed(error)
                continue
            run.left -= 1
            try:
                made = entry(run)
                if failure is None:
                    _merge(run, result, made)
            except CelRuntimeError as error:
                failure = failure or _absorbed(error)
            run.left -= 1
        run.charge(1)
        if failure is not None:
            raise failure
        return result

    return fold


def _merge(run: Evaluation, target: dict[Value, Value], entries: Value) -> None:
    if not is_map(entries):
        raise no_overload("cel.@mapInsert", target, entries)
    run.spend(len(entries))
    for key, value in entries.items():
        insert(target, from_key(key), value)


def bind(slots: tuple[int, ...], result: Closure) -> Closure:
    """Evaluate `cel.bind`: the value is computed when it is first read.

    DIFF: adding to a bound empty list leaves the variable alone; upstream appends to it
    (test_bound_empty_list_does_not_change).
    """

    def evaluate(run: Evaluation) -> Value:
        for slot in slots:
            run.slots[slot] = UNSET
        return result(run)

    return evaluate


def bound_variable(slot: int, init: Closure) -> Closure:
    """Read a bound variable, computing it at the first read; a failure is stored like a value."""

    def read(run: Evaluation) -> Value:
        value = run.slots[slot]
        if value is UNSET:
            try:
                value = init(run)
            except CelRuntimeError as error:
                run.slots[slot] = ElementFailure(_absorbed(error))
                raise
            run.slots[slot] = value
        elif type(value) is ElementFailure:
            raise value.error
        return value

    return read
