"""Run-time values that only the expressions of admission policies have.

The authorizer with its checks and decisions, the variables of a policy (evaluated when they are first read),
and the results of mutations: `Object{...}` and `JSONPatch{...}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from plimsoll.errors import CelRuntimeError


class AuthorizationQuery(NamedTuple):
    """Question to the authorizer: about a path, or about a resource.

    `account` is the service account (namespace, name) that the question is about; None for the user of the
    request.
    """

    verb: str
    account: tuple[str, str] | None = None
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""


#: Returns whether a request is allowed, and the reason.
Authorize: TypeAlias = Callable[[AuthorizationQuery], tuple[bool, str]]


@dataclass(frozen=True, slots=True)
class AuthorizerValue:
    """`authorizer`, or `authorizer.serviceAccount(namespace, name)`."""

    authorize: Authorize
    account: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PathCheck:
    """`authorizer.path("/healthz")`."""

    authorizer: AuthorizerValue
    path: str

    def check(self, verb: str) -> AuthorizationDecision:
        query = AuthorizationQuery(verb, self.authorizer.account, path=self.path)
        return AuthorizationDecision(*self.authorizer.authorize(query))


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """`authorizer.group("apps")`."""

    authorizer: AuthorizerValue
    group: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    """`authorizer.group("apps").resource("deployments")` and what narrows it down."""

    authorizer: AuthorizerValue
    query: AuthorizationQuery

    def narrowed(self, **parts: Any) -> ResourceCheck:
        return replace(self, query=self.query._replace(**parts))

    def check(self, verb: str) -> AuthorizationDecision:
        query = self.query._replace(verb=verb, account=self.authorizer.account)
        return AuthorizationDecision(*self.authorizer.authorize(query))


@dataclass(frozen=True, slots=True)
class AuthorizationDecision:
    """Result of a check."""

    allowed: bool
    reason: str


class LazyVariables:
    """Variables of a policy; each is evaluated when it is first read, and its failure is kept as well."""

    __slots__ = ("_evaluate", "_names", "_results")

    def __init__(self, names: frozenset[str], evaluate: Callable[[str], Any]) -> None:
        self._names = names
        self._evaluate = evaluate
        self._results: dict[str, tuple[Any, CelRuntimeError | None]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def read(self, name: str) -> Any:
        """Return the value of a variable; raises CelRuntimeError if its expression fails."""
        if name not in self._results:
            try:
                self._results[name] = self._evaluate(name), None
            except CelRuntimeError as error:
                self._results[name] = None, error
        value, failure = self._results[name]
        if failure is not None:
            raise failure
        return value


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """`Object.spec{...}`: a part of an object that a mutation applies."""

    type_name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JsonPatchOperation:
    """`JSONPatch{op: ..., path: ..., from: ..., value: ...}`; `fields` are those that were given."""

    fields: Mapping[str, Any]


ADMISSION_TYPE_NAMES: dict[type, str] = {
    AuthorizerValue: "kubernetes.authorization.Authorizer",
    PathCheck: "kubernetes.authorization.PathCheck",
    GroupCheck: "kubernetes.authorization.GroupCheck",
    ResourceCheck: "kubernetes.authorization.ResourceCheck",
    AuthorizationDecision: "kubernetes.authorization.Decision",
    LazyVariables: "kubernetes.variables",
    ObjectValue: "Object",
    JsonPatchOperation: "JSONPatch",
}
