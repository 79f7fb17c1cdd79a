"""Tests of NodeRestriction: the writes of nodes and drivers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.admission.node_restriction import may_set_label, restrict_driver, restrict_node
from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.users import ADMIN, NODES, User, driver_user, node_user
from plimsoll.apiserver.storage import Store
from plimsoll.errors import ApiError
from tests.unit.apiserver.auth.objects import new_store, put

NODE = node_user("n1")
SLICES = "resourceslices.resource.k8s.io"
Tree = dict[str, Any]


@pytest.fixture
def store() -> Store:
    store = new_store()
    put(store, "nodes", "n1", {})
    put(store, "pods", "mine", {"spec": {"nodeName": "n1", "serviceAccountName": "a"}}, "x")
    put(store, "pods", "theirs", {"spec": {"nodeName": "n2"}}, "x")
    return store


def refused(
    store: Store, verb: str, resource: str, tree: Any, old: Any = None, sub: str = "", **more: Any
) -> str:
    """Return the reason why a write of the node is rejected, or ""."""
    try:
        restrict_node(more.pop("user", NODE), verb, resource, sub, tree, old, store, **more)
    except ApiError as error:
        if error.code not in (403, 404):
            raise
        return error.message
    return ""


def node(labels: Any = None, **spec: Any) -> Tree:
    return {"metadata": {"name": "n1", "labels": labels or {}}, "spec": spec}


def test_other_users_are_not_restricted(store: Store) -> None:
    assert not refused(store, "create", "nodes", {"metadata": {"name": "any"}}, user=ADMIN)
    restrict_driver(ADMIN, SLICES, {"spec": {"driver": "any"}}, None)


def test_a_node_writes_its_own_node(store: Store) -> None:
    assert not refused(store, "create", "nodes", node())
    assert not refused(store, "update", "nodes", node(), node(), "status")
    other = {"metadata": {"name": "n2"}}
    for verb, new, old in (("create", other, None), ("update", other, other), ("delete", None, other)):
        why = refused(store, verb, "nodes", new, old)
        assert why == 'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'
    nameless = User("system:node:", groups=(NODES,))
    assert "could not determine node" in refused(store, "create", "nodes", node(), user=nameless)


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("kubernetes.io/hostname", True),
        ("topology.kubernetes.io/zone", True),
        ("node.kubernetes.io/anything", True),
        ("x.kubelet.kubernetes.io/anything", True),
        ("example.com/gpu", True),
        ("plain", True),
        ("kubernetes.io", True),
        ("kubernetes.io/role", False),
        ("node-role.kubernetes.io/control-plane", False),
        ("node-restriction.kubernetes.io/tier", False),
        ("x.node-restriction.kubernetes.io/tier", False),
        ("foo.k8s.io/x", False),
        ("k8s.io/x", False),
        ("notkubernetes.io/x", True),
    ],
)
def test_labels_of_a_node(store: Store, key: str, allowed: bool) -> None:
    assert may_set_label(key) is allowed
    labelled = node({key: "v"})
    assert bool(refused(store, "create", "nodes", labelled)) is not allowed
    for new, old in ((labelled, node()), (node(), labelled), (node({key: "w"}), labelled)):
        assert bool(refused(store, "patch", "nodes", new, old)) is not allowed
    assert not refused(store, "update", "nodes", labelled, labelled)


def test_a_node_cannot_change_its_taints_owners_and_config(store: Store) -> None:
    tainted = node(taints=[{"key": "a", "effect": "NoSchedule"}])
    assert "modify taints" in refused(store, "update", "nodes", node(), tainted)
    assert "modify taints" in refused(store, "patch", "nodes", tainted, node(), "status")
    assert not refused(store, "create", "nodes", tainted)
    owned = {"metadata": {"name": "n1", "ownerReferences": [{"name": "x"}]}}
    assert "modify ownerReferences" in refused(store, "update", "nodes", owned, node())
    configured = node(configSource={"configMap": {"name": "x"}})
    assert "configSource" in refused(store, "create", "nodes", configured)
    assert "configSource" in refused(store, "update", "nodes", configured, node())
    assert not refused(store, "update", "nodes", node(), configured)


def mirror(change: Callable[[Tree], Any] = lambda pod: None) -> Tree:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-n1", "controller": True}
    pod: Tree = {
        "metadata": {
            "name": "static",
            "namespace": "x",
            "annotations": {"kubernetes.io/config.mirror": "hash"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "a"}]},
    }
    change(pod)
    return pod


def volumes(*sources: Tree) -> Callable[[Tree], Any]:
    listed = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    return lambda pod: pod["spec"].update(volumes=listed)


def owners(pod: Tree) -> list[Tree]:
    listed: list[Tree] = pod["metadata"]["ownerReferences"]
    return listed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda pod: pod["metadata"].pop("annotations"), 'does not have "kubernetes.io/config.mirror"'),
        (lambda pod: pod["spec"].update(nodeName="n2"), "can only create pods with spec.nodeName set"),
        (lambda pod: pod["spec"].pop("nodeName"), "can only create pods with spec.nodeName set"),
        (lambda pod: owners(pod).clear(), "with an owner reference set to itself"),
        (lambda pod: owners(pod).append({}), "with a single owner reference"),
        (lambda pod: owners(pod)[0].update(name="n2"), "with an owner reference set to itself"),
        (lambda pod: owners(pod)[0].pop("controller"), "with a controller owner reference"),
        (lambda pod: owners(pod)[0].update(blockOwnerDeletion=True), "blockOwnerDeletion"),
        (lambda pod: owners(pod)[0].update(uid="other"), "UID mismatch: expected other got uid-n1"),
        (lambda pod: pod["spec"].update(serviceAccountName="a"), "reference serviceaccounts"),
        (lambda pod: pod["spec"].update(imagePullSecrets=[{"name": "s"}]), "reference secrets"),
        (
            lambda pod: pod["spec"]["containers"][0].update(envFrom=[{"configMapRef": {"name": "c"}}]),
            "reference configmaps",
        ),
        (lambda pod: pod["spec"].update(resourceClaims=[{"name": "r"}]), "reference resourceclaims"),
        (volumes({"persistentVolumeClaim": {"claimName": "p"}}), "reference persistentvolumeclaims"),
        (volumes({"ephemeral": {}}), "reference persistentvolumeclaims (via ephemeral volumes)"),
        (volumes({"csi": {"driver": "d"}}), "reference csidrivers"),
        (
            volumes({"projected": {"sources": [{"serviceAccountToken": {}}]}}),
            "reference serviceaccounts (via projected volumes)",
        ),
        (volumes({"projected": {"sources": [{"new": {}}]}}), "unknown source of a projected volume"),
        (volumes({"new": {}}), "unknown kind of volume (new)"),
    ],
)
def test_mirror_pods(store: Store, change: Callable[[Tree], Any], why: str) -> None:
    assert not refused(store, "create", "pods", mirror())
    plain = volumes(
        {"emptyDir": {}}, {"hostPath": {"path": "/"}}, {"projected": {"sources": [{"downwardAPI": {}}]}}
    )
    assert not refused(store, "create", "pods", mirror(plain))
    assert why in refused(store, "create", "pods", mirror(change))


def test_a_mirror_pod_needs_a_node_that_exists() -> None:
    assert 'nodes "n1" not found' in refused(new_store(), "create", "pods", mirror())


def test_pods_of_the_node(store: Store) -> None:
    mine = {"metadata": {"name": "mine", "namespace": "x"}, "spec": {"nodeName": "n1"}}
    theirs = {"metadata": {"name": "theirs", "namespace": "x"}, "spec": {"nodeName": "n2"}}
    unbound = {"metadata": {"name": "new", "namespace": "x"}, "spec": {}}
    assert not refused(store, "delete", "pods", None, mine)
    assert not refused(store, "update", "pods", mine, mine, "status")
    assert not refused(store, "create", "pods", {}, sub="eviction", namespace="x", name="mine")
    for pod in (theirs, unbound):
        assert "can only delete pods" in refused(store, "delete", "pods", None, pod)
        assert "can only update pod status" in refused(store, "patch", "pods", pod, pod, "status")
    assert "can only evict" in refused(
        store, "create", "pods", {}, sub="eviction", namespace="x", name="theirs"
    )
    assert "not found" in refused(store, "create", "pods", {}, sub="eviction", namespace="x", name="none")
    assert "can only create and delete mirror pods" in refused(store, "update", "pods", mine, mine)
    assert "unexpected pod subresource" in refused(store, "create", "pods", {}, sub="binding")
    assert "unexpected operation" in refused(store, "create", "pods", mine, sub="status")


def test_pod_status_fields_that_a_node_cannot_change(store: Store) -> None:
    old: Tree = {
        "metadata": {"name": "mine", "namespace": "x", "labels": {"a": "b"}},
        "spec": {"nodeName": "n1"},
        "status": {
            "resourceClaimStatuses": [{"name": "r", "resourceClaimName": "c"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": []},
        },
    }
    same = {**old, "status": {**old["status"], "phase": "Running"}}
    assert not refused(store, "update", "pods", same, old, "status")
    changes = {
        "labels": {**old, "metadata": {**old["metadata"], "labels": {}}},
        "resource claim statuses": {**old, "status": {**old["status"], "resourceClaimStatuses": []}},
        "extended resource claim": {**old, "status": {**old["status"], "extendedResourceClaimStatus": None}},
    }
    for why, tree in changes.items():
        assert why in refused(store, "update", "pods", tree, old, "status")


def test_leases_and_csi_nodes(store: Store) -> None:
    leases, csi = "leases.coordination.k8s.io", "csinodes.storage.k8s.io"
    own = {"metadata": {"name": "n1", "namespace": "kube-node-lease"}}
    other = {"metadata": {"name": "n2", "namespace": "kube-node-lease"}}
    assert not refused(store, "create", leases, own)
    assert not refused(store, "update", leases, own, own)
    assert "with the same name" in refused(store, "create", leases, other)
    assert "kube-node-lease" in refused(
        store, "create", leases, {"metadata": {"name": "n1", "namespace": "x"}}
    )
    assert not refused(store, "create", csi, {"metadata": {"name": "n1"}})
    assert "with the same name" in refused(store, "delete", csi, None, {"metadata": {"name": "n2"}})


def test_slices(store: Store) -> None:
    own, other = {"spec": {"nodeName": "n1"}}, {"spec": {"nodeName": "n2"}}
    assert not refused(store, "create", SLICES, own)
    assert not refused(store, "deletecollection", SLICES, None, own)
    assert "can only create ResourceSlice" in refused(store, "create", SLICES, other)
    assert "can only create ResourceSlice" in refused(store, "create", SLICES, {"spec": {"allNodes": True}})
    assert "can only delete ResourceSlice" in refused(store, "deletecollection", SLICES, None, other)


def test_status_of_volume_claims(store: Store) -> None:
    old: Tree = {
        "metadata": {"name": "c", "resourceVersion": "1", "managedFields": []},
        "spec": {"volumeName": "v"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }
    grown: Tree = {
        "metadata": {"name": "c"},
        "spec": old["spec"],
        "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}, "conditions": [{}]},
    }
    claims = "persistentvolumeclaims"
    assert not refused(store, "patch", claims, grown, old, "status")
    moved = {**grown, "spec": {"volumeName": "w"}}
    relabelled = {**grown, "metadata": {"name": "c", "labels": {"a": "b"}}}
    for tree in (moved, relabelled):
        assert "fields other than" in refused(store, "patch", claims, tree, old, "status")
    assert "may only update PVC status" in refused(store, "update", claims, grown, old)
    assert "unexpected operation" in refused(store, "create", claims, grown, None, "status")


def token_request(*audiences: str, **bound: Any) -> Tree:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": "uid-mine", **bound}
    return {"spec": {"boundObjectRef": reference, "audiences": list(audiences)}}


def test_tokens_for_pods_of_the_node(store: Store) -> None:
    def why(request: Any, **more: Any) -> str:
        return refused(
            store, "create", "serviceaccounts", request, None, "token", namespace="x", name="a", **more
        )

    put(
        store,
        "pods",
        "mine",
        {
            "spec": {
                "nodeName": "n1",
                "serviceAccountName": "a",
                "volumes": [
                    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"audience": "vault"}}]}},
                    {"name": "d", "csi": {"driver": "inline.csi"}},
                    {"name": "p", "persistentVolumeClaim": {"claimName": "c"}},
                ],
            }
        },
        "x",
    )
    put(store, "persistentvolumeclaims", "c", {"spec": {"volumeName": "pv"}}, "x")
    put(store, "persistentvolumes", "pv", {"spec": {"csi": {"driver": "bound.csi"}}})
    for name in ("inline", "bound"):
        driver = {"spec": {"tokenRequests": [{"audience": f"for-{name}"}]}}
        put(store, "csidrivers.storage.k8s.io", f"{name}.csi", driver)
    for audience in ("vault", "for-inline", "for-bound"):
        assert not why(token_request(audience))
    assert 'audience "other" not found in pod spec volume' in why(token_request("other"))
    assert 'audience "" not found' in why(token_request())
    assert "0 or 1 audiences" in why(token_request("vault", "for-inline"))
    assert "not bound to a pod" in why({})
    assert "not bound to a pod" in why(token_request(kind="Node"))
    assert "without a uid" in why(token_request(uid=""))
    assert "does not match the UID in record" in why(token_request(uid="old"))
    assert "different node" in why(token_request(name="theirs", uid="uid-theirs"))
    assert 'pods "none" not found' in why(token_request(name="none"))

    asked: list[Attributes] = []

    def allow(question: Attributes) -> bool:
        asked.append(question)
        return True

    assert not why(token_request("other"), allows=allow)
    (question,) = asked
    assert question.verb == "request-serviceaccounts-token-audience"
    assert (question.resource, question.namespace, question.name) == ("other", "x", "a")


def test_pod_certificates(store: Store) -> None:
    put(store, "serviceaccounts", "a", {}, "x")
    spec = {
        "nodeName": "n1",
        "nodeUID": "uid-n1",
        "podName": "mine",
        "podUID": "uid-mine",
        "serviceAccountName": "a",
        "serviceAccountUID": "uid-a",
    }

    def why(**change: str) -> str:
        tree = {"spec": {**spec, **change}}
        resource = "podcertificaterequests.certificates.k8s.io"
        return refused(store, "create", resource, tree, namespace="x", name="r")

    assert not why()
    assert "not the requesting node" in why(nodeName="n2")
    assert "not running on node" in why(podName="theirs")
    assert "service account of the request differs" in why(serviceAccountName="b")
    for field in ("nodeUID", "podUID", "serviceAccountUID"):
        assert field in why(**{field: "old"})


def test_drivers_write_their_own_slices() -> None:
    driver = driver_user("gpu.example.com")
    own, other = {"spec": {"driver": "gpu.example.com"}}, {"spec": {"driver": "nic.example.com"}}
    restrict_driver(driver, SLICES, own, None)
    restrict_driver(driver, SLICES, own, own)
    restrict_driver(driver, SLICES, None, own)
    restrict_driver(driver, "pods", other, None)
    for tree, old in ((other, None), (own, other), (other, own), (None, other), ({}, None)):
        with pytest.raises(ApiError) as caught:
            restrict_driver(driver, SLICES, tree, old)
        assert caught.value.code == 403


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "labels", "name", "annotations", "volumes", "taints"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
RESOURCES = st.sampled_from(
    [
        *("pods", "nodes", "persistentvolumeclaims", "serviceaccounts", "leases.coordination.k8s.io"),
        *("csinodes.storage.k8s.io", SLICES),
        *("podcertificaterequests.certificates.k8s.io", "secrets"),
    ]
)


@given(
    st.sampled_from(["create", "update", "patch", "delete", "deletecollection", "odd"]),
    RESOURCES,
    st.sampled_from(["", "status", "token", "eviction"]),
    JSON,
    JSON,
)
def test_any_write_is_allowed_or_refused(
    verb: str, resource: str, subresource: str, tree: Any, old: Any
) -> None:
    refused(new_store(), verb, resource, tree, old, subresource)
    with contextlib.suppress(ApiError):
        restrict_driver(driver_user("d"), resource, tree, old)
