"""Front end: source text to a checked expression.

`check` parses, type-checks and estimates the cost of a selector, `check_expression` does the first two for
any environment; `CheckedExpr` is the input of the back ends and of validation. Guarantees that the result
type is valid for a selector (or a derived attribute), and that any error in the text is a CelCompileError
with a position. The limit of 10,240 bytes on selectors is part of validation; here text is rejected beyond
`parser.MAX_CODE_POINTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plimsoll.cel.recursion import run_with_stack
from plimsoll.cel.static import checker, folding, validators
from plimsoll.cel.static.checker import ReferenceInfo, TypedExpr
from plimsoll.cel.static.environment import Declarations, Environment
from plimsoll.cel.static.estimate import estimate
from plimsoll.cel.syntax import parser
from plimsoll.cel.syntax.ast import Expr
from plimsoll.cel.types import SEMVER, CelType, TypeKind
from plimsoll.errors import CelCompileError


@dataclass(frozen=True, slots=True)
class CheckedExpr:
    """A valid expression; `types` and `references` are keyed by node ID. Only selectors have an estimate."""

    source: str
    root: Expr
    types: dict[int, CelType]
    references: dict[int, ReferenceInfo]
    environment: Declarations
    result: CelType
    estimated_cost: int = 0

    @property
    def device_environment(self) -> Environment:
        """The environment of a selector or derived attribute."""
        assert isinstance(self.environment, Environment)
        return self.environment


def check(source: str, environment: Environment, derived: bool = False) -> CheckedExpr:
    """Parse, type-check and cost `source`; raise CelCompileError if it is not a valid selector, or not a
    valid expression of a derived attribute.
    """
    return _with_stack(lambda: _check_selector(source, environment, derived))


def check_expression(source: str, environment: Declarations) -> CheckedExpr:
    """Parse and type-check `source`; raise CelCompileError if it is not valid."""

    def check_any() -> CheckedExpr:
        typed, result = _resolve(source, environment)
        folding.fold(typed)
        return CheckedExpr(source, typed.root, typed.types, typed.references, environment, result)

    return _with_stack(check_any)


def _with_stack(call: Callable[[], CheckedExpr]) -> CheckedExpr:
    try:
        # Trees are walked without recursion, types are not; the result must not depend on the caller's depth.
        return run_with_stack(call)
    except RecursionError:
        raise CelCompileError("expression has types nested too deeply") from None


def _resolve(source: str, environment: Declarations) -> tuple[TypedExpr, CelType]:
    if not source.isascii():
        _require_unicode(source)
    root = parser.parse(source, has_bindings=isinstance(environment, Environment))
    typed = checker.resolve(root, environment)
    validators.validate(typed)
    return typed, typed.types[typed.root.id]


def _check_selector(source: str, environment: Environment, derived: bool) -> CheckedExpr:
    typed, result = _resolve(source, environment)
    if derived:
        _require_attribute_type(result, environment, typed.root.pos)
    elif not _is_selector_type(result, environment):
        raise CelCompileError(f"a selector must be of type bool, not {result}", typed.root.pos)
    folding.fold(typed)
    return CheckedExpr(
        source, typed.root, typed.types, typed.references, environment, result, estimate(typed)
    )


def _require_unicode(source: str) -> None:
    """Reject lone surrogates, which cannot be encoded as UTF-8."""
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise CelCompileError("text is not valid Unicode", error.start) from None


def _is_selector_type(result: CelType, environment: Environment) -> bool:
    if result.kind is TypeKind.BOOL:
        return not result.nullable
    return result.kind is TypeKind.ANY or (result.kind is TypeKind.DYN and environment.list_attributes)


def _require_attribute_type(result: CelType, environment: Environment, pos: int) -> None:
    """Reject a result that is no value of an attribute; lists need list attributes, unless it is stored."""
    lists = environment.list_attributes or environment.kind == "stored"
    element = result.params[0] if lists and result.kind is TypeKind.LIST and result.params else result
    if element.nullable or not (element.kind in _ATTRIBUTE_KINDS or element == SEMVER):
        allowed = "a primitive scalar (string, integer, boolean, semver)"
        if lists:
            allowed += " or a list of these scalars"
        raise CelCompileError(f"must evaluate to {allowed}, not {result}", pos)


_ATTRIBUTE_KINDS = frozenset({TypeKind.BOOL, TypeKind.INT, TypeKind.STRING, TypeKind.ANY, TypeKind.DYN})
