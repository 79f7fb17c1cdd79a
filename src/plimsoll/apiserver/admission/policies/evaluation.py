"""Evaluation of the expressions of a policy on one request, within the cost limits of kube-apiserver.

Every expression may cost `COST_LIMIT`; all expressions of one step (the match conditions; the validations
and their messages; the audit annotations; one mutation) share a budget. Variables are evaluated when they are
first read, once per step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from plimsoll.apiserver.admission.policies.attributes import (
    AdmissionAttributes,
    MatchedResource,
    Tree,
    namespace_variable,
    to_cel,
)
from plimsoll.apiserver.admission.policies.compiled_policy import Compiled, CompiledPolicy
from plimsoll.apiserver.auth.attributes import Attributes, Decision
from plimsoll.apiserver.auth.users import service_account_user
from plimsoll.cel.admission_values import AuthorizationQuery, AuthorizerValue, LazyVariables, ResourceCheck
from plimsoll.cel.expression import Expression, ExpressionResult
from plimsoll.cel.interpreter.evaluation import COST_LIMIT
from plimsoll.cel.policy import CompileProblem
from plimsoll.errors import CelBudgetError, CelRuntimeError, MatchConditionError, PolicyCostError

#: Cost budget of all expressions of one step; match conditions have one of their own.
COST_BUDGET = 10_000_000
MATCH_CONDITION_BUDGET = 2_500_000

_OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)

AuthorizeRequest = Callable[[Attributes], Decision]


class Outcome(NamedTuple):
    """Result of one expression: its value, or why it failed."""

    value: Any
    error: str = ""


@dataclass(frozen=True, slots=True)
class PolicyInput:
    """Input of the expressions of a policy: the request as the policy matched it, and its parameters."""

    attributes: AdmissionAttributes
    matched: MatchedResource
    params: Tree | None
    namespace: Tree | None
    authorize: AuthorizeRequest

    def variables(self, policy: CompiledPolicy, *, in_match_conditions: bool = False) -> dict[str, Any]:
        """Return the variables by name, but those that an expression declares or the authorizer."""
        attributes, matched = self.attributes, self.matched
        # As upstream: match conditions see the resource of the request, and no namespace.
        seen = matched._replace(resource=attributes.info.resource, version=attributes.info.version)
        variables = {
            "object": to_cel(attributes.in_version(attributes.tree, matched)),
            "oldObject": to_cel(attributes.in_version(attributes.old, matched)),
            "request": attributes.request_variable(seen if in_match_conditions else matched),
            "namespaceObject": None if in_match_conditions else namespace_variable(self.namespace),
        }
        if policy.param_kind is not None:
            variables["params"] = to_cel(self.params)
        return variables

    def authorizer_variables(self) -> dict[str, Any]:
        """Return the variables `authorizer` and `authorizer.requestResource`."""
        attributes, info = self.attributes, self.attributes.info
        authorizer = AuthorizerValue(self._authorize)
        query = AuthorizationQuery(
            "",
            group=info.group,
            resource=info.plural,
            subresource=info.subresource,
            namespace=attributes.namespace,
            name=attributes.name,
        )
        return {"authorizer": authorizer, "authorizer.requestResource": ResourceCheck(authorizer, query)}

    def _authorize(self, query: AuthorizationQuery) -> tuple[bool, str]:
        user = self.attributes.user
        if query.account is not None:
            user = service_account_user(*query.account)
        if query.path:
            return self.authorize(Attributes(user, query.verb, path=query.path))
        return self.authorize(
            Attributes(
                user,
                query.verb,
                query.group,
                "*",
                query.resource,
                query.subresource,
                query.namespace,
                query.name,
                fields=_exact_fields(query.field_selector),
            )
        )


class PolicyStep:
    """One step of a policy: evaluates expressions one after another within a budget."""

    def __init__(
        self,
        policy: CompiledPolicy,
        variables: Mapping[str, Any],
        attributes: AdmissionAttributes,
        budget: int = COST_BUDGET,
    ) -> None:
        self._policy = policy
        self._attributes = attributes
        self._spent = 0
        self.budget = budget
        lazy = LazyVariables(frozenset(policy.variables), self._variable)
        self._variables = {**variables, "variables": lazy}

    def evaluate(self, expression: Compiled) -> Outcome:
        """Evaluate an expression; CelBudgetError if the step has used up its budget, PolicyCostError if the
        event loop may not spend more.
        """
        if isinstance(expression, CompileProblem):
            return Outcome(None, f"compilation error: {expression.detail}")
        result = self._run(expression)
        cost, self._spent = result.cost + self._spent, 0
        if cost > self.budget:
            raise CelBudgetError(_OUT_OF_BUDGET)
        self.budget -= cost
        if result.error is not None:
            return Outcome(None, f"expression '{expression.source}' resulted in error: {result.error}")
        return Outcome(result.value)

    def _variable(self, name: str) -> Any:
        expression = self._policy.variables[name]
        if isinstance(expression, CompileProblem):
            raise CelRuntimeError(f'composited variable "{name}" fails to compile: {expression.detail}')
        result = self._run(expression)
        self._spent += result.cost
        if result.error is not None:
            raise CelRuntimeError(f'composited variable "{name}" fails to evaluate: {result.error}')
        return result.value

    def _run(self, expression: Expression) -> ExpressionResult:
        left = self._attributes.inline_cost
        if left is None:
            return expression.evaluate(self._variables)
        result = expression.evaluate(self._variables, min(left, COST_LIMIT))
        if result.cost > left:
            raise PolicyCostError("the admission policies of this request are expensive")
        # A variable spends within the expression that reads it, so what is left may be less by now.
        self._attributes.inline_cost = min(left, self._attributes.inline_cost or 0) - result.cost
        return result


def meets_match_conditions(policy: CompiledPolicy, given: PolicyInput) -> bool:
    """Return whether the match conditions hold; MatchConditionError if that is unknown and the policy fails
    closed.
    """
    if not policy.match_conditions:
        return True
    variables = {**given.variables(policy, in_match_conditions=True), **given.authorizer_variables()}
    step = PolicyStep(policy, variables, given.attributes, MATCH_CONDITION_BUDGET)
    try:
        outcomes = [step.evaluate(condition) for condition in policy.match_conditions]
    except CelBudgetError as error:
        if policy.fails_closed:
            raise MatchConditionError(str(error)) from None
        return False
    if any(outcome.value is False for outcome in outcomes):
        return False
    errors = dict.fromkeys(outcome.error for outcome in outcomes if outcome.error)
    if errors and policy.fails_closed:
        raise MatchConditionError(next(iter(errors)) if len(errors) == 1 else f"[{', '.join(errors)}]")
    return not errors


def _exact_fields(selector: str) -> tuple[tuple[str, str], ...]:
    """Return the requirements of a field selector for one exact value; none if it does not parse."""
    pairs = []
    for part in filter(None, selector.split(",")):
        name, equals, value = part.replace("==", "=").partition("=")
        if not equals or "=" in value:
            return ()
        if not name.endswith("!"):
            pairs.append((name.strip(), value))
    return tuple(pairs)
