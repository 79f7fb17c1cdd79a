"""Preparation of new pods beyond defaulting: scheduling gate condition, label keys merged into selectors,
legacy profile annotations converted to fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plimsoll.api.names import byte_length
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.annotations import APP_ARMOR
from plimsoll.apiserver.validation.pod.conditions import set_condition
from plimsoll.apiserver.validation.pod.defaults import GROUPS

_PATH_MAX = 4095


def prepare_new_pod(tree: Tree, now: str) -> None:
    """Complete a new pod after its status was initialized; modifies the tree."""
    spec, labels = subtree(tree, "spec"), subtree(tree, "metadata", "labels")
    if spec.get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        tree["status"]["conditions"] = set_condition([], condition, now)
    for term in _affinity_terms(subtree(spec, "affinity")):
        _merge_keys(term, "matchLabelKeys", "In", labels)
        _merge_keys(term, "mismatchLabelKeys", "NotIn", labels)
    for constraint in spec.get("topologySpreadConstraints", ()):
        _merge_keys(constraint, "matchLabelKeys", "In", labels)
    if subtree(spec, "os").get("name") != "windows":
        _copy_profiles(spec, subtree(tree, "metadata", "annotations"))


def _affinity_terms(affinity: Tree) -> Iterator[Tree]:
    for side in ("podAffinity", "podAntiAffinity"):
        rules = subtree(affinity, side)
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution", ())
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            yield subtree(weighted, "podAffinityTerm")


def _merge_keys(holder: Tree, name: str, operator: str, labels: Mapping[str, str]) -> None:
    """Add the pod's values of the keys to the selector, if there is one."""
    if not holder.get(name) or "labelSelector" not in holder:
        return
    for key in holder[name]:
        if key in labels:
            requirement = {"key": key, "operator": operator, "values": [labels[key]]}
            holder["labelSelector"].setdefault("matchExpressions", []).append(requirement)


def _copy_profiles(spec: Tree, annotations: Mapping[str, str]) -> None:
    of_pod = subtree(spec, "securityContext").get("appArmorProfile")
    for group in GROUPS:
        for container in spec.get(group, ()):
            value = annotations.get(APP_ARMOR + container.get("name", ""))
            if value is None or "appArmorProfile" in subtree(container, "securityContext"):
                continue
            profile = read_app_armor_profile(value)
            if profile is not None and profile != of_pod:
                container.setdefault("securityContext", {})["appArmorProfile"] = profile


def read_app_armor_profile(value: str) -> Tree | None:
    """Return the profile that an annotation names, or None if it is invalid."""
    if value == "unconfined":
        return {"type": "Unconfined"}
    if value == "runtime/default":
        return {"type": "RuntimeDefault"}
    if value.startswith("localhost/"):
        name = value.removeprefix("localhost/")
        if name and name == name.strip() and byte_length(name) <= _PATH_MAX:
            return {"type": "Localhost", "localhostProfile": name}
    return None
