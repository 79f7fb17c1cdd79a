"""Mutating policies: their mutations in order, and their reinvocation after later changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from plimsoll.apiserver.admission.policies.attributes import AdmissionAttributes, MatchedResource, Tree
from plimsoll.apiserver.admission.policies.compiled_policy import CompiledBinding, CompiledPolicy, Mutation
from plimsoll.apiserver.admission.policies.evaluation import (
    PolicyInput,
    PolicyStep,
    meets_match_conditions,
)
from plimsoll.apiserver.admission.policies.patching import (
    apply_configuration,
    apply_operations,
)
from plimsoll.apiserver.admission.policies.validating import shown_name
from plimsoll.apiserver.status import forbidden
from plimsoll.cel.policy import CompileProblem
from plimsoll.errors import ApiError, CelBudgetError, MatchConditionError, MutationError

#: Returns the object with its defaults, in the storage version.
SetDefaults = Callable[[Tree, MatchedResource], Tree]


@dataclass(frozen=True, slots=True)
class MutationFailure:
    """A policy that failed on a request."""

    policy: CompiledPolicy
    binding: str
    message: str
    reason: str = ""

    def __str__(self) -> str:
        if self.binding:
            return f"policy '{self.policy.name}' with binding '{self.binding}' denied request: {self.message}"
        return f'policy "{self.policy.name}" denied request: {self.message}'


@dataclass(frozen=True, slots=True)
class Invocation:
    """A policy to run with one parameter of a binding."""

    policy: CompiledPolicy
    binding: CompiledBinding
    given: PolicyInput

    @property
    def key(self) -> tuple[str, str, str]:
        metadata = (self.given.params or {}).get("metadata") or {}
        name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        return self.policy.name, self.binding.name, name


@dataclass(slots=True)
class ReinvocationState:
    """Invocations that are repeated because the object changed after them."""

    invoked: set[tuple[str, str, str]] = field(default_factory=set)
    due: set[tuple[str, str, str]] = field(default_factory=set)
    changed: bool = False

    def require(self) -> None:
        """Repeat every policy that asks for it and has run before."""
        self.due |= self.invoked
        self.invoked = set()


def run_mutations(
    attributes: AdmissionAttributes,
    invocations: list[Invocation],
    state: ReinvocationState,
    set_defaults: SetDefaults,
    *,
    repeats: bool,
) -> list[MutationFailure]:
    """Run the invocations in order on the object of a request; return those that failed. ApiError."""
    failures = []
    for invocation in invocations:
        policy = invocation.policy
        try:
            if not meets_match_conditions(policy, invocation.given):
                continue
        except MatchConditionError as error:
            failures.append(MutationFailure(policy, invocation.binding.name, str(error), "Invalid"))
            continue
        if repeats and invocation.key not in state.due:
            continue
        before = attributes.tree
        for mutation in policy.mutations:
            try:
                _mutate(attributes, invocation, mutation, set_defaults)
            except (MutationError, CelBudgetError) as error:
                failures.append(MutationFailure(policy, invocation.binding.name, str(error), "Invalid"))
        if attributes.tree != before:
            state.require()
            state.changed = True
        if policy.reinvokes:
            state.invoked.add(invocation.key)
    return failures


def _mutate(
    attributes: AdmissionAttributes, invocation: Invocation, mutation: Mutation, set_defaults: SetDefaults
) -> None:
    if isinstance(mutation.expression, CompileProblem):
        raise MutationError(mutation.expression.detail)
    policy, given = invocation.policy, invocation.given
    variables = {**given.variables(policy), **given.authorizer_variables()}
    step = PolicyStep(policy, variables, given.attributes)
    outcome = step.evaluate(mutation.expression)
    if outcome.error:
        raise MutationError(outcome.error)
    matched = given.matched
    tree = attributes.in_version(attributes.tree, matched)
    assert tree is not None
    apply = apply_operations if mutation.is_json_patch else apply_configuration
    attributes.tree = set_defaults(apply(tree, outcome.value, matched.kind), matched)


def denial(attributes: AdmissionAttributes, failures: list[MutationFailure]) -> ApiError | None:
    """Return the error of a request on which policies that fail closed have failed, or None."""
    closed = [failure for failure in failures if failure.policy.fails_closed]
    if not closed:
        return None
    info = attributes.info
    refusal = forbidden(info.group, info.plural, shown_name(attributes), "")
    causes = [{"message": str(failure)} for failure in closed]
    details = {**(refusal.details or {}), "causes": causes}
    return ApiError(403, closed[0].reason or "Forbidden", str(closed[0]), details)
