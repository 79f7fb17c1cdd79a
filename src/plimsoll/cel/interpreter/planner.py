"""Planner of the interpreter: converts a checked tree to closures that evaluate and charge as cel-go does.

The interpreter is the reference for the generated code. Absorption of errors, order of evaluation and the
cost of every node, failed ones included, are those of cel-go v0.26 with the Kubernetes options (constant
folding of literals and conversions, sets for `in` over constant lists). Every closure calls its children
directly, so an evaluation needs about one Python frame per level of the expression.
"""

from __future__ import annotations

from typing import TypeAlias

from plimsoll.cel.check import CheckedExpr
from plimsoll.cel.functions import FUNCTIONS
from plimsoll.cel.functions.conversions import CONVERSIONS
from plimsoll.cel.functions.regex import PATTERN_FUNCTIONS, compile_pattern, find_all
from plimsoll.cel.interpreter import calls, literals
from plimsoll.cel.interpreter import comprehensions as folds
from plimsoll.cel.interpreter.access import (
    Attribute,
    Closure,
    Conditional,
    Qualifier,
    is_key,
    resolver,
)
from plimsoll.cel.interpreter.evaluation import Evaluation
from plimsoll.cel.overloads.costs import CallCost
from plimsoll.cel.static.environment import CONSTANTS, RUNTIME_TYPES, Environment
from plimsoll.cel.syntax.ast import (
    CallExpr,
    Comprehension,
    Const,
    Expr,
    Ident,
    ListLit,
    MapLit,
    Select,
    StructLit,
)
from plimsoll.cel.syntax.trampoline import Task
from plimsoll.cel.syntax.trampoline import run as run_task
from plimsoll.cel.types import DEVICE_VARIABLE, TypeKind
from plimsoll.cel.values import (
    NONE,
    Optional,
    TypeValue,
    Value,
    content,
    key_of,
)
from plimsoll.errors import CelCompileError, CelRuntimeError

_BINDINGS = frozenset({"cel.bind", "optMap", "optFlatMap", "sortBy"})

Scope: TypeAlias = dict[str, Closure]


class PlannedExpr:
    """Planned node: a constant, an attribute to which qualifiers may be added, or a closure."""

    __slots__ = ("attribute", "binding", "closure", "constant", "fixed", "test", "value")

    def __init__(
        self,
        closure: Closure | None = None,
        attribute: Attribute | Conditional | None = None,
        test: bool = False,
    ) -> None:
        self.closure = closure
        self.attribute = attribute
        self.test = test
        self.constant = False  # whether cel-go folds it, which affects costs
        self.fixed = False  # whether the value is known and has no cost
        self.value: Value = None
        self.binding: tuple[tuple[int, ...], Closure] | None = None  # variables and body of a `cel.bind`

    def evaluator(self) -> Closure:
        """Return the closure that evaluates the node."""
        if self.closure is None:
            assert self.attribute is not None
            self.closure = _attribute_closure(self.attribute, self.test)
        return self.closure

    def reader(self) -> Closure:
        """Return the closure that resolves the node inside a larger attribute, without a cost of its own."""
        return self.evaluator() if self.attribute is None else resolver(self.attribute)

    def as_attribute(self) -> Attribute | Conditional:
        """Return the node's attribute, or a new one that starts at its value."""
        return self.attribute if self.attribute is not None else Attribute(self.evaluator())


def _fixed(value: Value, constant: bool) -> PlannedExpr:
    plan = PlannedExpr(lambda run: value)
    plan.constant, plan.fixed, plan.value = constant, True, value
    return plan


def _attribute_closure(attribute: Attribute | Conditional, test: bool) -> Closure:
    """Evaluate an attribute: 1 in addition to its chain, but 0 for a conditional or a presence test."""
    if test:
        resolve = resolver(attribute)
        refund = 1 if isinstance(attribute, Conditional) else 0

        def check(run: Evaluation) -> Value:
            run.left += refund
            found = resolve(run)
            return found is not NONE if type(found) is Optional else found

        return check
    return resolver(attribute, 1)


def plan_expression(checked: CheckedExpr) -> tuple[Closure, int]:
    """Return the closure of a tree and its number of variable slots."""
    planner = _Planner(checked)
    plan = run_task(planner.plan(checked.root, {}))
    return plan.evaluator(), planner.slots


