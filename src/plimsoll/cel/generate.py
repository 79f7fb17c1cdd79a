"""The fast back end: Python source generated from the checked tree for the shapes selectors usually have.

The source is optimistic. It reads attributes and capacities with plain dict lookups and compares them with
plain operators; whatever goes wrong (a missing key, a value of another type) raises, and the function then
returns what the exact back end says. It is generated only where a result it does produce is the exact one,
and where the most the expression can cost on a device with strings and lists of ordinary size
(`device.MAX_PLAIN_SIZE`, `MAX_PLAIN_LIST`) stays within the cost limit.

No text of the expression reaches the source: names of variables become local names of our own, and every
literal, keys included, is an entry of a table of constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from plimsoll.cel.ast import Call, Comprehension, Const, Expr, Ident, ListLit, Select
from plimsoll.cel.check import Checked
from plimsoll.cel.device import MAX_PLAIN_LIST, MAX_PLAIN_SIZE, Device
from plimsoll.cel.functions import semver, standard
from plimsoll.cel.functions.attributes import MAX_VALUES
from plimsoll.cel.functions.quantity import as_integer
from plimsoll.cel.functions.quantity import parse as parse_quantity
from plimsoll.cel.functions.regex import compile_pattern
from plimsoll.cel.functions.strings import LOWER, UPPER
from plimsoll.cel.values import EMPTY_DOMAIN, INT_MAX, INT_MIN, Value
from plimsoll.errors import CelRuntimeError

Matcher: TypeAlias = Callable[[Device], bool]

_MAX_DEPTH = 60
_MAX_TEXT = 20_000
_MAX_UNROLLED = 16
_WALK = -(-MAX_PLAIN_SIZE // 10) + 1  # the most that walking one string costs


class _Unsupported(Exception):
    """A shape that the exact back end must evaluate."""


@dataclass(frozen=True, slots=True)
class _Code:
    """A piece of source, the kind of value it gives, and the most it can cost.

    Kinds: bool, str, int, dyn (an attribute's value), quantity, semver; device, domains, entries (one domain;
    `safe` reads it as empty where it is missing) and optional (`safe` is the domain, `key` the entry). A
    constant has its `value`.
    """

    kind: str
    text: str = ""
    bound: int = 1
    safe: str = ""
    key: str = ""
    item: str = "dyn"
    constant: bool = False
    value: Value = None


def generate(checked: Checked, exact: Matcher, limit: int) -> Matcher | None:
    """A function for the checked tree that falls back on `exact`, or None if the shape is not covered."""
    emitter = _Emitter()
    try:
        code = emitter.emit(checked.root, {}, 0)
        body = emitter.condition(code)
        if code.bound > limit or len(body) > _MAX_TEXT:
            return None
    except _Unsupported:
        return None
    attributes = "listed" if checked.environment.list_attributes else "plain"
    lines = [
        "def matches(d):",
        "    try:",
        f"        A = d.{attributes}",
        "        C = d.capacity",
        *(f"        {line}" for line in emitter.prelude),
        f"        return {body}",
        "    except Exception:",
        "        return X(d)",
    ]
    names: dict[str, Any] = {**emitter.names(), "X": exact}
    try:
        exec(compile("\n".join(lines), "<selector>", "exec"), names)
    except (SyntaxError, RecursionError, MemoryError, OverflowError):
        return None
    function: Matcher = names["matches"]
    return function


def _give_up() -> bool:
    raise _Unsupported


def _same(a: Value, b: Value) -> bool:
    """Equality of two attribute values; unless both are of one plain type the exact back end decides."""
    kind = a.__class__
    if kind is not b.__class__ or (kind is not str and kind is not int and kind is not bool):
        raise _Unsupported
    return bool(a == b)


def _on_ints(apply: Callable[[int, int], Value]) -> Callable[[Value, Value], int]:
    """Arithmetic on two ints, checked for overflow; anything else is for the exact back end."""

    def calculate(a: Value, b: Value) -> int:
        if a.__class__ is not int or b.__class__ is not int:
            raise _Unsupported
        return int(apply(a, b))

    return calculate


_ARITHMETIC: dict[str, tuple[str, Callable[[int, int], Value]]] = {
    "_+_": ("ADD", lambda a, b: standard.checked_int(a + b)),
    "_-_": ("SUB", standard.subtract),
    "_*_": ("MUL", standard.multiply),
    "_/_": ("DIV", standard.divide),
    "_%_": ("MOD", standard.modulo),
}
_OPERATORS = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_MIRRORED = {"_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_", "_==_": "_==_", "_!=_": "_!=_"}
_TESTS: dict[str, Callable[[int, int], bool]] = {
    "_<_": lambda a, b: a < b,
    "_<=_": lambda a, b: a <= b,
    "_>_": lambda a, b: a > b,
    "_>=_": lambda a, b: a >= b,
    "_==_": lambda a, b: a == b,
    "_!=_": lambda a, b: a != b,
}
#: Which of -1, 0, 1 pass a test of `compareTo` decides how the two sides are compared.
_BY_SIGNS = {
    (False, False, True): ">",
    (False, True, False): "==",
    (True, False, False): "<",
    (False, True, True): ">=",
    (True, True, False): "<=",
    (True, False, True): "!=",
}
_PARTS = {"major": 0, "minor": 1, "patch": 2}

_Scope: TypeAlias = dict[str, _Code]


class _Emitter:
    """Writes source for one tree and collects its constants."""

    def __init__(self) -> None:
        self._constants: list[Value] = []
        self._temporaries = 0
        self._nodes = 0
        self._looping = False
        self.prelude: list[str] = []

    def names(self) -> dict[str, Any]:
        fixed: dict[str, Any] = {
            "E": EMPTY_DOMAIN,
            "INT": int,
            "LIST": list,
            "STOP": _give_up,
            "SAME": _same,
            "WHOLE": as_integer,
            "LOWER": LOWER,
            "UPPER": UPPER,
            **{name: _on_ints(apply) for name, apply in _ARITHMETIC.values()},
            "__builtins__": {"len": len, "any": any, "all": all, "Exception": Exception},
        }
        return fixed | {f"k{index}": value for index, value in enumerate(self._constants)}

    def _constant(self, value: Value) -> str:
        self._constants.append(value)
        return f"k{len(self._constants) - 1}"

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    # -- kinds

    def condition(self, code: _Code) -> str:
        """The source as a condition: what is not known to be a bool is checked."""
        if code.kind == "bool":
            return self._read(code)
        if code.kind != "dyn" or code.constant:
            raise _Unsupported
        name = self._temporary()
        return f"(({name} := {code.text}) is True or ({name} is not False and STOP()))"

    def _read(self, code: _Code) -> str:
        if not code.constant:
            return code.text
        if type(code.value) is bool:
            return "True" if code.value else "False"
        return self._constant(code.value)

    # -- nodes

    def emit(self, expr: Expr, scope: _Scope, depth: int) -> _Code:
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > 2000:
            raise _Unsupported
        match expr:
            case Const():
                return _literal(expr.value)
            case Ident():
                return self._name(expr, scope)
            case Select():
                return self._select(self.emit(expr.operand, scope, depth + 1), expr.field, expr.test)
            case Call():
                return self._call(expr, scope, depth + 1)
            case Comprehension():
                return self._comprehension(expr, scope, depth + 1)
        raise _Unsupported

    def _name(self, expr: Ident, scope: _Scope) -> _Code:
        local = scope.get(expr.name)
        if local is not None:
            return local
        if expr.name != "device":
            raise _Unsupported
        return _Code("device")

    def _select(self, operand: _Code, field: str, test: bool) -> _Code:
        if operand.kind == "device":
            code = _FIELDS.get(field)
            if code is None:
                raise _Unsupported
            return _Code("bool", "True", 2) if test else code
        if operand.kind == "domains" and test:
            return _Code("bool", "True", operand.bound + 1)  # an unknown domain reads as an empty one
        if operand.kind == "entries" and test:
            return _Code("bool", f"({self._constant(field)} in {operand.safe})", operand.bound + 1)
        return self._indexed(operand, _literal(field))

    def _indexed(self, operand: _Code, key: _Code) -> _Code:
        if key.kind != "str":
            raise _Unsupported
        bound = operand.bound + key.bound + 1
        if operand.kind == "domains":
            text = self._read(key)
            return _Code(
                "entries",
                f"{operand.text}[{text}]",
                bound,
                safe=f"{operand.text}.get({text}, E)",
                item=operand.item,
            )
        if operand.kind == "entries":
            return _Code(operand.item, f"{operand.text}[{self._read(key)}]", bound)
        raise _Unsupported

    # -- calls

    def _call(self, expr: Call, scope: _Scope, depth: int) -> _Code:
        function = expr.function
        if function in ("_&&_", "_||_"):
            return self._logical(expr, scope, depth)
        args = expr.args if expr.target is None else (expr.target, *expr.args)
        if function == "@in":
            return self._membership(args[0], args[1], scope, depth)
        codes = [self.emit(arg, scope, depth) for arg in args]
        bound = 1 + sum(code.bound for code in codes)
        handler = _HANDLERS.get((function, len(codes)))
        if handler is None:
            raise _Unsupported
        result = handler(self, function, codes)
        return replace(result, bound=result.bound + bound)

    def _logical(self, expr: Call, scope: _Scope, depth: int) -> _Code:
        terms: list[str] = []
        bound = 0
        pending: list[Expr] = [expr]
        while pending:
            term = pending.pop()
            if isinstance(term, Call) and term.function == expr.function:
                pending.extend(reversed(term.args))
                continue
            code = self.emit(term, scope, depth)
            terms.append(self.condition(code))
            bound += code.bound
        joined = (" or " if expr.function == "_||_" else " and ").join(terms)
        return _Code("bool", f"({joined})", bound)

    def _negation(self, function: str, codes: list[_Code]) -> _Code:
        return _Code("bool", f"(not {self.condition(codes[0])})", 0)

    def _choice(self, function: str, codes: list[_Code]) -> _Code:
        condition = self.condition(codes[0])
        kinds = {codes[1].kind, codes[2].kind}
        if not kinds <= {"bool", "str", "int", "dyn"}:
            raise _Unsupported
        kind = kinds.pop() if len(kinds) == 1 else "dyn"
        return _Code(kind, f"({self._read(codes[1])} if {condition} else {self._read(codes[2])})", 0)

    def _index(self, function: str, codes: list[_Code]) -> _Code:
        return replace(self._indexed(codes[0], codes[1]), bound=0)

    def _optional(self, function: str, codes: list[_Code]) -> _Code:
        entries, key = codes
        if entries.kind != "entries" or key.kind != "str":
            raise _Unsupported
        return _Code("optional", "", 0, safe=entries.safe, key=self._read(key), item=entries.item)

    def _or_value(self, function: str, codes: list[_Code]) -> _Code:
        optional, other = codes
        if optional.kind != "optional" or not other.constant:
            raise _Unsupported
        if optional.item != "dyn" and other.kind != optional.item:
            raise _Unsupported
        return _Code(optional.item, f"{optional.safe}.get({optional.key}, {self._read(other)})", 0)

    def _has_value(self, function: str, codes: list[_Code]) -> _Code:
        if codes[0].kind != "optional":
            raise _Unsupported
        return _Code("bool", f"({codes[0].key} in {codes[0].safe})", 0)

    def _value(self, function: str, codes: list[_Code]) -> _Code:
        if codes[0].kind != "optional":
            raise _Unsupported
        return _Code(codes[0].item, f"{codes[0].safe}[{codes[0].key}]", 0)

    # -- comparison

    def _equality(self, function: str, codes: list[_Code]) -> _Code:
        if (order := self._compare_to(function, codes)) is not None:
            return order
        left, right = codes
        if left.constant:
            left, right = right, left
        text = self._equal(left, right)
        return _Code("bool", text if function == "_==_" else f"(not {text})", _WALK)

    def _equal(self, left: _Code, right: _Code) -> str:
        kinds = (left.kind, right.kind)
        if left.constant or "signs" in kinds:
            raise _Unsupported
        if kinds == ("quantity", "quantity"):
            return f"({self._nano(left)} == {self._nano(right)})"
        if right.constant:
            return self._equals_constant(left, right)
        if kinds in (("dyn", "dyn"), ("dyn", "int"), ("int", "dyn"), ("dyn", "bool"), ("bool", "dyn")):
            return f"SAME({left.text}, {right.text})"
        if kinds in (("str", "str"), ("dyn", "str"), ("str", "dyn"), ("int", "int")):
            return f"({left.text} == {right.text})"
        raise _Unsupported

    def _equals_constant(self, left: _Code, right: _Code) -> str:
        value = right.value
        if left.kind == "bool" and type(value) is bool:
            return left.text if value else f"(not {left.text})"
        if left.kind == "dyn" and right.kind == "semver":
            return f"({left.text}.key == {self._constant(value.key)})"
        if left.kind == "dyn" and type(value) is bool:
            test = self.condition(left)
            return test if value else f"(not {test})"
        if left.kind in ("dyn", "str") and type(value) is str:
            return f"({left.text} == {self._constant(value)})"
        if left.kind == "dyn" and right.kind == "null":
            return f"({left.text} is None)"
        if type(value) is int and left.kind == "int":
            return f"({left.text} == {self._constant(value)})"
        if type(value) is int and left.kind == "dyn":
            if value not in (0, 1):
                return f"({left.text} == {self._constant(value)})"
            name = self._temporary()  # to Python, 0 and 1 equal false and true
            return f"(({name} := {left.text}) == {self._constant(value)} and {name}.__class__ is INT)"
        raise _Unsupported

    def _order(self, function: str, codes: list[_Code]) -> _Code:
        if (order := self._compare_to(function, codes)) is not None:
            return order
        left, right = codes
        if left.constant:
            left, right, function = right, left, _MIRRORED[function]
        sign = _OPERATORS[function]
        if right.constant and type(right.value) is int and left.kind == "dyn":
            name = self._temporary()
            test = f"((({name} := {left.text}).__class__ is INT or STOP()) and {name} {sign} "
            return _Code("bool", f"{test}{self._constant(right.value)})", 0)
        allowed = {("int", "int"), ("str", "str"), ("dyn", "str"), ("str", "dyn")}
        if (left.kind, right.kind) not in allowed or left.constant:
            raise _Unsupported
        return _Code("bool", f"({left.text} {sign} {self._read(right)})", _WALK)

    def _compare_to(self, function: str, codes: list[_Code]) -> _Code | None:
        """`a.compareTo(b) >= 0` compares the two directly."""
        left, right = codes
        if right.kind == "signs":
            left, right, function = right, left, _MIRRORED[function]
        if left.kind != "signs" or not right.constant or type(right.value) is not int:
            return None
        test = _TESTS[function]
        signs = (test(-1, right.value), test(0, right.value), test(1, right.value))
        operator = _BY_SIGNS.get(signs)
        if operator is None:  # true or false for every result
            raise _Unsupported
        return _Code("bool", f"({left.text} {operator} {left.safe})", 0)

    def _sides(self, codes: list[_Code]) -> tuple[str, str]:
        left, right = codes
        if left.kind == right.kind == "quantity":
            return self._nano(left), self._nano(right)
        if {left.kind, right.kind} <= {"semver", "dyn"}:
            return self._version_key(left), self._version_key(right)
        raise _Unsupported

    def _signs(self, function: str, codes: list[_Code]) -> _Code:
        left, right = self._sides(codes)
        return _Code("signs", left, 0, safe=right)

    def _relation(self, function: str, codes: list[_Code]) -> _Code:
        left, right = self._sides(codes)
        return _Code("bool", f"({left} {'>' if function == 'isGreaterThan' else '<'} {right})", 0)

    def _nano(self, code: _Code) -> str:
        return self._constant(code.value.nano) if code.constant else f"{code.text}.nano"

    def _version_key(self, code: _Code) -> str:
        if code.kind == "semver":
            return self._constant(code.value.key)
        if code.constant:
            raise _Unsupported
        return f"{code.text}.key"

    # -- library functions

    def _quantity(self, function: str, codes: list[_Code]) -> _Code:
        text = codes[0]
        if text.kind != "str" or not text.constant:
            raise _Unsupported
        try:
            return _Code("quantity", bound=len(text.value), constant=True, value=parse_quantity(text.value))
        except CelRuntimeError:
            raise _Unsupported from None

    def _semver(self, function: str, codes: list[_Code]) -> _Code:
        if any(not code.constant for code in codes) or codes[0].kind != "str":
            raise _Unsupported
        text, normal = codes[0].value, len(codes) > 1 and codes[1].value
        if type(normal) is not bool:
            raise _Unsupported
        try:
            return _Code("semver", bound=len(text), constant=True, value=semver.parse_with(text, normal))
        except CelRuntimeError:
            raise _Unsupported from None

    def _as_integer(self, function: str, codes: list[_Code]) -> _Code:
        if codes[0].kind != "quantity" or codes[0].constant:
            raise _Unsupported
        return _Code("int", f"WHOLE({codes[0].text})", 0)

    def _version_part(self, function: str, codes: list[_Code]) -> _Code:
        if codes[0].kind != "dyn" or codes[0].constant:
            raise _Unsupported
        name = self._temporary()
        part = f"({name} := {codes[0].text}.key[{_PARTS[function]}])"
        return _Code("int", f"({part} if {name} <= {self._constant(INT_MAX)} else STOP())", 0)

    def _size(self, function: str, codes: list[_Code]) -> _Code:
        code = codes[0]
        if code.constant or code.kind not in ("dyn", "str", "entries", "domains"):
            raise _Unsupported
        return _Code("int", f"len({code.safe or code.text})", 0)

    def _string_test(self, function: str, codes: list[_Code]) -> _Code:
        text, part = codes
        if text.constant or text.kind not in ("dyn", "str") or part.kind != "str":
            raise _Unsupported
        if function == "contains":
            source = f"({text.text}.find({self._read(part)}) >= 0)"
            bound = _WALK * (len(part.value) + 1 if part.constant else _WALK)
            return _Code("bool", source, bound)
        return _Code("bool", f"{text.text}.{function.lower()}({self._read(part)})", _WALK)

    def _matches(self, function: str, codes: list[_Code]) -> _Code:
        text, pattern = codes
        if text.constant or text.kind not in ("dyn", "str") or not pattern.constant or pattern.kind != "str":
            raise _Unsupported
        search = self._constant(compile_pattern(pattern.value).search)
        bound = _WALK * (len(pattern.value) + 1)
        return _Code("bool", f"({search}({text.text}.encode()) is not None)", bound)

    def _includes(self, function: str, codes: list[_Code]) -> _Code:
        target, value = codes
        if target.kind != "dyn" or target.constant or not value.constant or value.kind != "str":
            raise _Unsupported
        name, key = self._temporary(), self._constant(value.value)
        listed = f"(len({name}) <= {MAX_VALUES} or STOP()) and {key} in {name}"
        source = f"(({listed}) if ({name} := {target.text}).__class__ is LIST else {name} == {key})"
        return _Code("bool", source, 0)

    def _ascii(self, function: str, codes: list[_Code]) -> _Code:
        if codes[0].constant or codes[0].kind not in ("dyn", "str"):
            raise _Unsupported
        table = "LOWER" if function == "lowerAscii" else "UPPER"
        return _Code("str", f"{codes[0].text}.translate({table})", _WALK)

    def _arithmetic(self, function: str, codes: list[_Code]) -> _Code:
        if not {code.kind for code in codes} <= {"int", "dyn"} or all(code.constant for code in codes):
            raise _Unsupported
        name = _ARITHMETIC[function][0]
        return _Code("int", f"{name}({self._read(codes[0])}, {self._read(codes[1])})", _WALK)

    def _dyn(self, function: str, codes: list[_Code]) -> _Code:
        if codes[0].kind != "dyn":
            raise _Unsupported
        return replace(codes[0], bound=0)

    # -- membership and loops

    def _membership(self, item: Expr, container: Expr, scope: _Scope, depth: int) -> _Code:
        if isinstance(container, ListLit):
            return self._in_list(item, container, scope, depth)
        value, values = self.emit(item, scope, depth), self.emit(container, scope, depth)
        if value.kind != "str" or values.kind not in ("entries", "domains"):
            raise _Unsupported
        bound = 1 + value.bound + values.bound
        return _Code("bool", f"({self._read(value)} in {values.safe or values.text})", bound)

    def _in_list(self, item: Expr, container: ListLit, scope: _Scope, depth: int) -> _Code:
        constants = [item.value for item in container.items if isinstance(item, Const)]
        kinds = {type(value) for value in constants}
        if len(constants) != len(container.items) or container.optional or kinds not in ({str}, {int}):
            raise _Unsupported
        value = self.emit(item, scope, depth)
        if value.constant:
            raise _Unsupported
        keys = self._constant(frozenset(constants))
        if value.kind in ("dyn", "str") and kinds == {str}:
            return _Code("bool", f"({value.text} in {keys})", value.bound)
        if value.kind == "int" and kinds == {int}:
            return _Code("bool", f"({value.text} in {keys})", value.bound)
        if value.kind == "dyn" and kinds == {int}:
            name = self._temporary()
            return _Code(
                "bool", f"(({name} := {value.text}) in {keys} and {name}.__class__ is INT)", value.bound
            )
        raise _Unsupported

    def _comprehension(self, expr: Comprehension, scope: _Scope, depth: int) -> _Code:
        if expr.macro == "cel.bind":
            return self._bind(expr, scope, depth)
        step = expr.step
        if expr.macro not in ("all", "exists") or expr.second is not None or not isinstance(step, Call):
            raise _Unsupported
        items = expr.range
        if not isinstance(items, ListLit):
            return self._iterated(expr, step.args[1], scope, depth)
        if not 0 < len(items.items) <= _MAX_UNROLLED or items.optional:
            raise _Unsupported
        terms: list[str] = []
        bound = 4
        for item in items.items:
            if not isinstance(item, Const) or type(item.value) not in (str, int):
                raise _Unsupported
            code = self.emit(step.args[1], {**scope, expr.variable: _literal(item.value)}, depth)
            terms.append(self.condition(code))
            bound += 5 + code.bound + 10
        return _Code("bool", f"({(' or ' if expr.macro == 'exists' else ' and ').join(terms)})", bound)

    def _iterated(self, expr: Comprehension, predicate: Expr, scope: _Scope, depth: int) -> _Code:
        """A loop over a list attribute."""
        items = self.emit(expr.range, scope, depth)
        if items.kind != "dyn" or items.constant or self._looping:
            raise _Unsupported
        name, item = self._temporary(), self._temporary()
        self._looping = True
        code = self.emit(predicate, {**scope, expr.variable: _Code("dyn", item)}, depth)
        self._looping = False
        loop = "any" if expr.macro == "exists" else "all"
        test = f"{loop}({self.condition(code)} for {item} in {name})"
        source = f"((({name} := {items.text}).__class__ is LIST or STOP()) and {test})"
        return _Code("bool", source, items.bound + MAX_PLAIN_LIST * (5 + code.bound))

    def _bind(self, expr: Comprehension, scope: _Scope, depth: int) -> _Code:
        init = self.emit(expr.init, scope, depth)
        if self._looping and not init.constant:
            raise _Unsupported  # it may depend on the element, and is written before the loop
        if init.kind not in ("entries", "dyn", "str", "int", "quantity", "bool"):
            raise _Unsupported
        if init.kind == "entries":
            name = self._temporary()
            self.prelude.append(f"{name} = {init.safe}")
            init = replace(init, text=name, safe=name)
        if len(init.text) > 200:  # it is written out again at every use
            raise _Unsupported
        local = replace(init, bound=init.bound + 1)
        return self.emit(expr.result, {**scope, expr.accumulator: local}, depth)


def _literal(value: Value) -> _Code:
    kind = {bool: "bool", int: "int", str: "str", type(None): "null"}.get(type(value))
    if kind is None or (kind == "int" and not INT_MIN <= value <= INT_MAX):
        raise _Unsupported
    return _Code(kind, bound=1, constant=True, value=value)


_FIELDS = {
    "driver": _Code("str", "d.driver", 3),
    "allowMultipleAllocations": _Code("bool", "d.allow_multiple", 3),
    "attributes": _Code("domains", "A", 3),
    "capacity": _Code("domains", "C", 3, item="quantity"),
}

_Handler: TypeAlias = Callable[[_Emitter, str, list[_Code]], _Code]
_HANDLERS: dict[tuple[str, int], _Handler] = {
    ("!_", 1): _Emitter._negation,
    ("_?_:_", 3): _Emitter._choice,
    ("_[_]", 2): _Emitter._index,
    ("_?._", 2): _Emitter._optional,
    ("_[?_]", 2): _Emitter._optional,
    ("orValue", 2): _Emitter._or_value,
    ("hasValue", 1): _Emitter._has_value,
    ("value", 1): _Emitter._value,
    ("_==_", 2): _Emitter._equality,
    ("_!=_", 2): _Emitter._equality,
    **{(name, 2): _Emitter._order for name in _OPERATORS},
    ("compareTo", 2): _Emitter._signs,
    ("isGreaterThan", 2): _Emitter._relation,
    ("isLessThan", 2): _Emitter._relation,
    ("quantity", 1): _Emitter._quantity,
    ("semver", 1): _Emitter._semver,
    ("semver", 2): _Emitter._semver,
    ("asInteger", 1): _Emitter._as_integer,
    **{(name, 1): _Emitter._version_part for name in _PARTS},
    ("size", 1): _Emitter._size,
    ("startsWith", 2): _Emitter._string_test,
    ("endsWith", 2): _Emitter._string_test,
    ("contains", 2): _Emitter._string_test,
    ("matches", 2): _Emitter._matches,
    ("includes", 2): _Emitter._includes,
    ("lowerAscii", 1): _Emitter._ascii,
    ("upperAscii", 1): _Emitter._ascii,
    **{(name, 2): _Emitter._arithmetic for name in _ARITHMETIC},
    ("dyn", 1): _Emitter._dyn,
}
