"""The exact back end: a checked tree becomes closures that evaluate and charge as cel-go does.

This is the reference; the generated code in `generate` is held equal to it. Absorption of errors, order of
evaluation and the cost of every node, failed ones included, follow cel-go v0.26 with the Kubernetes options
(constant folding of literals and conversions, sets for `in` over constant lists). Every closure calls its
children directly, so an evaluation needs one Python frame per level of the expression.
"""

from __future__ import annotations

import sys
from typing import NamedTuple, TypeAlias

from plimsoll.cel import calls, folds, messages
from plimsoll.cel.access import (
    Attribute,
    Closure,
    Conditional,
    Qualifier,
    device_reader,
    is_key,
    resolver,
)
from plimsoll.cel.ast import (
    Call,
    Comprehension,
    Const,
    Expr,
    Ident,
    ListLit,
    MapLit,
    Select,
    StructLit,
    Uint,
)
from plimsoll.cel.check import Checked
from plimsoll.cel.costs import LIST_COST, MAP_COST, STRUCT_COST, CallCost, call_cost
from plimsoll.cel.device import Device
from plimsoll.cel.environment import CONSTANTS, DEVICE_VARIABLE, RUNTIME_TYPES
from plimsoll.cel.functions import FUNCTIONS
from plimsoll.cel.functions.regex import compile_pattern, find_all
from plimsoll.cel.run import COST_LIMIT, Run, over_limit
from plimsoll.cel.trampoline import Task
from plimsoll.cel.trampoline import run as run_task
from plimsoll.cel.types import Kind
from plimsoll.cel.values import (
    INT_MAX,
    NONE,
    OddKey,
    Optional,
    TypeValue,
    Value,
    content,
    int_of_double,
    key_of,
    type_name,
    uint_of_double,
)
from plimsoll.errors import CelCompileError, CelRuntimeError

_CONVERSIONS = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
_BINDINGS = frozenset({"cel.bind", "optMap", "optFlatMap", "sortBy"})
_DEEP = 120

Scope: TypeAlias = dict[str, Closure]


class Outcome(NamedTuple):
    """How an evaluation ended: a bool or an error, and what it cost."""

    result: bool | None
    error: CelRuntimeError | None
    cost: int


class Plan:
    """A planned node: a constant, an attribute whose chain may still grow, or a finished closure."""

    __slots__ = ("attribute", "closure", "constant", "depth", "fixed", "test", "value")

    def __init__(
        self,
        closure: Closure | None = None,
        depth: int = 1,
        attribute: Attribute | Conditional | None = None,
        test: bool = False,
    ) -> None:
        self.closure = closure
        self.depth = depth
        self.attribute = attribute
        self.test = test
        self.constant = False  # a constant in cel-go's sense, which decides costs and folding
        self.fixed = False  # known and free of cost
        self.value: Value = None

    def evaluator(self) -> Closure:
        """The closure that evaluates the node."""
        if self.closure is None:
            assert self.attribute is not None
            self.closure = _attribute_closure(self.attribute, self.test)
        return self.closure

    def reader(self) -> Closure:
        """The closure that resolves it as part of a larger attribute: an attribute itself is then free."""
        return self.evaluator() if self.attribute is None else resolver(self.attribute)

    def as_attribute(self) -> Attribute | Conditional:
        """The attribute it is, or one that starts at its value."""
        return self.attribute if self.attribute is not None else Attribute(self.evaluator())


def _fixed(value: Value, constant: bool) -> Plan:
    plan = Plan(lambda run: value)
    plan.constant, plan.fixed, plan.value = constant, True, value
    return plan


class Program:
    """A selector ready to evaluate exactly."""

    __slots__ = ("_closure", "_depth", "_lists", "_slots")

    def __init__(self, checked: Checked) -> None:
        planner = _Planner(checked)
        plan = run_task(planner.plan(checked.root, {}))
        self._closure = plan.evaluator()
        self._depth = plan.depth
        self._slots = planner.slots
        self._lists = checked.environment.list_attributes

    def evaluate(self, device: Device, limit: int = COST_LIMIT) -> Outcome:
        """Evaluate for one device, counting the cost; an error is part of the outcome."""
        run = Run(device, limit, self._slots)
        try:
            return Outcome(self._evaluate(run), None, run.cost)
        except CelRuntimeError as error:
            return Outcome(None, error, run.cost)

    def matches(self, device: Device) -> bool:
        """Evaluate for one device; raises CelRuntimeError."""
        return self._evaluate(Run(device, COST_LIMIT, self._slots))

    def _evaluate(self, run: Run) -> bool:
        device = run.device
        if device.problem is not None:
            raise CelRuntimeError(device.problem)
        if device.lists is not None and not self._lists:
            raise CelRuntimeError(f"attribute {device.lists}: unsupported attribute value")
        if self._depth > _DEEP:
            _make_room(self._depth)
        value = self._closure(run)
        if run.left < 0:
            raise over_limit(run)
        return value if value is True or value is False else as_bool(value)


