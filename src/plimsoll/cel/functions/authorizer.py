"""Authorizer functions, which Kubernetes declares in every environment.

No variable of a selector is an authorizer, so calls that compile (on a value of unknown type) always fail at
run time. The declarations make their errors and costs those of any other call with a wrong type.
"""

from __future__ import annotations

from math import ceil

from plimsoll.cel.comparison import Meter
from plimsoll.cel.overloads.costs import (
    LIST_COST,
    STRING_FACTOR,
    STRUCT_COST,
    Args,
    CallCost,
    CallEstimate,
    Nodes,
)
from plimsoll.cel.overloads.overload import Function, function
from plimsoll.cel.overloads.ranges import fixed
from plimsoll.cel.values import Value, size_of


def _selector_cost(run: Meter, args: Args, result: Value) -> int:
    """Return the cost of parsing a selector: its text, and a requirement for every second character."""
    size = size_of(args[1])
    return LIST_COST + ceil(size * STRING_FACTOR) + ceil(ceil(size * 0.5) * (LIST_COST + STRUCT_COST))


def _selector_estimate(args: Nodes) -> CallEstimate:
    size = args[1].some_size
    requirements = size.scaled(0.5).scaled(float(LIST_COST + STRUCT_COST))
    return CallEstimate(fixed(LIST_COST).plus(size.scaled(STRING_FACTOR)).plus(requirements))


_SELECTOR = CallCost(measure=_selector_cost, estimator=_selector_estimate)


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
        cost=CallCost(350_000),
    ),
    function("errored", "decision_errored Decision.() -> bool"),
    function("error", "decision_error Decision.() -> string"),
    function("allowed", "decision_allowed Decision.() -> bool"),
    function("reason", "decision_reason Decision.() -> string"),
    function(
        "fieldSelector", "authorizer_fieldselector ResourceCheck.(string) -> ResourceCheck", cost=_SELECTOR
    ),
    function(
        "labelSelector", "authorizer_labelselector ResourceCheck.(string) -> ResourceCheck", cost=_SELECTOR
    ),
)
