"""Conversion of v1 objects to older versions."""

from __future__ import annotations

import copy
from typing import Any

Tree = dict[str, Any]


def to_beta(tree: Tree, version: str) -> Tree:
    """Convert v1 to beta as the API server does, field by field."""
    if not tree["apiVersion"].startswith("resource.k8s.io/"):
        return tree
    made = copy.deepcopy(tree)
    made["apiVersion"] = f"resource.k8s.io/{version}"
    if version in ("v1", "v1beta2"):
        return made
    spec = made["spec"]["spec"] if made["kind"] == "ResourceClaimTemplate" else made.get("spec", {})
    if made["kind"] in ("ResourceClaim", "ResourceClaimTemplate"):
        for request in spec["devices"]["requests"]:
            request |= request.pop("exactly", {})
    if made["kind"] == "ResourceSlice":
        for device in spec.get("devices", []):
            device["basic"] = {key: device.pop(key) for key in list(device) if key != "name"}
            if version == "v1alpha3":
                capacity = device["basic"].get("capacity", {})
                for name in capacity:
                    capacity[name] = capacity[name]["value"]
    return made