def as_bool(value: Value) -> bool:
    """The result of a selector; only a bool will do."""
    while type(value) is Optional:
        value = content(value)
    if type(value) is not bool:
        raise CelRuntimeError(f"CEL result of type {type_name(value)} could not be converted to bool")
    return value


def _make_room(depth: int) -> None:
    """Let Python recurse as deep as an expression that the parser accepted; never lowers the limit."""
    used, frame = 0, sys._getframe()
    while frame.f_back is not None:
        used, frame = used + 1, frame.f_back
    needed = used + 3 * depth + 200
    if needed > sys.getrecursionlimit():
        sys.setrecursionlimit(needed)


def _attribute_closure(attribute: Attribute | Conditional, test: bool) -> Closure:
    """Evaluate an attribute: 1 on top of its chain, but nothing for a choice or a presence test."""
    resolve = resolver(attribute)
    if test:
        refund = 1 if isinstance(attribute, Conditional) else 0

        def check(run: Run) -> Value:
            run.left += refund
            found = resolve(run)
            return found is not NONE if type(found) is Optional else found

        return check
    if isinstance(attribute, Conditional):
        return resolve
    if (direct := device_reader(attribute, 4)) is not None:
        return direct

    def read(run: Run) -> Value:
        run.left -= 1
        if run.left < 0:
            raise over_limit(run)
        return resolve(run)

    return read


