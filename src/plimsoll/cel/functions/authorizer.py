"""Authorizer functions, which Kubernetes declares in every environment.

Admission policies have the variables `authorizer` and `authorizer.requestResource`. No variable of a device
selector is an authorizer, so calls that compile there (on a value of unknown type) always fail at run time,
with the error and cost of any other call with a wrong type.
"""

from __future__ import annotations

from math import ceil

from plimsoll.api.names import dns_label, dns_subdomain
from plimsoll.cel.admission_values import (
    AuthorizationQuery,
    AuthorizerValue,
    GroupCheck,
    PathCheck,
    ResourceCheck,
)
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
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.overloads.ranges import fixed
from plimsoll.cel.values import Value, size_of
from plimsoll.errors import CelRuntimeError


def _path(authorizer: AuthorizerValue, path: str) -> PathCheck:
    if not path.strip():
        raise CelRuntimeError("path must not be empty")
    return PathCheck(authorizer, path)


def _service_account(authorizer: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    if dns_subdomain(name):
        raise CelRuntimeError("Invalid service account name")
    if dns_label(namespace):
        raise CelRuntimeError("Invalid service account namespace")
    return AuthorizerValue(authorizer.authorize, (namespace, name))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise CelRuntimeError("resource must not be empty")
    return ResourceCheck(check.authorizer, AuthorizationQuery("", group=check.group, resource=resource))


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
    function("path", "authorizer_path Authorizer.(string) -> PathCheck", call=_path),
    function("group", "authorizer_group Authorizer.(string) -> GroupCheck", call=GroupCheck),
    function(
        "serviceAccount",
        "authorizer_serviceaccount Authorizer.(string, string) -> Authorizer",
        call=_service_account,
    ),
    function("resource", "groupcheck_resource GroupCheck.(string) -> ResourceCheck", call=_resource),
    function(
        "subresource",
        "resourcecheck_subresource ResourceCheck.(string) -> ResourceCheck",
        call=lambda check, text: check.narrowed(subresource=text),
    ),
    function(
        "namespace",
        "resourcecheck_namespace ResourceCheck.(string) -> ResourceCheck",
        call=lambda check, text: check.narrowed(namespace=text),
    ),
    function(
        "name",
        "resourcecheck_name ResourceCheck.(string) -> ResourceCheck",
        call=lambda check, text: check.narrowed(name=text),
    ),
    function(
        "check",
        overload("pathcheck_check PathCheck.(string) -> Decision", PathCheck.check),
        overload("resourcecheck_check ResourceCheck.(string) -> Decision", ResourceCheck.check),
        cost=CallCost(350_000),
    ),
    # No authorizer of this server fails.
    function("errored", "decision_errored Decision.() -> bool", call=lambda decision: False),
    function("error", "decision_error Decision.() -> string", call=lambda decision: ""),
    function("allowed", "decision_allowed Decision.() -> bool", call=lambda decision: decision.allowed),
    function("reason", "decision_reason Decision.() -> string", call=lambda decision: decision.reason),
    function(
        "fieldSelector",
        "authorizer_fieldselector ResourceCheck.(string) -> ResourceCheck",
        call=lambda check, text: check.narrowed(field_selector=text),
        cost=_SELECTOR,
    ),
    # No authorizer of this server decides by labels.
    function(
        "labelSelector",
        "authorizer_labelselector ResourceCheck.(string) -> ResourceCheck",
        call=lambda check, text: check,
        cost=_SELECTOR,
    ),
)
