"""ResourceClaims of a pod: names from spec and status, owners, reservations; with and without a PodGroup."""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import (
    ClaimName,
    claim_for_entry,
    is_owned_by,
    is_owned_by_group,
    is_reserved_for,
    owner_pod,
    resolve_claim_names,
)
from plimsoll.api.resource import ResourceClaim


def make_pod(entries: list[dict[str, Any]], status: dict[str, Any] | None = None, group: str = "") -> Pod:
    spec: dict[str, Any] = {"containers": [], "resourceClaims": entries}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    metadata = {"name": "p", "namespace": "default", "uid": "pod-uid"}
    return codec.convert({"metadata": metadata, "spec": spec, "status": status or {}}, Pod)


def make_claim(owner: dict[str, Any] | None = None, *consumers: dict[str, Any]) -> ResourceClaim:
    metadata: dict[str, Any] = {
        "name": "c",
        "namespace": "default",
        "ownerReferences": [owner] if owner else [],
    }
    return codec.convert({"metadata": metadata, "status": {"reservedFor": list(consumers)}}, ResourceClaim)


def test_names_come_from_spec_status_and_extended_resources() -> None:
    pod = make_pod(
        [
            {"name": "named", "resourceClaimName": "shared"},
            {"name": "made", "resourceClaimTemplateName": "t"},
            {"name": "unneeded", "resourceClaimTemplateName": "t"},
            {"name": "late", "resourceClaimTemplateName": "t"},
            {"name": "empty"},
        ],
        {
            "resourceClaimStatuses": [
                {"name": "made", "resourceClaimName": "p-made-x"},
                {"name": "unneeded"},
                {"name": "empty", "resourceClaimName": "stray"},
            ],
            "extendedResourceClaimStatus": {"resourceClaimName": "p-extended", "requestMappings": []},
        },
    )
    assert [claim_for_entry(pod, entry) for entry in pod.spec.resource_claims] == [
        ClaimName("shared"),
        ClaimName("p-made-x", generated=True),
        ClaimName(None, generated=True),
        ClaimName(None, generated=True, known=False),
        ClaimName(None, known=False),
    ]
    assert resolve_claim_names(pod) == {"named": "shared", "made": "p-made-x", "": "p-extended"}


def test_owner_is_the_pod_or_its_group() -> None:
    alone, grouped = make_pod([]), make_pod([], group="g")
    by_pod = make_claim(
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-uid", "controller": True}
    )
    assert owner_pod(by_pod) == ("p", "pod-uid")
    assert is_owned_by(by_pod, alone)
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "name": "g",
        "uid": "u",
        "controller": True,
    }
    by_group = make_claim(group)
    assert owner_pod(by_group) is None
    assert is_owned_by_group(by_group, grouped)
    assert not is_owned_by_group(by_group, alone)
    assert not is_owned_by_group(make_claim({**group, "controller": False}), grouped)


def test_reservation_for_the_pod_or_its_group() -> None:
    alone, grouped = make_pod([]), make_pod([], group="g")
    for_pod = make_claim(None, {"resource": "pods", "name": "p", "uid": "pod-uid"})
    for_group = make_claim(
        None, {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-uid"}
    )
    assert is_reserved_for(for_pod, alone)
    assert is_reserved_for(for_group, grouped)
    assert not is_reserved_for(for_group, alone)
    assert not is_reserved_for(make_claim(None, {"resource": "pods", "name": "p", "uid": "other"}), alone)
