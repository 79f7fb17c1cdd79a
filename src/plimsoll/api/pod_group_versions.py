"""Conversion of PodGroups of Kubernetes 1.37 (v1beta1, v1alpha3) to v1alpha2, the version of 1.36. Pure.

The gang policy is the same. The disruption mode became an object, and a group can be part of a composite one,
which v1alpha2 cannot express: such a group is not read, so that its pods stay pending.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.resource_versions import Unconvertible

Tree = dict[str, Any]

GROUP = "scheduling.k8s.io"
#: Supported versions, preferred first.
VERSIONS = ("v1alpha2", "v1beta1", "v1alpha3")
#: Disruption modes of v1alpha2 by their field in later versions.
_MODES = {"single": "Pod", "all": "PodGroup"}


def to_v1alpha2(tree: Tree) -> Tree | Unconvertible:
    """Return a PodGroup in the schema of v1alpha2; the given tree is not modified."""
    changed = {**tree, "apiVersion": f"{GROUP}/{VERSIONS[0]}"}
    spec = tree.get("spec")
    if not isinstance(spec, dict):
        return changed
    if spec.get("parentCompositePodGroupName"):
        return Unconvertible("it is part of a CompositePodGroup, which is not supported")
    mode = spec.get("disruptionMode")
    if isinstance(mode, dict):
        known = [name for field, name in _MODES.items() if mode.get(field) is not None]
        if len(known) != 1:
            return Unconvertible(f"unsupported disruption mode: {', '.join(mode) or 'none'}")
        changed["spec"] = {**spec, "disruptionMode": known[0]}
    return changed


def from_v1alpha2(tree: Tree, kind: str, version: str) -> Tree:
    """Return a PodGroup, or a patch of its status or metadata, with the apiVersion of another version."""
    if tree.get("kind", kind) != kind or "apiVersion" not in tree:
        return tree
    return {**tree, "apiVersion": f"{GROUP}/{version}"}