class _Planner:
    """Planner of one tree; recursion uses the trampoline."""

    def __init__(self, checked: CheckedExpr) -> None:
        self._types = checked.types
        self._references = checked.references
        self._of_device = isinstance(checked.environment, Environment)
        self.slots = 0

    def plan(self, expr: Expr, scope: Scope) -> Task[PlannedExpr]:
        match expr:
            case Const():
                return _fixed(expr.value, True)
            case Ident():
                return self._ident(expr, scope)
            case Select():
                operand = yield self.plan(expr.operand, scope)
                return _qualified(operand, Qualifier(expr.field, test=expr.test))
            case CallExpr():
                planned = yield self._call(expr, scope)
            case ListLit():
                planned = yield self._list(expr, scope)
            case MapLit():
                planned = yield self._map(expr, scope)
            case StructLit():
                planned = yield self._struct(expr, scope)
            case Comprehension():
                planned = yield self._comprehension(expr, scope)
        plan: PlannedExpr = planned
        return plan

    def _ident(self, expr: Ident, scope: Scope) -> PlannedExpr:
        local = scope.get(expr.name)
        if local is not None:
            return PlannedExpr(attribute=Attribute(local))
        if expr.name in CONSTANTS:
            return _fixed(CONSTANTS[expr.name], True)
        if self._types[expr.id].kind is TypeKind.TYPE:
            known = RUNTIME_TYPES.get(expr.name)  # else a type of mutations, which is its own name
            return _fixed(TypeValue(expr.name if known is None else known.name), True)
        if not self._of_device:
            return PlannedExpr(attribute=Attribute(_variable_reader(expr.name)))
        if expr.name != DEVICE_VARIABLE:
            raise CelCompileError(f"no such variable: {expr.name}", expr.pos)
        return PlannedExpr(attribute=Attribute(lambda run: run.device.variable, of_device=True))

    # -- calls

    def _call(self, expr: CallExpr, scope: Scope) -> Task[PlannedExpr]:
        if expr.function in ("_&&_", "_||_"):
            joined: PlannedExpr = yield self._logical(expr, scope)
            return joined
        args: list[PlannedExpr] = []
        for arg in expr.args if expr.target is None else (expr.target, *expr.args):
            args.append((yield self.plan(arg, scope)))
        match expr.function:
            case "_?_:_":
                return _choice(args)
            case "_[_]" | "_[?_]" | "_?._":
                return _indexed(expr, args[0], args[1])
            case "_==_" | "_!=_":
                cost = FUNCTIONS[expr.function].cost
                left, right = args[0].evaluator(), args[1].evaluator()
                return PlannedExpr(calls.equality(left, right, cost, expr.function == "_!=_"))
            case "or" | "orValue":
                return _alternative(args, expr.function == "orValue")
        return self._ordinary(expr, args)

    def _ordinary(self, expr: CallExpr, args: list[PlannedExpr]) -> PlannedExpr:
        overloads = self._references[expr.id].overloads
        function = FUNCTIONS[expr.function]
        settled = function.by_id[overloads[0]] if len(overloads) == 1 else None
        if expr.function in CONVERSIONS and len(args) == 1 and args[0].constant:
            return _converted(expr, overloads, args[0])
        cost = function.cost if settled is None else settled.cost
        if overloads == ("in_list",) and args[1].constant:
            plan = _membership(args[0], args[1].value)
            if plan is not None:
                return plan
        closures = tuple(arg.evaluator() for arg in args)
        if expr.function in PATTERN_FUNCTIONS and args[1].constant and type(args[1].value) is str:
            return PlannedExpr(_matching(expr, args[1].value, closures, cost))
        apply, early = calls.choose(function, overloads)
        return PlannedExpr(calls.call_closure(apply, closures, cost, early))

    def _logical(self, expr: CallExpr, scope: Scope) -> Task[PlannedExpr]:
        """Plan a nested chain of the same operator as one flat list of terms."""
        deciding = expr.function == "_||_"
        terms: list[Closure] = []
        pending: list[Expr] = [expr]
        while pending:
            term = pending.pop()
            if isinstance(term, CallExpr) and term.function == expr.function:
                pending.extend(reversed(term.args))
                continue
            plan = yield self.plan(term, scope)
            if plan.fixed and plan.value is (not deciding):
                continue
            if plan.fixed and plan.value is deciding and not terms:
                return _fixed(deciding, False)
            terms.append(plan.evaluator())
        if not terms:
            return _fixed(not deciding, False)
        return PlannedExpr(calls.logical(tuple(terms), deciding))

    # -- literals

    def _list(self, expr: ListLit, scope: Scope) -> Task[PlannedExpr]:
        items: list[PlannedExpr] = []
        for item in expr.items:
            items.append((yield self.plan(item, scope)))
        optional = tuple(index in expr.optional for index in range(len(items)))
        if all(item.constant for item in items):
            if not any(optional):
                return _fixed([item.value for item in items], True)
            return PlannedExpr(_failing("cannot initialize optional list element from non-optional value"))
        return PlannedExpr(literals.list_closure(tuple(item.evaluator() for item in items), optional))

    def _map(self, expr: MapLit, scope: Scope) -> Task[PlannedExpr]:
        keys: list[PlannedExpr] = []
        values: list[PlannedExpr] = []
        for entry in expr.entries:
            keys.append((yield self.plan(entry.key, scope)))
            values.append((yield self.plan(entry.value, scope)))
        optional = tuple(entry.optional for entry in expr.entries)
        if all(plan.constant for plan in (*keys, *values)):
            if not any(optional):
                pairs = zip(keys, values, strict=True)
                return _fixed({key_of(key.value): value.value for key, value in pairs}, True)
            return PlannedExpr(_failing("cannot initialize optional entry from non-optional value"))
        entries = tuple(
            (key.evaluator(), value.evaluator(), one)
            for key, value, one in zip(keys, values, optional, strict=True)
        )
        return PlannedExpr(literals.map_closure(entries))

    def _struct(self, expr: StructLit, scope: Scope) -> Task[PlannedExpr]:
        fields: list[tuple[str, Closure, bool]] = []
        for field in expr.fields:
            plan = yield self.plan(field.value, scope)
            fields.append((field.name, plan.evaluator(), field.optional))
        return PlannedExpr(literals.struct_closure(expr.name, tuple(fields)))

    # -- comprehensions

    def _comprehension(self, expr: Comprehension, scope: Scope) -> Task[PlannedExpr]:
        if expr.macro in _BINDINGS:
            init = yield self.plan(expr.init, scope)
            slot = self._slot()
            inner = {**scope, expr.accumulator: folds.bound_variable(slot, init.evaluator())}
            result = yield self.plan(expr.result, inner)
            if result.fixed:
                return _fixed(result.value, False)
            return _bound(slot, result)
        over = yield self.plan(expr.range, scope)
        first, second = self._slot(), -1
        inner = {**scope, expr.variable: _slot_reader(first)}
        if expr.second is not None:
            second = self._slot()
            inner[expr.second] = _slot_reader(second)
        loop = folds.ComprehensionLoop(over.evaluator(), first, second)
        closure = yield self._loop(expr, loop, inner)
        return PlannedExpr(closure)

    def _loop(self, expr: Comprehension, loop: folds.ComprehensionLoop, scope: Scope) -> Task[Closure]:
        step = expr.step
        assert isinstance(step, CallExpr)
        if expr.macro in ("all", "exists"):
            predicate = yield self.plan(step.args[1], scope)
            return folds.quantifier(loop, predicate.evaluator(), expr.macro == "exists")
        if expr.macro in ("exists_one", "existsOne"):
            predicate = yield self.plan(step.args[0], scope)
            return folds.exactly_one(loop, predicate.evaluator())
        keep: Closure | None = None
        if step.function == "_?_:_":
            condition = yield self.plan(step.args[0], scope)
            keep = condition.evaluator()
            assert isinstance(step.args[1], CallExpr)
            step = step.args[1]
        if step.function == "_+_":
            items = step.args[1]
            assert isinstance(items, ListLit)
            item = yield self.plan(items.items[0], scope)
            return folds.to_list(loop, keep, item.evaluator(), item.constant)
        item = yield self.plan(step.args[-1], scope)
        make = folds.to_map if expr.macro == "transformMap" else folds.to_map_entries
        return make(loop, keep, item.evaluator())

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1


