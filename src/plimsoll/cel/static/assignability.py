"""Unification of types: assignability and the bindings of type variables during one check.

Implements cel-go v0.26's rules: dyn, any and error are assignable to everything, null to message-like types;
a variable is bound to the most general type it was unified with; parameters must be assignable pairwise. The
number of steps is limited, because a hostile expression can create types of exponential size.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.cel import types
from plimsoll.cel.types import CelType, TypeKind, is_dyn
from plimsoll.errors import CelCompileError

# DIFF: cel-go has no such limit and can be made to hang; see test_types_are_bounded.
MAX_STEPS = 1_000_000

_PARAMETRIC = frozenset({TypeKind.OPAQUE, TypeKind.LIST, TypeKind.MAP})
_PLAIN = frozenset(
    {
        TypeKind.BOOL,
        TypeKind.BYTES,
        TypeKind.DOUBLE,
        TypeKind.INT,
        TypeKind.STRING,
        TypeKind.UINT,
        TypeKind.DURATION,
        TypeKind.TIMESTAMP,
        TypeKind.STRUCT,
    }
)
_NULLABLE = frozenset({TypeKind.OPAQUE, TypeKind.STRUCT, TypeKind.ANY, TypeKind.DURATION, TypeKind.TIMESTAMP})
_WILD = frozenset({TypeKind.DYN, TypeKind.ANY, TypeKind.ERROR})


class TypeBindings:
    """Bindings of type variables."""

    def __init__(self) -> None:
        self._bound: dict[str, CelType] = {}
        self._undo: list[tuple[str, CelType | None]] = []
        self._variables = 0
        self._steps = MAX_STEPS

    def fresh(self) -> CelType:
        """Return a new type variable."""
        self._variables += 1
        return types.param(f"_var{self._variables}")

    def assignable(self, left: CelType, right: CelType) -> bool:
        """Return whether the types can be unified, and if so keep the bindings."""
        return self.all_assignable((left,), (right,))

    def all_assignable(self, left: Sequence[CelType], right: Sequence[CelType]) -> bool:
        """Check assignability for two lists of types, all or nothing."""
        self._undo.clear()
        if self._fit_all(left, right, 0):
            return True
        while self._undo:
            name, before = self._undo.pop()
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before
        return False

    def substitute(self, value: CelType, to_dyn: bool = False) -> CelType:
        """Replace bound variables; `to_dyn` also turns free ones into dyn."""
        return self._substitute(value, to_dyn, 0)

    def _substitute(self, value: CelType, to_dyn: bool, depth: int) -> CelType:
        self._step(depth)
        if not value.open:
            return value
        if value.kind is TypeKind.PARAM:
            bound = self._bound.get(value.name)
            if bound is not None:
                return self._substitute(bound, to_dyn, depth + 1)
            return types.DYN if to_dyn else value
        return value.with_params(tuple([self._substitute(one, to_dyn, depth + 1) for one in value.params]))

    def _step(self, depth: int) -> None:
        self._steps -= 1
        if self._steps < 0 or depth > types.MAX_DEPTH:
            raise CelCompileError("expression has types too large to check")

    def _bind(self, name: str, value: CelType) -> None:
        self._undo.append((name, self._bound.get(name)))
        self._bound[name] = value

    def _fit_all(self, left: Sequence[CelType], right: Sequence[CelType], depth: int) -> bool:
        if len(left) != len(right):
            return False
        for one, other in zip(left, right, strict=True):
            if one is other and one.kind in _PLAIN:
                continue
            if not self._fit(one, other, depth):
                return False
        return True

    def _fit(self, left: CelType, right: CelType, depth: int) -> bool:
        self._step(depth)
        first, second = left.kind, right.kind
        if second is TypeKind.PARAM:
            fits, bound = self._bind_variable(left, right, depth)
            if fits:
                return True
            if bound:
                return False
        if first is TypeKind.PARAM:
            return self._bind_variable(right, left, depth)[0]
        if first in _WILD or second in _WILD:
            return True
        if first is TypeKind.NULL:
            return second in _NULLABLE or right.takes(left)
        if second is TypeKind.NULL:
            return first in _NULLABLE or left.takes(right)
        if first in _PLAIN:
            return right.takes(left)
        if first is TypeKind.TYPE:
            return second is TypeKind.TYPE
        return (
            first in _PARAMETRIC
            and first is second
            and left.name == right.name
            and self._fit_all(left.params, right.params, depth + 1)
        )

    def _bind_variable(self, value: CelType, variable: CelType, depth: int) -> tuple[bool, bool]:
        """Return whether the variable may be bound to `value`, and whether it was bound before."""
        if value == variable:
            return True, True
        bound = self._bound.get(variable.name)
        if bound is not None:
            if value.kind is bound.kind and value == bound:
                return True, True
            if not self._fit(value, bound, depth + 1):
                return False, True
            wider = most_general(value, bound)
            if self._does_not_occur_in(variable, wider, depth + 1):
                self._bind(variable.name, wider)
            return True, True
        if self._does_not_occur_in(variable, value, depth + 1):
            self._bind(variable.name, value)
            return True, False
        return False, False

    def _does_not_occur_in(self, variable: CelType, value: CelType, depth: int) -> bool:
        """Return whether the variable does not occur in the type (occurs check)."""
        self._step(depth)
        if value == variable:
            return False
        if value.kind is TypeKind.PARAM:
            bound = self._bound.get(value.name)
            return bound is None or self._does_not_occur_in(variable, bound, depth + 1)
        if value.kind in _PARAMETRIC or value.kind is TypeKind.TYPE:
            return all(self._does_not_occur_in(variable, one, depth + 1) for one in value.params)
        return True


def most_general(left: CelType, right: CelType) -> CelType:
    return left if _as_general(left, right) else right


def _as_general(left: CelType, right: CelType) -> bool:
    """Return whether `left` equals `right` or is more general."""
    if is_dyn(left) or left.kind is TypeKind.PARAM:
        return True
    if is_dyn(right) or right.kind is TypeKind.PARAM or left.kind is not right.kind:
        return False
    if left.kind is TypeKind.TYPE:
        return True
    if left.kind in _PARAMETRIC:
        return (
            left.name == right.name
            and len(left.params) == len(right.params)
            and all(_as_general(one, other) for one, other in zip(left.params, right.params, strict=True))
        )
    return left == right