class _Planner:
    """Turns nodes into plans; recursion runs on the trampoline."""

    def __init__(self, checked: Checked) -> None:
        self._types = checked.types
        self._references = checked.references
        self.slots = 0

    def plan(self, expr: Expr, scope: Scope) -> Task[Plan]:
        match expr:
            case Const():
                return _fixed(expr.value, True)
            case Ident():
                return self._ident(expr, scope)
            case Select():
                operand = yield self.plan(expr.operand, scope)
                return _qualified(operand, Qualifier(expr.field, test=expr.test))
            case Call():
                planned = yield self._call(expr, scope)
            case ListLit():
                planned = yield self._list(expr, scope)
            case MapLit():
                planned = yield self._map(expr, scope)
            case StructLit():
                planned = yield self._struct(expr, scope)
            case Comprehension():
                planned = yield self._comprehension(expr, scope)
        plan: Plan = planned
        return plan

    def _ident(self, expr: Ident, scope: Scope) -> Plan:
        local = scope.get(expr.name)
        if local is not None:
            return Plan(attribute=Attribute(local))
        if expr.name in CONSTANTS:
            return _fixed(CONSTANTS[expr.name], True)
        if self._types[expr.id].kind is Kind.TYPE:
            return _fixed(TypeValue(RUNTIME_TYPES[expr.name].name), True)
        if expr.name != DEVICE_VARIABLE:
            raise CelCompileError(f"no such variable: {expr.name}", expr.pos)
        return Plan(attribute=Attribute(lambda run: run.device.variable, of_device=True))

    # -- calls

    def _call(self, expr: Call, scope: Scope) -> Task[Plan]:
        if expr.function in ("_&&_", "_||_"):
            joined: Plan = yield self._logical(expr, scope)
            return joined
        args: list[Plan] = []
        for arg in expr.args if expr.target is None else (expr.target, *expr.args):
            args.append((yield self.plan(arg, scope)))
        depth = 1 + max((arg.depth for arg in args), default=0)
        match expr.function:
            case "_?_:_":
                return _choice(args, depth)
            case "_[_]" | "_[?_]" | "_?._":
                return _indexed(expr, args[0], args[1])
            case "_==_" | "_!=_":
                cost = call_cost(expr.function, "")
                left, right = args[0].evaluator(), args[1].evaluator()
                return Plan(calls.equality(left, right, cost, expr.function == "_!=_"), depth)
            case "or" | "orValue":
                return _alternative(args, depth, expr.function == "orValue")
        return self._ordinary(expr, args, depth)

    def _ordinary(self, expr: Call, args: list[Plan], depth: int) -> Plan:
        overloads = self._references[expr.id].overloads
        settled = overloads[0] if len(overloads) == 1 else ""
        if expr.function in _CONVERSIONS and len(args) == 1 and args[0].constant:
            return _converted(expr, overloads, args[0])
        cost = call_cost(expr.function, settled)
        if expr.function == "@in" and settled == "in_list" and args[1].constant:
            plan = _membership(args[0], args[1].value, depth)
            if plan is not None:
                return plan
        closures = tuple(arg.evaluator() for arg in args)
        if (
            expr.function in ("matches", "find", "findAll")
            and args[1].constant
            and type(args[1].value) is str
        ):
            return Plan(_matching(expr, args[1].value, closures, cost), depth)
        apply, early = calls.choose(FUNCTIONS[expr.function], overloads)
        return Plan(calls.call_closure(apply, closures, cost, early), depth)

    def _logical(self, expr: Call, scope: Scope) -> Task[Plan]:
        """A chain of the same operator, whatever its nesting, is one row of terms."""
        deciding = expr.function == "_||_"
        terms: list[Closure] = []
        depth = 1
        pending: list[Expr] = [expr]
        while pending:
            term = pending.pop()
            if isinstance(term, Call) and term.function == expr.function:
                pending.extend(reversed(term.args))
                continue
            plan = yield self.plan(term, scope)
            depth = max(depth, 1 + plan.depth)
            if plan.fixed and plan.value is (not deciding):
                continue
            if plan.fixed and plan.value is deciding and not terms:
                return _fixed(deciding, False)
            terms.append(plan.evaluator())
        if not terms:
            return _fixed(not deciding, False)
        return Plan(calls.logical(tuple(terms), deciding), depth)

    # -- literals

    def _list(self, expr: ListLit, scope: Scope) -> Task[Plan]:
        items: list[Plan] = []
        for item in expr.items:
            items.append((yield self.plan(item, scope)))
        optional = tuple(index in expr.optional for index in range(len(items)))
        if all(item.constant for item in items):
            if not any(optional):
                return _fixed([item.value for item in items], True)
            return Plan(_failing("cannot initialize optional list element from non-optional value"))
        depth = 1 + max(item.depth for item in items)
        return Plan(_list_closure(tuple(item.evaluator() for item in items), optional), depth)

    def _map(self, expr: MapLit, scope: Scope) -> Task[Plan]:
        keys: list[Plan] = []
        values: list[Plan] = []
        for entry in expr.entries:
            keys.append((yield self.plan(entry.key, scope)))
            values.append((yield self.plan(entry.value, scope)))
        optional = tuple(entry.optional for entry in expr.entries)
        if all(plan.constant for plan in (*keys, *values)):
            if not any(optional):
                pairs = zip(keys, values, strict=True)
                return _fixed({key_of(key.value): value.value for key, value in pairs}, True)
            return Plan(_failing("cannot initialize optional entry from non-optional value"))
        depth = 1 + max(plan.depth for plan in (*keys, *values))
        entries = tuple(
            (key.evaluator(), value.evaluator(), one)
            for key, value, one in zip(keys, values, optional, strict=True)
        )
        return Plan(_map_closure(entries), depth)

    def _struct(self, expr: StructLit, scope: Scope) -> Task[Plan]:
        fields: list[tuple[str, Closure, bool]] = []
        depth = 1
        for field in expr.fields:
            plan = yield self.plan(field.value, scope)
            depth = max(depth, 1 + plan.depth)
            fields.append((field.name, plan.evaluator(), field.optional))
        return Plan(_struct_closure(expr.name, tuple(fields)), depth)

    # -- comprehensions

    def _comprehension(self, expr: Comprehension, scope: Scope) -> Task[Plan]:
        if expr.macro in _BINDINGS:
            init = yield self.plan(expr.init, scope)
            slot = self._slot()
            inner = {**scope, expr.accumulator: folds.bound_variable(slot, init.evaluator())}
            result = yield self.plan(expr.result, inner)
            if result.fixed:
                return _fixed(result.value, False)
            return Plan(folds.bind(slot, result.evaluator()), 2 + max(init.depth, result.depth))
        over = yield self.plan(expr.range, scope)
        first, second = self._slot(), -1
        inner = {**scope, expr.variable: _slot_reader(first)}
        if expr.second is not None:
            second = self._slot()
            inner[expr.second] = _slot_reader(second)
        loop = folds.Loop(over.evaluator(), first, second)
        closure, depth = yield self._loop(expr, loop, inner)
        return Plan(closure, 1 + max(over.depth, depth))

    def _loop(self, expr: Comprehension, loop: folds.Loop, scope: Scope) -> Task[tuple[Closure, int]]:
        step = expr.step
        assert isinstance(step, Call)
        if expr.macro in ("all", "exists"):
            predicate = yield self.plan(step.args[1], scope)
            return folds.quantifier(loop, predicate.evaluator(), expr.macro == "exists"), predicate.depth
        if expr.macro in ("exists_one", "existsOne"):
            predicate = yield self.plan(step.args[0], scope)
            return folds.exactly_one(loop, predicate.evaluator()), predicate.depth
        keep: Closure | None = None
        depth = 1
        if step.function == "_?_:_":
            condition = yield self.plan(step.args[0], scope)
            keep, depth = condition.evaluator(), condition.depth
            assert isinstance(step.args[1], Call)
            step = step.args[1]
        if step.function == "_+_":
            items = step.args[1]
            assert isinstance(items, ListLit)
            item = yield self.plan(items.items[0], scope)
            closure = folds.to_list(loop, keep, item.evaluator(), item.constant)
        else:
            item = yield self.plan(step.args[-1], scope)
            make = folds.to_map if expr.macro == "transformMap" else folds.to_map_entries
            closure = make(loop, keep, item.evaluator())
        return closure, max(depth, item.depth)

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1