def _variable_reader(name: str) -> Closure:
    def read(run: Evaluation) -> Value:
        try:
            return run.variables[name]
        except KeyError:
            raise CelRuntimeError(f"no such attribute(s): {name}") from None

    return read


def _slot_reader(slot: int) -> Closure:
    return lambda run: run.slots[slot]


def _bound(slot: int, result: PlannedExpr) -> PlannedExpr:
    """Plan `cel.bind`; directly nested binds are one step."""
    inner, closure = result.binding or ((), result.evaluator())
    slots = (slot, *inner)
    plan = PlannedExpr(folds.bind(slots, closure))
    plan.binding = (slots, closure)
    return plan


def _failing(message: str) -> Closure:
    def fail(run: Evaluation) -> Value:
        raise CelRuntimeError(message)

    return fail


def _qualified(operand: PlannedExpr, qualifier: Qualifier) -> PlannedExpr:
    attribute = operand.as_attribute().with_qualifier(qualifier)
    return PlannedExpr(attribute=attribute, test=qualifier.test)


def _indexed(expr: CallExpr, operand: PlannedExpr, index: PlannedExpr) -> PlannedExpr:
    optional = expr.function != "_[_]"
    if index.constant:
        if not is_key(index.value):
            raise CelCompileError("a value of this type cannot be an index", expr.pos)
        return _qualified(operand, Qualifier(index.value, optional=optional))
    return _qualified(operand, Qualifier(dynamic=index.reader(), optional=optional))


