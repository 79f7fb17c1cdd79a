"""Compiled policies and bindings, made once for each stored version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plimsoll.apiserver.admission.policies.attributes import KindName, Tree
from plimsoll.apiserver.admission.policies.matching import MatchCriteria
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import find_resource_by_kind
from plimsoll.cel import policy as cel_policy
from plimsoll.cel.expression import Expression
from plimsoll.cel.policy import CompileProblem, PolicyCompiler
from plimsoll.cel.static.admission_environment import AdmissionEnvironment

Compiled = Expression | CompileProblem
JSON_PATCH = "JSONPatch"


@dataclass(frozen=True, slots=True)
class Validation:
    """One entry of spec.validations."""

    expression: Compiled
    source: str
    message: str
    message_expression: Compiled | None
    reason: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """One entry of spec.mutations: a JSON patch or an apply configuration."""

    is_json_patch: bool
    expression: Compiled


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """Compiled policy. `configuration_error` is why it cannot be used, if it cannot."""

    name: str
    fails_closed: bool
    criteria: MatchCriteria
    param_kind: KindName | None
    param_resource: Resource | None
    variables: dict[str, Compiled]
    match_conditions: tuple[Compiled, ...]
    validations: tuple[Validation, ...] = ()
    audit_annotations: tuple[tuple[str, Compiled], ...] = ()
    mutations: tuple[Mutation, ...] = ()
    reinvokes: bool = False

    @property
    def configuration_error(self) -> str:
        if self.param_kind is not None and self.param_resource is None:
            return f"failed to find resource referenced by paramKind: '{self.param_kind}'"
        return ""


@dataclass(frozen=True, slots=True)
class CompiledBinding:
    """Compiled binding of a policy; without criteria it matches every request of the policy."""

    name: str
    policy_name: str
    criteria: MatchCriteria | None
    param_ref: Tree | None
    actions: tuple[str, ...]


def compile_policy(tree: Tree) -> CompiledPolicy:
    """Compile a stored policy; errors in expressions are kept, for the failure policy to decide."""
    spec: dict[str, Any] = tree.get("spec") or {}
    param_kind = _param_kind(spec.get("paramKind"))
    compiler = PolicyCompiler(AdmissionEnvironment(has_params=param_kind is not None))
    for variable in spec.get("variables") or ():
        compiler.add_variable(variable.get("name", ""), _source(variable))
    return CompiledPolicy(
        name=tree["metadata"]["name"],
        fails_closed=spec.get("failurePolicy") != "Ignore",
        criteria=MatchCriteria.of(spec.get("matchConstraints") or {}),
        param_kind=param_kind,
        param_resource=None if param_kind is None else find_resource_by_kind(*param_kind),
        variables=compiler.variables,
        match_conditions=tuple(
            compiler.compile(_source(condition), cel_policy.BOOL)
            for condition in spec.get("matchConditions") or ()
        ),
        validations=tuple(_compile_validation(compiler, one) for one in spec.get("validations") or ()),
        audit_annotations=tuple(
            (one.get("key", ""), compiler.compile(_source(one, "valueExpression"), cel_policy.STRING_OR_NULL))
            for one in spec.get("auditAnnotations") or ()
        ),
        mutations=tuple(_compile_mutation(compiler, one) for one in spec.get("mutations") or ()),
        reinvokes=spec.get("reinvocationPolicy") == "IfNeeded",
    )


def compile_binding(tree: Tree) -> CompiledBinding:
    """Compile a stored binding."""
    spec: dict[str, Any] = tree.get("spec") or {}
    resources = spec.get("matchResources")
    return CompiledBinding(
        tree["metadata"]["name"],
        spec.get("policyName") or "",
        None if resources is None else MatchCriteria.of(resources),
        spec.get("paramRef"),
        tuple(spec.get("validationActions") or ()),
    )


def _compile_validation(compiler: PolicyCompiler, tree: Tree) -> Validation:
    message_expression = tree.get("messageExpression")
    return Validation(
        compiler.compile(_source(tree), cel_policy.BOOL),
        _source(tree),
        tree.get("message") or "",
        compiler.compile(message_expression, cel_policy.STRING, has_authorizer=False)
        if message_expression
        else None,
        tree.get("reason") or "",
    )


def _compile_mutation(compiler: PolicyCompiler, tree: Tree) -> Mutation:
    is_patch = tree.get("patchType") == JSON_PATCH
    source = _source(tree.get("jsonPatch" if is_patch else "applyConfiguration") or {})
    wanted = cel_policy.JSON_PATCHES if is_patch else cel_policy.APPLY_CONFIGURATION
    return Mutation(is_patch, compiler.compile(source, wanted, has_patch_types=True))


def _source(tree: Tree, field: str = "expression") -> str:
    """Return the text of an expression. Policies of older servers were stored without validation, so it may
    be absent, which does not compile.
    """
    return tree.get(field) or ""


def _param_kind(tree: Tree | None) -> KindName | None:
    if tree is None:
        return None
    group, _, version = (tree.get("apiVersion") or "").rpartition("/")
    return KindName(group, version, tree.get("kind") or "")