def _slot_reader(slot: int) -> Closure:
    return lambda run: run.slots[slot]


def _failing(message: str) -> Closure:
    def fail(run: Run) -> Value:
        raise CelRuntimeError(message)

    return fail


def _qualified(operand: Plan, qualifier: Qualifier) -> Plan:
    attribute = operand.as_attribute().with_qualifier(qualifier)
    return Plan(attribute=attribute, depth=operand.depth + 1, test=qualifier.test)


def _indexed(expr: Call, operand: Plan, index: Plan) -> Plan:
    optional = expr.function != "_[_]"
    if index.constant:
        if not is_key(index.value):
            raise CelCompileError("a value of this type cannot be an index", expr.pos)
        return _qualified(operand, Qualifier(index.value, optional=optional))
    plan = _qualified(operand, Qualifier(dynamic=index.reader(), optional=optional))
    plan.depth = 2 + max(operand.depth, index.depth)
    return plan


def _choice(args: list[Plan], depth: int) -> Plan:
    condition, truthy, falsy = args
    chosen = Conditional(condition.evaluator(), truthy.as_attribute(), falsy.as_attribute())
    return Plan(attribute=chosen, depth=depth + 1)


def _alternative(args: list[Plan], depth: int, unwrap: bool) -> Plan:
    """`or` and `orValue`: free, and the right side is evaluated only if the left has no value."""
    left, right = args[0].evaluator(), args[1].evaluator()

    def evaluate(run: Run) -> Value:
        value = left(run)
        if type(value) is not Optional:
            return value
        if value is NONE:
            return right(run)
        return content(value) if unwrap else value

    return Plan(evaluate, depth)


def _converted(expr: Call, overloads: tuple[str, ...], arg: Plan) -> Plan:
    """A conversion of a constant is done once, and must succeed."""
    apply, _ = calls.choose(FUNCTIONS[expr.function], overloads)
    try:
        return _fixed(apply(None, arg.value), True)
    except CelRuntimeError as error:
        raise CelCompileError(f"{expr.function}() fails on a constant: {error}", expr.pos) from None


