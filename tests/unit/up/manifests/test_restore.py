"""Restorable parts of a dump."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.up.manifests.restore import (
    SIMULATED,
    can_be_simulated,
    claim_status,
    describe,
    owners,
    restored,
)

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "x",
        "uid": "1",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{}],
        "labels": {"a": "b"},
        "ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "9"}],
        "finalizers": ["example.com/keep", "resource.kubernetes.io/delete-protection"],
    },
    "spec": {
        "nodeName": "n",
        "resourceClaims": [
            {"name": "c", "resourceClaimTemplateName": "t"},
            {"name": "d", "resourceClaimName": "named"},
        ],
    },
    "status": {
        "phase": "Running",
        "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "p-c-abcde"}],
        "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "p-c-abcde"}],
    },
}


def test_server_fields_are_dropped() -> None:
    metadata = restored(POD)["metadata"]
    assert metadata == {
        "name": "p",
        "namespace": "x",
        "labels": {"a": "b"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    assert "uid" in POD["metadata"]  # the dump is as it was


def test_a_pod_names_the_claim_that_was_made_for_it() -> None:
    made = restored(POD, {("x", "p-c-abcde")})
    assert made["spec"]["resourceClaims"] == [
        {"name": "c", "resourceClaimName": "p-c-abcde"},
        {"name": "d", "resourceClaimName": "named"},
    ]
    assert made["status"] == {
        "phase": "Running",
        "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "p-c-abcde"}],
    }
    # Without the claim another one is made from the template.
    assert restored(POD, {("y", "p-c-abcde")})["spec"] == POD["spec"]


def test_a_pending_pod_is_scheduled_again() -> None:
    waiting = {**POD, "spec": {"containers": []}, "status": {"phase": "Pending", "conditions": [{}]}}
    assert "status" not in restored(waiting)
    assert restored({**waiting, "status": {"phase": "Succeeded"}})["status"] == {"phase": "Succeeded"}


def node(**status: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}


def test_ready_nodes_are_simulated() -> None:
    amounts = {"cpu": "8", "memory": "1Gi"}
    ready = [{"type": "Ready", "status": "True"}]
    assert restored(node(capacity=amounts))["metadata"]["annotations"] == {SIMULATED: "true"}
    assert can_be_simulated(node(allocatable=amounts, conditions=ready))
    assert not can_be_simulated(
        node(allocatable=amounts, conditions=[{"type": "Ready", "status": "Unknown"}])
    )
    assert not can_be_simulated(node(capacity={"cpu": "8"}))
    assert not can_be_simulated({"kind": "Node", "metadata": {"name": "n"}})
    # An explicit false wins.
    annotated = {**node(capacity=amounts), "metadata": {"name": "n", "annotations": {SIMULATED: "false"}}}
    assert restored(annotated)["metadata"]["annotations"] == {SIMULATED: "false"}


def test_namespaces_keep_their_names() -> None:
    tree = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}
    assert restored({**tree, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}) == tree


def test_owner_references_to_restored_objects() -> None:
    assert owners(POD, {"9": "new"}) == [{"kind": "ReplicaSet", "name": "r", "uid": "new"}]
    assert owners(POD, {"8": "new"}) == []


def test_claims_are_reserved_for_the_pods_there_are() -> None:
    status = {
        "allocation": {"devices": {}},
        "reservedFor": [
            {"resource": "pods", "name": "p", "uid": "1"},
            {"resource": "pods", "name": "gone", "uid": "2"},
        ],
    }
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "x"}, "status": status}
    assert claim_status(claim, {("x", "p"): "new", ("y", "gone"): "other"}) == {
        "allocation": {"devices": {}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "new"}],
    }
    assert claim_status(claim, {}) == {"allocation": {"devices": {}}}
    assert claim_status({"metadata": {"name": "c"}}, {}) is None


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (POD, "Pod x/p"),
        ({"kind": "Node", "metadata": {"name": "n"}}, "Node n"),
        ({"kind": "Pod"}, "Pod without a name"),
    ],
)
def test_descriptions_of_objects(tree: dict[str, Any], text: str) -> None:
    assert describe(tree) == text


# Whatever stands in a file: what is restored can be restored, and stays as it is.
plain: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, 3, "", "ab"])
wrong: st.SearchStrategy[Any] = st.one_of(
    plain, st.lists(plain, max_size=2), st.dictionaries(st.sampled_from(["name", "uid"]), plain)
)


def some(**right: Any) -> Any:
    """Mapping with valid, invalid and missing fields; or no mapping at all."""
    fields = {name: wrong | st.just(value) for name, value in right.items()}
    return wrong | st.fixed_dictionaries({}, optional=fields)


@given(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["Pod", "Node", "Namespace", "ResourceClaim", "Other"])},
        optional={
            "metadata": some(
                name="a",
                uid="1",
                namespace="x",
                finalizers=["a"],
                annotations={},
                ownerReferences=[{"uid": "a"}],
            ),
            "spec": some(nodeName="n", resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}]),
            "status": some(
                phase="Failed",
                resourceClaimStatuses=[{"name": "a", "resourceClaimName": "a"}, 1],
                conditions=[{"type": "Ready", "status": "False"}],
                capacity={"cpu": 1, "memory": 1},
                reservedFor=[{"name": "a", "resource": "pods"}],
            ),
        },
    )
)
def test_any_tree_can_be_restored_and_once_is_enough(tree: dict[str, Any]) -> None:
    once = restored(tree, {("default", "a")})
    assert restored(once, {("default", "a")}) == once
    owners(tree, {"a": "b"})
    claim_status(tree, {("default", "a"): "b"})
    describe(tree)
