"""Roles of kube-controller-manager's controllers: read from data, and bound to their service accounts."""

from __future__ import annotations

import pytest

from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.controller_roles import CONTROLLER_ROLES
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.storage import Store


def allowed(account: str, verb: str, resource: str, group: str = "", namespace: str = "x") -> bool:
    user = User(f"system:serviceaccount:kube-system:{account}")
    name, _, subresource = resource.partition("/")
    attributes = Attributes(user, verb, group, "v1", name, subresource, namespace, "some")
    return Authorizer(Store.open(None)).allows(attributes)


@pytest.mark.parametrize(
    ("account", "verb", "resource", "group"),
    [
        ("replicaset-controller", "create", "pods", ""),
        ("deployment-controller", "update", "replicasets", "apps"),
        ("endpointslice-controller", "create", "endpointslices", "discovery.k8s.io"),
        ("job-controller", "update", "jobs/status", "batch"),
        ("resource-claim-controller", "create", "resourceclaims", "resource.k8s.io"),
        ("generic-garbage-collector", "delete", "anything", "example.com"),
    ],
)
def test_controllers_may_do_their_work(account: str, verb: str, resource: str, group: str) -> None:
    assert allowed(account, verb, resource, group)
    assert not allowed("ttl-controller", verb, resource, group)


def test_some_roles_apply_in_one_namespace() -> None:
    assert allowed("token-cleaner", "delete", "secrets", namespace="kube-system")
    assert not allowed("token-cleaner", "delete", "secrets", namespace="default")


def test_every_role_has_rules() -> None:
    names = [role.name for role in CONTROLLER_ROLES]
    assert len(names) == len(set(names)) == 44
    for role in CONTROLLER_ROLES:
        assert role.rules, role.name
        for rule in role.rules:
            assert rule.verbs
            assert rule.paths or (rule.groups and rule.resources)