def _matching(expr: Call, pattern: str, args: tuple[Closure, ...], cost: CallCost) -> Closure:
    """A constant pattern is compiled once; such calls stop at the first failing argument."""
    try:
        search = compile_pattern(pattern).search
    except CelRuntimeError as error:
        raise CelCompileError(str(error), expr.pos) from None

    def matches(run: Run, text: Value, _: Value) -> bool:
        if type(text) is not str:
            raise CelRuntimeError("no such overload")
        return search(text.encode()) is not None

    if expr.function == "matches":
        return calls.call_closure(matches, args, cost, True)

    def find(run: Run, text: Value, _: Value) -> str:
        if type(text) is not str:
            raise CelRuntimeError("no such overload")
        match = search(text.encode())
        return match.group().decode() if match is not None else ""

    if expr.function == "find":
        return calls.call_closure(find, args, cost, True)

    def every(run: Run, text: Value, _: Value, limit: Value = -1) -> list[str]:
        if type(text) is not str or type(limit) is not int:
            raise CelRuntimeError("no such overload")
        return find_all(run, text, pattern, limit)

    return calls.call_closure(every, args, cost, True)


# -- `in` over a constant list


def _membership(arg: Plan, items: list[Value], depth: int) -> Plan | None:
    """A constant list of plain values is a set: free to look into, and an empty one is never looked at.

    DIFF: a value that cannot be hashed upstream (Semver, bytes) is simply not in it, instead of ending the
    evaluation (test_unhashable_value_is_not_in_a_literal_list).
    """
    if not items:
        return _fixed(False, True)
    if any(type(item) not in (bool, int, Uint, float, str) for item in items):
        return None
    keys = frozenset(key for item in items for key in _member_keys(item))
    if arg.fixed:
        return _fixed(_is_member(arg.value, keys), False)
    evaluate = arg.evaluator()
    return Plan(lambda run: _is_member(evaluate(run), keys), depth)


def _is_member(value: Value, keys: frozenset[Value]) -> bool:
    kind = type(value)
    if kind is str or kind is int or kind is Uint:
        return value in keys
    if kind is bool or (kind is float and value == value):
        return OddKey(value) in keys
    return False


def _member_keys(item: Value) -> list[Value]:
    """An element under every type in which it may be asked for."""
    kind = type(item)
    if kind is float:
        if item != item:
            return []
        whole, natural = int_of_double(item), uint_of_double(item)
        keys: list[Value] = [OddKey(item)]
        return keys + ([] if whole is None else [whole]) + ([] if natural is None else [Uint(natural)])
    if kind is int:
        return [item, OddKey(float(item)), *([Uint(item)] if item >= 0 else [])]
    if kind is Uint:
        return [item, OddKey(float(item.value)), *([item.value] if item.value <= INT_MAX else [])]
    return [key_of(item)]


# -- literals


def _list_closure(items: tuple[Closure, ...], optional: tuple[bool, ...]) -> Closure:
    if not any(optional):

        def build(run: Run) -> list[Value]:
            run.charge(LIST_COST)
            return [item(run) for item in items]

        return build
    pairs = tuple(zip(items, optional, strict=True))

    def build_some(run: Run) -> list[Value]:
        run.charge(LIST_COST)
        result: list[Value] = []
        for item, may_lack in pairs:
            value = item(run)
            if may_lack:
                if type(value) is not Optional:
                    raise CelRuntimeError("cannot initialize optional list element from non-optional value")
                if value is NONE:
                    continue
                value = content(value)
            result.append(value)
        return result

    return build_some


def _map_closure(entries: tuple[tuple[Closure, Closure, bool], ...]) -> Closure:
    def build(run: Run) -> dict[Value, Value]:
        run.charge(MAP_COST)
        result: dict[Value, Value] = {}
        for key, value, may_lack in entries:
            kept = key_of(key(run))
            item = value(run)
            if may_lack:
                if type(item) is not Optional:
                    raise CelRuntimeError("cannot initialize optional entry from non-optional value")
                if item is NONE:
                    result.pop(kept, None)
                    continue
                item = content(item)
            result[kept] = item
        return result

    return build


def _struct_closure(name: str, fields: tuple[tuple[str, Closure, bool], ...]) -> Closure:
    def build(run: Run) -> Value:
        run.charge(STRUCT_COST)
        given: dict[str, Value] = {}
        for field, value, may_lack in fields:
            item = value(run)
            if may_lack:
                if type(item) is not Optional:
                    raise CelRuntimeError("cannot initialize optional entry from non-optional value")
                if item is NONE:
                    given.pop(field, None)
                    continue
                item = content(item)
            given[field] = item
        return messages.build(run, name, given)

    return build
