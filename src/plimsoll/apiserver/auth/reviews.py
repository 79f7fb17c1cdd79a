"""Access and token reviews, as `kubectl auth can-i` and `kubectl auth whoami` send them.

Handles SelfSubjectAccessReview, SubjectAccessReview, LocalSubjectAccessReview, SelfSubjectRulesReview,
SelfSubjectReview and TokenReview, which are never stored. Malformed ones are rejected (400 or 422).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plimsoll.apiserver import status
from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.authentication import Authenticator
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.users import User, node_name_of
from plimsoll.apiserver.json_values import items, mapping, text
from plimsoll.apiserver.validation.field_errors import FieldError, FieldPath, invalid
from plimsoll.errors import ApiError

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
#: Kinds by resource, with their group.
KINDS: Mapping[str, tuple[str, str]] = {
    "selfsubjectaccessreviews": (AUTHORIZATION, "SelfSubjectAccessReview"),
    "subjectaccessreviews": (AUTHORIZATION, "SubjectAccessReview"),
    "localsubjectaccessreviews": (AUTHORIZATION, "LocalSubjectAccessReview"),
    "selfsubjectrulesreviews": (AUTHORIZATION, "SelfSubjectRulesReview"),
    "selfsubjectreviews": (AUTHENTICATION, "SelfSubjectReview"),
    "tokenreviews": (AUTHENTICATION, "TokenReview"),
}
_SPEC, _RESOURCE, _PATH = FieldPath("spec"), "resourceAttributes", "nonResourceAttributes"
_STRING_FIELDS = {
    _RESOURCE: ("namespace", "verb", "group", "version", "resource", "subresource", "name"),
    _PATH: ("path", "verb"),
}


class ReviewHandler:
    """Handler of reviews."""

    def __init__(self, authorizer: Authorizer, authenticator: Authenticator) -> None:
        self._authorizer = authorizer
        self._authenticator = authenticator

    def review(
        self, plural: str, user: User, tree: Any, *, namespace: str = "", now: str = ""
    ) -> dict[str, Any]:
        """Return the posted review with its status.

        `plural` is one of `KINDS`, `namespace` that of the path, `now` the time for metadata.
        """
        group, kind = KINDS[plural]
        review = mapping(tree)
        spec = review.get("spec")
        if spec is not None and not isinstance(spec, dict):
            raise status.bad_request(f"{kind}: spec must be an object")
        result = _REVIEWERS[kind](self, user, mapping(spec), namespace)
        metadata = {key: value for key, value in mapping(review.get("metadata")).items() if value is not None}
        if kind == "SelfSubjectReview" and now:
            metadata = {"creationTimestamp": now}
        response: dict[str, Any] = {
            "kind": kind,
            "apiVersion": text(review.get("apiVersion")) or f"{group}/v1",
            "metadata": metadata,
        }
        if kind != "SelfSubjectReview":
            response["spec"] = spec or {}
        return {**response, "status": result}

    def _access_of_self(self, user: User, spec: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        return self._decide(user, spec)

    def _access(self, user: User, spec: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        return self._decide(_subject(spec), spec)

    def _local_access(self, user: User, spec: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        if spec.get(_PATH) is not None:
            problem = invalid(_SPEC.child(_PATH), "", "disallowed on this kind of request")
            raise _invalid([problem])
        requested = mapping(spec.get(_RESOURCE)).get("namespace")
        if requested != namespace:
            path = _SPEC.child(_RESOURCE).child("namespace")
            raise _invalid([invalid(path, text(requested), "must match metadata.namespace")])
        return self._decide(_subject(spec), spec)

    def _decide(self, user: User, spec: Mapping[str, Any]) -> dict[str, Any]:
        decision = self._authorizer.authorize(_read_attributes(user, spec))
        response: dict[str, Any] = {"allowed": decision.allowed}
        if decision.reason:
            response["reason"] = decision.reason
        return response

    def _rules_of_self(self, user: User, spec: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        wanted = spec.get("namespace")
        if not isinstance(wanted, str) or not wanted:
            raise status.bad_request("no namespace on request")
        rules = self._authorizer.rules_for(user, wanted)
        trees = [rule.to_tree() for rule in rules]
        # Permissions of a node depend on the pods bound to it: rules cannot list them.
        response: dict[str, Any] = {
            "resourceRules": [_part(tree, "nonResourceURLs") for tree in trees if tree.get("resources")],
            "nonResourceRules": [
                {"verbs": tree.get("verbs", []), "nonResourceURLs": tree["nonResourceURLs"]}
                for tree in trees
                if tree.get("nonResourceURLs")
            ],
            "incomplete": node_name_of(user) is not None,
        }
        if response["incomplete"]:
            response["evaluationError"] = "node authorizer does not support user rule resolution"
        return response

    def _self(self, user: User, spec: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        return {"userInfo": user_tree(user)}

    def _token(self, user: User, spec: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        token, audiences = spec.get("token"), spec.get("audiences") or []
        if not isinstance(token, str) or not token:
            raise status.bad_request("token is required for TokenReview in authentication")
        if not isinstance(audiences, list) or not all(isinstance(audience, str) for audience in audiences):
            raise status.bad_request("TokenReview: spec.audiences must be a list of strings")
        found = self._authenticator.review(token, audiences)
        if found is None:
            return {"user": {}, "error": "invalid bearer token"}
        owner, meant = found
        return {"authenticated": True, "user": user_tree(owner), "audiences": list(meant)}


_REVIEWERS = {
    "SelfSubjectAccessReview": ReviewHandler._access_of_self,
    "SubjectAccessReview": ReviewHandler._access,
    "LocalSubjectAccessReview": ReviewHandler._local_access,
    "SelfSubjectRulesReview": ReviewHandler._rules_of_self,
    "SelfSubjectReview": ReviewHandler._self,
    "TokenReview": ReviewHandler._token,
}


def user_tree(user: User) -> dict[str, Any]:
    """Return a user as UserInfo."""
    tree: dict[str, Any] = {"username": user.name}
    if user.uid:
        tree["uid"] = user.uid
    if user.groups:
        tree["groups"] = list(user.groups)
    if user.extra:
        tree["extra"] = {key: list(values) for key, values in user.extra.items()}
    return tree


def _part(tree: Mapping[str, Any], without: str) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key != without}


def _read_attributes(user: User, spec: Mapping[str, Any]) -> Attributes:
    """Read the attributes of a review."""
    resource, path = spec.get(_RESOURCE), spec.get(_PATH)
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        raise _invalid([invalid(_SPEC.child(_PATH), "", detail)])
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid([invalid(_SPEC.child(_RESOURCE), None, detail)])
    kind, fields = (_RESOURCE, resource) if resource is not None else (_PATH, path)
    if not isinstance(fields, dict):
        raise status.bad_request(f"spec.{kind} must be an object")
    for name in _STRING_FIELDS[kind]:
        if fields.get(name) is not None and not isinstance(fields[name], str):
            raise status.bad_request(f"spec.{kind}.{name} must be a string")
    requested = {name: text(fields.get(name)) for name in _STRING_FIELDS[kind]}
    if kind == _PATH:
        return Attributes(user, requested["verb"], path=requested["path"] or "/")
    return Attributes(user, **requested, fields=tuple(_exact_fields(fields.get("fieldSelector"))))


def _exact_fields(selector: Any) -> Iterator[tuple[str, str]]:
    """Yield the requirements of a field selector for one value."""
    chosen = mapping(selector)
    for part in text(chosen.get("rawSelector")).split(","):
        field, equals, value = part.partition("=")
        if equals and not field.endswith("!"):
            yield field.strip(), value.removeprefix("=").strip()
    for requirement in items(chosen.get("requirements")):
        values = requirement.get("values")
        if requirement.get("operator") == "In" and isinstance(values, list) and len(values) == 1:
            yield text(requirement.get("key")), text(values[0])


def _subject(spec: Mapping[str, Any]) -> User:
    """Read the subject of a review."""
    name, uid, groups = spec.get("user"), spec.get("uid"), spec.get("groups")
    if not all(value is None or isinstance(value, str) for value in (name, uid)):
        raise status.bad_request("spec.user and spec.uid must be strings")
    if groups is not None and not (isinstance(groups, list) and all(isinstance(g, str) for g in groups)):
        raise status.bad_request("spec.groups must be a list of strings")
    if not name and not groups:
        detail = "at least one of user or group must be specified"
        raise _invalid([invalid(_SPEC.child("user"), "", detail)])
    extra = {
        key: tuple(value for value in values if isinstance(value, str))
        for key, values in mapping(spec.get("extra")).items()
        if isinstance(values, list)
    }
    return User(text(name), text(uid), tuple(groups or ()), extra)


def _invalid(problems: list[FieldError]) -> ApiError:
    return status.invalid(AUTHORIZATION, "", "", problems)
