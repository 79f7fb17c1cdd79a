"""Access to parts of values: fields, keys and indices, plain, optional or as a presence test.

An attribute is a variable or a value followed by a chain of qualifiers, resolved in one step. Costs depend on
the chain, not on the tree: each applied qualifier costs 1 (an optional one only if the entry exists), and the
node that evaluates the chain adds 1 (in `planner.py`). After the first optional qualifier, or if the chain
starts at an optional value, all further qualifiers are optional and the result is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from plimsoll.api.quantity import Quantity
from plimsoll.cel.admission_values import LazyVariables
from plimsoll.cel.interpreter.evaluation import Evaluation, over_limit
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import (
    CIDR,
    IP,
    MISSING,
    NONE,
    UNABSORBED,
    URL,
    DomainMap,
    Optional,
    Semver,
    TypeValue,
    Unreadable,
    Value,
    find,
    int_of_double,
)
from plimsoll.errors import CelRuntimeError

Closure: TypeAlias = Callable[[Evaluation], Any]

_KEYS = frozenset({str, int, bool, Uint, float})


@dataclass(frozen=True, slots=True)
class Qualifier:
    """One step of a chain: a constant key, or `dynamic` to compute it; `test` is a presence test."""

    key: Value = None
    dynamic: Closure | None = None
    optional: bool = False
    test: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """A root value, with its own cost, and the qualifiers applied to it."""

    root: Closure
    qualifiers: tuple[Qualifier, ...] = ()
    of_device: bool = False

    def with_qualifier(self, qualifier: Qualifier) -> Attribute:
        return Attribute(self.root, (*self.qualifiers, qualifier), self.of_device)


@dataclass(frozen=True, slots=True)
class Conditional:
    """`(c ? a : b)`; a qualifier is applied to both branches."""

    condition: Closure
    truthy: Attribute | Conditional
    falsy: Attribute | Conditional

    def with_qualifier(self, qualifier: Qualifier) -> Conditional:
        return Conditional(
            self.condition, self.truthy.with_qualifier(qualifier), self.falsy.with_qualifier(qualifier)
        )


def is_key(value: Value) -> bool:
    """Return whether a constant may be used as an index."""
    return type(value) in _KEYS


# -- one step


def qualify(value: Value, key: Value) -> Value:
    """Evaluate `value[key]` or `value.key`; raises if it does not exist."""
    kind = type(value)
    if kind is dict or kind is DomainMap:
        found = find(value, key)
        if found is MISSING:
            raise CelRuntimeError(f"no such key: {_format_key(key)}")
        return found
    if kind is list:
        index = _index(key)
        if 0 <= index < len(value):
            return value[index]
        raise CelRuntimeError(f"index out of bounds: {_format_key(key)}")
    if kind is Unreadable:
        raise CelRuntimeError(value.reason)
    if kind is LazyVariables and key in value:
        return value.read(key)
    raise CelRuntimeError(f"no such key: {_format_key(key)}")


def qualify_if_present(value: Value, key: Value) -> Value:
    """Evaluate a qualifier like `qualify`; MISSING if it does not exist, but an invalid index is an error."""
    kind = type(value)
    if kind is dict or kind is DomainMap:
        return find(value, key)
    if kind is list:
        index = _index(key)
        return value[index] if 0 <= index < len(value) else MISSING
    if kind is Unreadable:
        raise CelRuntimeError(value.reason)
    if kind is LazyVariables and key in value:
        return value.read(key)
    return MISSING


def _index(key: Value) -> int:
    kind = type(key)
    if kind is int:
        return int(key)
    if kind is Uint and key.value < 2**63:
        return int(key.value)
    if kind is float and (whole := int_of_double(key)) is not None:
        return whole
    raise CelRuntimeError(f"unsupported index {_format_key(key)} in list")


def _format_key(key: Value) -> str:
    return str(key.value if type(key) is Uint else key)[:80]


# -- the chain


def resolver(attribute: Attribute | Conditional, extra: int = 0) -> Closure:
    """Return a closure that resolves the chain and charges for its qualifiers, and `extra` for evaluating it.

    Evaluating a choice is free, so a Conditional takes no extra.
    """
    if isinstance(attribute, Conditional):
        return _conditional(attribute)
    qualifiers = attribute.qualifiers
    if attribute.of_device and (direct := _from_device(qualifiers, 3 + extra)) is not None:
        return direct
    if not qualifiers:
        return _bare(attribute.root, extra)
    if all(q.dynamic is None and not q.optional and not q.test for q in qualifiers):
        return _plain_chain(attribute.root, tuple(q.key for q in qualifiers), extra)
    return _chain(attribute.root, qualifiers, extra)


def _conditional(attribute: Conditional) -> Closure:
    condition = attribute.condition
    truthy, falsy = resolver(attribute.truthy), resolver(attribute.falsy)

    def choose(run: Evaluation) -> Value:
        chosen = condition(run)
        if chosen is True:
            return truthy(run)
        if chosen is False:
            return falsy(run)
        raise CelRuntimeError("no such overload")

    return choose


def _from_device(qualifiers: tuple[Qualifier, ...], cost: int) -> Closure | None:
    """Read `device.attributes["domain"].id` and similar attributes without walking the chain."""
    if len(qualifiers) != 3 or any(
        type(q.key) is not str or q.dynamic or q.optional or q.test for q in qualifiers
    ):
        return None
    field, domain, name = (q.key for q in qualifiers)
    if field not in ("attributes", "capacity"):
        return None
    capacity = field == "capacity"

    def read(run: Evaluation) -> Value:
        run.left -= cost
        if run.left < 0:
            raise over_limit(run)
        device = run.device
        values = (device.capacity if capacity else device.attributes).get(domain)
        if values is not None:
            value = values.get(name, MISSING)
            if value is not MISSING:
                return value
        raise CelRuntimeError(f"no such key: {name[:80]}")

    return read


def _bare(root: Closure, extra: int) -> Closure:
    def read(run: Evaluation) -> Value:
        run.left -= extra
        if run.left < 0:
            raise over_limit(run)
        value = root(run)
        return value if type(value) is not Optional else _rewrap(value)

    return read


def _plain_chain(root: Closure, keys: tuple[Value, ...], extra: int) -> Closure:
    wrapped = tuple(Qualifier(key) for key in keys)

    def read(run: Evaluation) -> Value:
        run.left -= extra
        value = root(run)
        if type(value) is Optional:
            return _walk(run, value, wrapped)
        for key in keys:
            run.left -= 1
            if run.left < 0:
                raise over_limit(run)
            value = qualify(value, key)
        return value

    return read


def _chain(root: Closure, qualifiers: tuple[Qualifier, ...], extra: int) -> Closure:
    def read(run: Evaluation) -> Value:
        run.left -= extra
        return _walk(run, root(run), qualifiers)

    return read


def _walk(run: Evaluation, value: Value, qualifiers: tuple[Qualifier, ...]) -> Value:
    optional = type(value) is Optional
    if optional:
        if value is NONE:
            return NONE
        value = native(value.value)
    for qualifier in qualifiers:
        optional = optional or qualifier.optional
        if optional:
            value = qualify_if_present(value, _key(run, qualifier))
            if value is MISSING:
                return NONE
            run.charge(1)
        elif qualifier.test:
            run.charge(1)
            value = qualify_if_present(value, qualifier.key) is not MISSING
        else:
            try:
                key = _key(run, qualifier)
            except CelRuntimeError as error:
                if not isinstance(error, UNABSORBED):
                    run.charge(1)
                raise
            run.charge(1)
            value = qualify(value, key)
    return Optional(value) if optional else value


def _key(run: Evaluation, qualifier: Qualifier) -> Value:
    if qualifier.dynamic is None:
        return qualifier.key
    key = qualifier.dynamic(run)
    if type(key) not in _KEYS:
        raise CelRuntimeError("a value of this type cannot be an index")
    return key


def _rewrap(optional: Optional) -> Optional:
    return NONE if optional is NONE else Optional(native(optional.value))


def native(value: Value) -> Value:
    """Return a value after upstream unwrapped it from an optional and adapted it again."""
    kind = type(value)
    if kind in _UNREADABLE:
        return Unreadable(f"unsupported conversion of {_UNREADABLE[kind]}")
    if kind is DomainMap:
        return dict(value)
    if kind is TypeValue:
        return value.name
    if kind is Optional:
        return None if value is NONE else native(value.value)
    return value


_UNREADABLE: dict[type, str] = {Quantity: "Quantity", Semver: "Semver", IP: "IP", CIDR: "CIDR", URL: "URL"}
