"""The `scale` subresource: conversion between a workload and its `autoscaling/v1` Scale."""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.status import bad_request
from plimsoll.apiserver.tables.row import format_labels, format_selector

Tree = dict[str, Any]


def to_scale(tree: Tree) -> Tree:
    """Return the Scale of a workload."""
    spec, status, metadata = tree.get("spec") or {}, tree.get("status") or {}, tree["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {"replicas": status.get("replicas", 0), "selector": _selector(spec.get("selector"))},
    }


def apply_scale(tree: Tree, scale: Any) -> Tree:
    """Return the workload with the replicas of a Scale; ApiError 400."""
    spec = scale.get("spec") if isinstance(scale, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas < 2**31:
        raise bad_request("spec.replicas must be a whole number that is not negative")
    metadata = scale.get("metadata") if isinstance(scale.get("metadata"), dict) else {}
    after = {
        **tree,
        "metadata": dict(tree["metadata"]),
        "spec": {**(tree.get("spec") or {}), "replicas": replicas},
    }
    for name in ("resourceVersion", "uid"):
        if metadata.get(name):
            after["metadata"][name] = str(metadata[name])
    return after


def _selector(selector: Any) -> str:
    """Format a selector as in list requests; older kinds have plain labels."""
    if not isinstance(selector, dict) or not selector:
        return ""
    if "matchLabels" in selector or "matchExpressions" in selector:
        return format_selector(selector, "")
    return format_labels(selector)
