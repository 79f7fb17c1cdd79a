"""Valid objects to modify, and the helpers that the tables of these tests use."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any, TypeAlias

from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation import PreparedObject, Write, prepare
from plimsoll.apiserver.validation.pod.defaults import set_pod_defaults

Tree: TypeAlias = "dict[str, Any]"

NOW = datetime(2025, 7, 1, 9, 30, 15, 999, tzinfo=UTC)
NOW_TEXT = "2025-07-01T09:30:15Z"
ADMIN = {"resource.kubernetes.io/admin-access": "true"}
SHARE = "6f1c1c2e-7a57-4c3b-9d7e-0d5d1f6f7a01"

#: Put in place of a value to take the field out.
GONE = object()


def edit(tree: Tree, changes: dict[str, Any]) -> Tree:
    """Return a copy with fields set: `edit(claim(), {"spec.devices.requests.0.name": "x"})`."""
    tree = copy.deepcopy(tree)
    for path, value in changes.items():
        *steps, last = path.split(".")
        holder: Any = tree
        for step in steps:
            if isinstance(holder, list):
                holder = holder[int(step)]
            else:
                holder = holder.setdefault(step, {})
        if value is GONE:
            del holder[int(last) if isinstance(holder, list) else last]
        elif isinstance(holder, list):
            holder[int(last)] = value
        else:
            holder[last] = value
    return tree


def run(tree: Tree, old: Tree | None = None, subresource: str = "", **options: Any) -> PreparedObject:
    """Prepare a write of this object; gates by name, all enabled by default."""
    gates = Gates.of(options.pop("gates", {}))
    options.setdefault("namespace_labels", {})
    write = Write(
        kind=tree.get("kind", ""),
        operation="create" if old is None else "update",
        object=tree,
        old=old,
        subresource=subresource,
        gates=gates,
        now=NOW,
        **options,
    )
    return prepare(write)


def field_errors(tree: Tree, old: Tree | None = None, subresource: str = "", **options: Any) -> list[str]:
    """Return the errors of a write, each as `field Type`, sorted."""
    errors = run(tree, old, subresource, **options).errors
    return sorted(f"{p.field} {p.type.value.removeprefix('FieldValue')}" for p in errors)


def stored(tree: Tree, **metadata: Any) -> Tree:
    """Return the object as stored."""
    meta = {
        "resourceVersion": "1",
        "uid": "8f0b1a3e-3f9a-4d1f-8a55-3b8d2b1e9c10",
        "generation": 1,
        **metadata,
    }
    return {**copy.deepcopy(tree), "metadata": {**tree["metadata"], **meta}}


def slice_() -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "node-1-gpus"},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "node-1",
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"model": {"string": "a100"}, "gpu.example.com/slot": {"int": 3}},
                    "capacity": {"memory": {"value": "40Gi"}},
                },
                {"name": "gpu-1"},
            ],
        },
    }


def shared_slice(policy: Tree | None = None) -> Tree:
    """Return a slice whose first device shares 10 units of bandwidth."""
    capacity: Tree = {"value": "10"}
    if policy is not None:
        capacity["requestPolicy"] = policy
    return edit(
        slice_(),
        {"spec.devices.0.allowMultipleAllocations": True, "spec.devices.0.capacity": {"bandwidth": capacity}},
    )


def claim() -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "two-gpus", "namespace": "lab"},
        "spec": {
            "devices": {
                "requests": [
                    {"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}},
                    {
                        "name": "nic",
                        "firstAvailable": [
                            {"name": "fast", "deviceClassName": "fast.example.com"},
                            {"name": "slow", "deviceClassName": "slow.example.com"},
                        ],
                    },
                ],
                "constraints": [{"requests": ["gpus"], "matchAttribute": "gpu.example.com/root"}],
                "config": [
                    {"requests": ["gpus"], "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}
                ],
            }
        },
    }


def result(device: str = "gpu-0", **more: Any) -> Tree:
    return {"request": "gpus", "driver": "gpu.example.com", "pool": "node-1", "device": device, **more}


def allocated(*results: Tree, **status: Any) -> Tree:
    """Return a stored claim with these devices allocated."""
    tree = stored(claim())
    tree["status"] = {"allocation": {"devices": {"results": list(results or [result()])}}, **status}
    return tree


def template() -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "two-gpus", "namespace": "lab"},
        "spec": {"metadata": {"labels": {"team": "vision"}}, "spec": claim()["spec"]},
    }


def class_() -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": {
            "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
            "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
            "extendedResourceName": "example.com/gpu",
        },
    }


def taint_rule() -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "broken-gpus"},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"},
            "taint": {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"},
        },
    }


def pod() -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "lab"},
        "spec": {
            "restartPolicy": "Always",
            "containers": [
                {
                    "name": "main",
                    "image": "img",
                    "resources": {
                        "requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"},
                        "limits": {"example.com/gpu": "1"},
                        "claims": [{"name": "gpus", "request": "one"}, {"name": "cpus"}],
                    },
                }
            ],
            "initContainers": [{"name": "init", "image": "img", "resources": {"claims": [{"name": "gpus"}]}}],
            "resourceClaims": [
                {"name": "gpus", "resourceClaimName": "two-gpus"},
                {"name": "cpus", "resourceClaimTemplateName": "cpus"},
            ],
        },
    }


def running_pod(**status: Any) -> Tree:
    """Return a stored pod whose second claim was created from its template."""
    tree = stored(pod())
    tree["status"] = {
        "phase": "Running",
        "qosClass": "Burstable",
        "resourceClaimStatuses": [{"name": "cpus", "resourceClaimName": "train-cpus-x7k2p"}],
        **status,
    }
    set_pod_defaults(tree, Gates.default())
    return tree
