"""The authorizer functions, which Kubernetes declares in every environment.

No selector can hold an authorizer, so calls that compile (on a value of unknown type) always fail; they are
here to fail, and to cost, like any other call on the wrong type.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from plimsoll.cel.comparison import Meter
from plimsoll.cel.overloads.estimates import AstNode, CallEstimate, constant_estimate
from plimsoll.cel.overloads.overload import Function, function
from plimsoll.cel.overloads.ranges import fixed
from plimsoll.cel.overloads.runtime_costs import LIST_COST, STRING_FACTOR, STRUCT_COST, Args, RuntimeCost
from plimsoll.cel.values import Value, size_of

_CHECK_COST = 350_000


def _selector_cost(run: Meter, args: Args, result: Value) -> int:
    """Return the cost of parsing a selector: its text, and a requirement for every second character."""
    size = size_of(args[1])
    return LIST_COST + ceil(size * STRING_FACTOR) + ceil(ceil(size * 0.5) * (LIST_COST + STRUCT_COST))


def _selector_estimate(args: Sequence[AstNode]) -> CallEstimate:
    size = args[1].some_size
    requirements = size.scaled(0.5).scaled(float(LIST_COST + STRUCT_COST))
    return CallEstimate(fixed(LIST_COST).plus(size.scaled(STRING_FACTOR)).plus(requirements))


def _selector(name: str, id: str) -> Function:
    return function(
        name,
        f"{id} ResourceCheck.(string) -> ResourceCheck",
        cost=RuntimeCost(measure=_selector_cost),
        estimate=_selector_estimate,
    )


FUNCTIONS: tuple[Function, ...] = (
    function("path", "authorizer_path Authorizer.(string) -> PathCheck"),
    function("group", "authorizer_group Authorizer.(string) -> GroupCheck"),
    function("serviceAccount", "authorizer_serviceaccount Authorizer.(string, string) -> Authorizer"),
    function("resource", "groupcheck_resource GroupCheck.(string) -> ResourceCheck"),
    function("subresource", "resourcecheck_subresource ResourceCheck.(string) -> ResourceCheck"),
    function("namespace", "resourcecheck_namespace ResourceCheck.(string) -> ResourceCheck"),
    function("name", "resourcecheck_name ResourceCheck.(string) -> ResourceCheck"),
    function(
        "check",
        "pathcheck_check PathCheck.(string) -> Decision",
        "resourcecheck_check ResourceCheck.(string) -> Decision",
        cost=RuntimeCost(_CHECK_COST),
        estimate=constant_estimate(_CHECK_COST),
    ),
    function("errored", "decision_errored Decision.() -> bool"),
    function("error", "decision_error Decision.() -> string"),
    function("allowed", "decision_allowed Decision.() -> bool"),
    function("reason", "decision_reason Decision.() -> string"),
    _selector("fieldSelector", "authorizer_fieldselector"),
    _selector("labelSelector", "authorizer_labelselector"),
)
