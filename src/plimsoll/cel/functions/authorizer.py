"""The authorizer functions, which Kubernetes declares in every environment.

No selector can hold an authorizer, so calls that compile (on a value of unknown type) always fail; they are
here to fail, and to cost, like any other call on the wrong type.
"""

from __future__ import annotations

from plimsoll.cel.functions.registry import STRING, Function, Overload, Param, function
from plimsoll.cel.values import Value


class _Authorizer:
    """The type of a value that does not exist here."""


_NEVER = Param(_Authorizer)


def _unreachable(*args: Value) -> Value:
    raise AssertionError("no value is an authorizer")


def _member(name: str, *ids: str, args: int = 1, early: bool = False) -> Function:
    params = (_NEVER, *[STRING] * args)
    return function(name, *(Overload(id, params, _unreachable, early=early) for id in ids))


FUNCTIONS: tuple[Function, ...] = (
    _member("path", "authorizer_path"),
    _member("group", "authorizer_group"),
    _member("serviceAccount", "authorizer_serviceaccount", args=2, early=True),
    _member("resource", "groupcheck_resource"),
    _member("subresource", "resourcecheck_subresource"),
    _member("namespace", "resourcecheck_namespace"),
    _member("name", "resourcecheck_name"),
    _member("check", "pathcheck_check", "resourcecheck_check"),
    _member("errored", "decision_errored", args=0),
    _member("error", "decision_error", args=0),
    _member("allowed", "decision_allowed", args=0),
    _member("reason", "decision_reason", args=0),
    _member("fieldSelector", "authorizer_fieldselector"),
    _member("labelSelector", "authorizer_labelselector"),
)
