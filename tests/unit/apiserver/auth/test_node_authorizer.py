"""Tests of the Node authorizer."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.users import NODES, User, node_user
from tests.unit.apiserver.auth.objects import (
    new_authorizer,
    new_store,
    put,
    put_binding,
    put_role,
    rule,
    user_subject,
)

DRA, STORAGE, LEASES = "resource.k8s.io", "storage.k8s.io", "coordination.k8s.io"
NODE = node_user("n1")


@pytest.fixture
def authorizer() -> Authorizer:
    store = new_store()
    spec = {
        "nodeName": "n1",
        "serviceAccountName": "account",
        "volumes": [
            {"name": "a", "secret": {"secretName": "mine"}},
            {"name": "b", "configMap": {"name": "mine"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "mine"}},
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
    }
    put(store, "pods", "here", {"spec": spec}, "x")
    put(store, "pods", "elsewhere", {"spec": {**spec, "nodeName": "n2"}}, "y")
    claim = {"name": "mine", "namespace": "x"}
    stage = {"nodeStageSecretRef": {"name": "for-volume", "namespace": "vault"}}
    put(store, "persistentvolumes", "pv", {"spec": {"claimRef": claim, "csi": stage}})
    put(store, f"volumeattachments.{STORAGE}", "va", {"spec": {"nodeName": "n1"}})
    put(store, f"resourceslices.{DRA}", "own", {"spec": {"nodeName": "n1"}})
    put(store, f"resourceslices.{DRA}", "other", {"spec": {"nodeName": "n2"}})
    return new_authorizer(store)


def asked(
    verb: str, what: str, namespace: str = "", name: str = "", group: str = "", **more: Any
) -> Attributes:
    resource, _, subresource = what.partition("/")
    return Attributes(NODE, verb, group, "v1", resource, subresource, namespace, name, **more)


OWN_NODE = (("spec.nodeName", "n1"),)
ALLOWED = [
    asked("get", "secrets", "x", "mine"),
    asked("watch", "secrets", "x", "mine"),
    asked("get", "secrets", "vault", "for-volume"),
    asked("list", "configmaps", "x", "mine"),
    asked("get", "persistentvolumeclaims", "x", "mine"),
    asked("patch", "persistentvolumeclaims/status", "x", "mine"),
    asked("get", "persistentvolumes", "", "pv"),
    asked("get", "volumeattachments", "", "va", STORAGE),
    asked("get", "resourceclaims", "x", "mine", DRA),
    asked("get", "serviceaccounts", "x", "account"),
    asked("create", "serviceaccounts/token", "x", "account"),
    asked("get", "nodes", "", "n1"),
    asked("watch", "nodes", "", "n1"),
    asked("create", "nodes"),
    asked("patch", "nodes/status", "", "n1"),
    asked("get", "pods", "x", "here"),
    asked("list", "pods", fields=OWN_NODE),
    asked("watch", "pods", "x", fields=OWN_NODE),
    asked("create", "pods", "x"),
    asked("delete", "pods", "x", "here"),
    asked("update", "pods/status", "x", "here"),
    asked("create", "pods/eviction", "x", "here"),
    asked("update", "leases", "kube-node-lease", "n1", LEASES),
    asked("create", "leases", "kube-node-lease", "", LEASES),
    asked("get", "csinodes", "", "n1", STORAGE),
    asked("create", "resourceslices", "", "", DRA),
    asked("update", "resourceslices", "", "own", DRA),
    asked("list", "resourceslices", "", "", DRA, fields=OWN_NODE),
    asked("deletecollection", "resourceslices", "", "", DRA, fields=OWN_NODE),
    asked("list", "services"),
    asked("create", "events", "x"),
    asked("get", "runtimeclasses", "", "r", "node.k8s.io"),
]
DENIED = [
    (asked("get", "secrets", "x", "other"), "no relationship found between node 'n1' and this object"),
    (asked("get", "secrets", "y", "mine"), "no relationship found between node 'n1' and this object"),
    (asked("list", "secrets", "x"), "No Object name found"),
    (asked("list", "secrets"), "can only read namespaced object of this type"),
    (asked("update", "secrets", "x", "mine"), "can only read resources of this type"),
    (asked("list", "persistentvolumeclaims", "x"), "can only get individual resources of this type"),
    (asked("get", "persistentvolumeclaims/status", "x", "mine"), "can only get/update/patch this type"),
    (asked("update", "resourceclaims/status", "x", "mine", DRA), "can only get individual resources"),
    (asked("update", "resourceclaims", "x", "mine", DRA), "can only get individual resources of this type"),
    (asked("get", "resourceclaims", "y", "mine", DRA), "no relationship"),
    (asked("create", "serviceaccounts/token", "y", "account"), "no relationship"),
    (asked("create", "serviceaccounts", "x"), "can only create tokens for individual service accounts"),
    (asked("get", "nodes", "", "n2"), "node 'n1' cannot read 'n2', only its own Node object"),
    (asked("list", "nodes"), "node 'n1' cannot read all nodes, only its own Node object"),
    (asked("delete", "nodes", "", "n1"), ""),
    (asked("get", "pods", "y", "elsewhere"), "no relationship"),
    (asked("list", "pods"), "can only list/watch pods with spec.nodeName field selector"),
    (asked("list", "pods", fields=(("spec.nodeName", "n2"),)), "can only list/watch pods"),
    (asked("create", "pods/binding", "x", "here"), ""),
    (asked("update", "pods", "x", "here"), ""),
    (asked("update", "leases", "kube-node-lease", "n2", LEASES), "with the same name"),
    (asked("update", "leases", "x", "n1", LEASES), 'in the "kube-node-lease" system namespace'),
    (asked("list", "leases", "kube-node-lease", "", LEASES), "can only get, create, update"),
    (asked("get", "csinodes", "", "n2", STORAGE), "with the same name"),
    (asked("update", "resourceslices", "", "other", DRA), "no relationship"),
    (asked("list", "resourceslices", "", "", DRA), "with nodeName field selector"),
    (asked("get", "deployments", "x", "d", "apps"), ""),
    (asked("create", "clusterrolebindings", "", "", "rbac.authorization.k8s.io"), ""),
]


@pytest.mark.parametrize("question", ALLOWED, ids=lambda q: "-".join(filter(None, q[1:8])))
def test_allowed(authorizer: Authorizer, question: Attributes) -> None:
    assert authorizer.authorize(question) == (True, "")


@pytest.mark.parametrize(("question", "reason"), DENIED)
def test_denied(authorizer: Authorizer, question: Attributes, reason: str) -> None:
    decision = authorizer.authorize(question)
    assert not decision.allowed
    assert reason in decision.reason
    assert bool(reason) == bool(decision.reason)


def test_only_members_of_the_group_are_nodes(authorizer: Authorizer) -> None:
    for user in (User("system:node:n1"), User("n1", groups=(NODES,)), User("system:node:", groups=(NODES,))):
        for question in ALLOWED:
            assert not authorizer.allows(question._replace(user=user)), (user, question)


def test_a_node_without_a_name_is_rejected(authorizer: Authorizer) -> None:
    nameless = User("system:node:", groups=(NODES,))
    decision = authorizer.authorize(ALLOWED[0]._replace(user=nameless))
    assert decision == (False, 'unknown node for user "system:node:"')


def test_roles_bound_to_a_node_count_too() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    question = asked("list", "nodes")
    assert not authorizer.allows(question)
    put_role(store, "lister", rule("list", "nodes"))
    put_binding(store, "b", "lister", user_subject("system:node:n1"))
    assert authorizer.allows(question)


def test_a_deleted_pod_loses_its_permissions() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    volumes = [{"name": "a", "secret": {"secretName": "s"}}]
    tree = put(store, "pods", "p", {"spec": {"nodeName": "n1", "volumes": volumes}}, "x")
    question = asked("get", "secrets", "x", "s")
    assert authorizer.allows(question)
    key = store.list("pods").items[0].key
    stored = store.get(key)
    assert stored is not None
    store.delete(key, tree, stored.revision)
    assert not authorizer.allows(question)