def _choice(args: list[PlannedExpr]) -> PlannedExpr:
    condition, truthy, falsy = args
    chosen = Conditional(condition.evaluator(), truthy.as_attribute(), falsy.as_attribute())
    return PlannedExpr(attribute=chosen)


def _alternative(args: list[PlannedExpr], unwrap: bool) -> PlannedExpr:
    """Plan `or` and `orValue`: free, and the right side is evaluated only if the left has no value."""
    left, right = args[0].evaluator(), args[1].evaluator()

    def evaluate(run: Evaluation) -> Value:
        value = left(run)
        if type(value) is not Optional:
            return value
        if value is NONE:
            return right(run)
        return content(value) if unwrap else value

    return PlannedExpr(evaluate)


def _converted(expr: CallExpr, overloads: tuple[str, ...], arg: PlannedExpr) -> PlannedExpr:
    """Evaluate the conversion of a constant at compile time, which must succeed."""
    apply, _ = calls.choose(FUNCTIONS[expr.function], overloads)
    try:
        return _fixed(apply(None, arg.value), True)
    except CelRuntimeError as error:
        raise CelCompileError(f"{expr.function}() fails on a constant: {error}", expr.pos) from None


def _matching(expr: CallExpr, pattern: str, args: tuple[Closure, ...], cost: CallCost) -> Closure:
    """Plan a match with a constant pattern, compiled once; the call stops at the first failing argument."""
    try:
        search = compile_pattern(pattern).search
    except CelRuntimeError as error:
        raise CelCompileError(str(error), expr.pos) from None

    def matches(run: Evaluation, text: Value, _: Value) -> bool:
        if type(text) is not str:
            raise CelRuntimeError("no such overload")
        return search(text.encode()) is not None

    if expr.function == "matches":
        return calls.call_closure(matches, args, cost, True)

    def find(run: Evaluation, text: Value, _: Value) -> str:
        if type(text) is not str:
            raise CelRuntimeError("no such overload")
        match = search(text.encode())
        return match.group().decode() if match is not None else ""

    if expr.function == "find":
        return calls.call_closure(find, args, cost, True)

    def every(run: Evaluation, text: Value, _: Value, limit: Value = -1) -> list[str]:
        if type(text) is not str or type(limit) is not int:
            raise CelRuntimeError("no such overload")
        return find_all(run, text, pattern, limit)

    return calls.call_closure(every, args, cost, True)


def _membership(arg: PlannedExpr, items: list[Value]) -> PlannedExpr | None:
    """Plan `in` with a constant list of plain values as a set lookup, which costs nothing."""
    if not items:
        return _fixed(False, True)
    keys = literals.member_keys(items)
    if keys is None:
        return None
    if arg.fixed:
        return _fixed(literals.is_member(arg.value, keys), False)
    evaluate = arg.evaluator()
    return PlannedExpr(lambda run: literals.is_member(evaluate(run), keys))
