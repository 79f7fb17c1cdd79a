"""Matching of requests with the rules of FlowSchemas."""

from __future__ import annotations

from typing import NamedTuple

from plimsoll.apiserver.auth.users import User, split_service_account
from plimsoll.apiserver.flowcontrol.configuration import FlowSchema
from plimsoll.apiserver.registry.schema_view import View


class RequestDigest(NamedTuple):
    """Attributes of a request that FlowSchemas match: user and target. `path` is empty for a resource."""

    user: User
    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""  #: with its subresource, such as `pods/status`
    namespace: str = ""


def matches_flow_schema(digest: RequestDigest, schema: FlowSchema) -> bool:
    """Return whether one of the rules of a FlowSchema applies to a request."""
    return any(_matches_rule(digest, rule) for rule in schema.rules)


def _matches_rule(digest: RequestDigest, rule: View) -> bool:
    if not any(_matches_subject(digest.user, subject) for subject in rule.subjects):
        return False
    if digest.path:
        return any(_matches_url(digest, each) for each in rule.non_resource_rules)
    return any(_matches_resource(digest, each) for each in rule.resource_rules)


def _matches_subject(user: User, subject: View) -> bool:
    if subject.kind == "User":
        return subject.user is not None and subject.user.name in ("*", user.name)
    if subject.kind == "Group":
        return subject.group is not None and (subject.group.name == "*" or subject.group.name in user.groups)
    account, wanted = split_service_account(user.name), subject.service_account
    if subject.kind != "ServiceAccount" or account is None or wanted is None:
        return False
    return wanted.namespace == account[0] and wanted.name in ("*", account[1])


def _matches_resource(digest: RequestDigest, rule: View) -> bool:
    if not (
        _includes(rule.verbs, digest.verb)
        and _includes(rule.resources, digest.resource)
        and _includes(rule.api_groups, digest.group)
    ):
        return False
    if not digest.namespace:
        return bool(rule.cluster_scope)
    return _includes(rule.namespaces, digest.namespace)


def _matches_url(digest: RequestDigest, rule: View) -> bool:
    return _includes(rule.verbs, digest.verb) and any(
        _matches_path(digest.path, pattern) for pattern in rule.non_resource_urls
    )


def _matches_path(path: str, pattern: str) -> bool:
    """Return whether a pattern is a path, or its start up to a slash; `*` at its end changes nothing."""
    if pattern in ("*", path):
        return True
    start = pattern.removesuffix("*")
    return path.startswith(start if start.endswith("/") else f"{start}/")


def _includes(values: tuple[str, ...], value: str) -> bool:
    return value in values or values == ("*",)
