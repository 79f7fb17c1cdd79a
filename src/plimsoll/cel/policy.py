"""Compiler of the expressions of admission policies.

`PolicyCompiler` compiles the variables of one policy in order, then its other expressions, which may read
them. An expression that does not compile, or is of the wrong type, is a `CompileProblem` with the text that
kube-apiserver reports; enforcement turns it into a denial or ignores it, by the failure policy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plimsoll.cel import types
from plimsoll.cel.expression import Expression, compile_expression, format_compile_error
from plimsoll.cel.static.admission_environment import AdmissionEnvironment
from plimsoll.cel.types import JSON_PATCH, OBJECT, CelType, TypeKind
from plimsoll.errors import CelCompileError

BOOL = (types.BOOL,)
STRING = (types.STRING,)
STRING_OR_NULL = (types.STRING, types.NULL)
APPLY_CONFIGURATION = (OBJECT,)
JSON_PATCHES = (types.list_of(JSON_PATCH),)
ANY: tuple[CelType, ...] = ()

#: Types of variables that other expressions see as they are; the others are dynamic to them.
_SHARED = frozenset(
    (
        *(TypeKind.ANY, TypeKind.BOOL, TypeKind.BYTES, TypeKind.DOUBLE, TypeKind.DURATION, TypeKind.INT),
        *(TypeKind.NULL, TypeKind.STRING, TypeKind.TIMESTAMP, TypeKind.UINT),
    )
)


@dataclass(frozen=True, slots=True)
class CompileProblem:
    """Expression that does not compile. `detail` is kube-apiserver's text, `issue` the part from CEL."""

    source: str
    detail: str
    issue: str = ""


class PolicyCompiler:
    """Compiler of one policy, in an environment without its variables. `has_variables` declares them, even if
    the policy has none.
    """

    def __init__(self, environment: AdmissionEnvironment, *, has_variables: bool = True) -> None:
        self._environment = environment
        self._has_variables = has_variables
        self._types: dict[str, CelType] = {}
        self.variables: dict[str, Expression | CompileProblem] = {}

    def add_variable(self, name: str, source: str) -> Expression | CompileProblem:
        """Compile a variable, which the expressions after it may read."""
        compiled = self.compile(source, ANY)
        self.variables[name] = compiled
        self._types[name] = types.DYN
        if isinstance(compiled, Expression):
            self._types[name] = _shared_type(compiled.result_type)
        return compiled

    def compile(
        self,
        source: str,
        wanted: tuple[CelType, ...],
        *,
        has_authorizer: bool = True,
        has_patch_types: bool = False,
    ) -> Expression | CompileProblem:
        """Compile an expression whose result must be of one of the types."""
        environment = replace(
            self._environment,
            has_authorizer=has_authorizer,
            has_patch_types=has_patch_types,
            variables=self._types if self._has_variables else None,
        )
        return compile_in(source, environment, wanted)


def compile_in(
    source: str, environment: AdmissionEnvironment, wanted: tuple[CelType, ...]
) -> Expression | CompileProblem:
    """Compile an expression whose result must be of one of the types."""
    try:
        compiled = compile_expression(source, environment)
    except CelCompileError as error:
        issue = format_compile_error(source, error)
        return CompileProblem(source, f"compilation failed: {issue}", issue)
    found = compiled.result_type
    if not wanted or any(found == one and not found.nullable for one in wanted):
        return compiled
    names = [_type_name(one) for one in wanted]
    listed = names[0] if len(names) == 1 else f"one of [{' '.join(names)}]"
    return CompileProblem(source, f"must evaluate to {listed} but got {_type_name(found)}")


def _shared_type(found: CelType) -> CelType:
    if found.kind in _SHARED and not found.nullable:
        return found
    if found.kind in (TypeKind.LIST, TypeKind.MAP):
        return found.with_params(tuple(_shared_type(one) for one in found.params))
    return types.DYN


def _type_name(found: CelType) -> str:
    """Return the name of a type in errors about the result, which is its run-time name."""
    if not found.params:
        return found.name
    return f"{found.name}({', '.join(_type_name(one) for one in found.params)})"
