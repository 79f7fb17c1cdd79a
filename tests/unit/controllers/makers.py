"""Builders of stored pods, claims and templates for controller tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.meta import Wire
from plimsoll.api.resource import ResourceClaim
from plimsoll.controllers.object_views import ClaimTemplateView
from plimsoll.controllers.resource_claim.claim_plan import FINALIZER

W = TypeVar("W", bound=Wire)
Tree = dict[str, Any]
#: How a pod names a claim of its own, and a template.
BY_NAME, BY_TEMPLATE = "resourceClaimName", "resourceClaimTemplateName"


def view(tree: Mapping[str, Any], kind: type[W]) -> W:
    return codec.convert(tree, kind)


def metadata(name: str, namespace: str = "n", **fields: Any) -> Tree:
    """Return metadata of a stored object; its UID is `uid-NAME` by default."""
    base: Tree = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"}
    if namespace:
        base["namespace"] = namespace
    return base | fields


def pod_tree(
    name: str = "p",
    claims: Mapping[str, tuple[str, str]] | None = None,
    *,
    node: str = "",
    phase: str = "Pending",
    statuses: Mapping[str, str | None] | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Tree:
    """Return a pod; `claims` is entry -> (BY_NAME or BY_TEMPLATE, name), `statuses` entry -> claim."""
    entries = [{"name": entry, how: what} for entry, (how, what) in (claims or {}).items()]
    recorded = [
        {"name": entry} if claim is None else {"name": entry, "resourceClaimName": claim}
        for entry, claim in (statuses or {}).items()
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, **fields),
        "spec": {
            "containers": [{"name": "c", "image": "x"}],
            "resourceClaims": entries,
            "nodeName": node,
            **(spec or {}),
        },
        "status": {"phase": phase, "resourceClaimStatuses": recorded, **(status or {})},
    }


def pod(*arguments: Any, **fields: Any) -> Pod:
    return view(pod_tree(*arguments, **fields), Pod)


def owner(name: str, kind: str = "Pod", api_version: str = "v1", **fields: Any) -> Tree:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}"} | fields


def claim_tree(
    name: str = "c",
    *,
    entry: str = "",
    of: str = "",
    pods: Iterable[str] = (),
    allocated: bool = False,
    protected: bool | None = None,
    devices: Iterable[Mapping[str, Any]] = (),
    **fields: Any,
) -> Tree:
    """Return a claim; `of` is the pod it was generated for, `pods` those it is reserved for."""
    status: Tree = {}
    if allocated or devices:
        results = list(devices) or [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
        status["allocation"] = {"devices": {"results": results}}
    if pods:
        status["reservedFor"] = [{"resource": "pods", "name": p, "uid": f"uid-{p}"} for p in pods]
    meta = metadata(name, **fields)
    if of:
        meta["ownerReferences"] = [owner(of, controller=True)]
    if entry:
        meta["annotations"] = {"resource.kubernetes.io/pod-claim-name": entry}
    if allocated or devices if protected is None else protected:
        meta["finalizers"] = [*fields.get("finalizers", ()), FINALIZER]
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": {"requests": requests}},
        "status": status,
    }


def claim(*arguments: Any, **fields: Any) -> ResourceClaim:
    return view(claim_tree(*arguments, **fields), ResourceClaim)


def template_tree(name: str = "t", **fields: Any) -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": metadata(name),
        "spec": {
            "metadata": fields,
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        },
    }


def template(name: str = "t", **fields: Any) -> ClaimTemplateView:
    return view(template_tree(name, **fields), ClaimTemplateView)
