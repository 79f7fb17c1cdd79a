"""Workloads and clusters for tests of whatif."""

from __future__ import annotations

from typing import Any

from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.whatif import Whatif
from tests.build import (
    DRIVER,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)

TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [exactly()]}}},
}


CLAIMING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {
        "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "one"}],
        "containers": [{"name": "c", "resources": {"claims": [{"name": "r"}]}}],
    },
}


def owned(kind: str = "ReplicaSet", name: str = "web-7d4") -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "uid": name, "controller": True}]}


def workload(kind: str, version: str, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    meta = {"name": "w", "namespace": "team"}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": {**spec, "template": template}}


def select(kind: str) -> str:
    return f'device.attributes["{DRIVER}"].kind == "{kind}"'


def whatif_of(*objects: Any) -> Whatif:
    return Whatif(ClusterState(ClusterObjects(objects)))


def whole_or_half() -> Whatif:
    """k/k 138765: the first pod takes the whole device, though the half would suffice for it."""
    offered = [device("a-whole", kind="whole"), device("b-half", kind="half")]
    picky = claim("picky", exactly(select=select("whole")))
    easy = claim("easy", first_available("r", exactly("w", select=select("whole")), exactly("h")))
    return whatif_of(
        node("n"),
        resource_slice(offered, "n"),
        device_class(),
        picky,
        easy,
        pod("a-easy", claims=["easy"]),
        pod("b-picky", claims=["picky"]),
    )
