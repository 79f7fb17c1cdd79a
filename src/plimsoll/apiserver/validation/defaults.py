"""Defaulting of the DRA kinds, and dispatch to the defaults of all other kinds (docs/spec/api.md,
"Defaulting").

Works in place on canonical trees (`object_trees.canonicalize`), on the new object and on the stored one
alike, because both are decoded in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plimsoll.api.gates import Gates
from plimsoll.api.resource import EXACT_COUNT
from plimsoll.apiserver.validation.generic_kinds.kind_table import rules_for_kind
from plimsoll.apiserver.validation.namespaces import set_namespace_defaults
from plimsoll.apiserver.validation.nodes import set_node_defaults
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.defaults import set_pod_defaults
from plimsoll.apiserver.validation.priority_classes import set_priority_class_defaults
from plimsoll.apiserver.validation.resource_quotas import set_quota_defaults


def set_defaults(kind: str, tree: Tree, now: str, gates: Gates) -> None:
    """Set the defaults of a kind; `now` is the value for missing timestamps."""
    if kind == "Pod":
        set_pod_defaults(tree, gates)
        return
    set_defaults = _BY_KIND.get(kind)
    if set_defaults is not None:
        set_defaults(tree, now)
    else:
        rules_for_kind(kind).set_defaults(tree)


def _set_slice_defaults(tree: Tree, now: str) -> None:
    for device in subtree(tree, "spec").get("devices", ()):
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", now)
        for mapping in device.get("nodeAllocatableResourceMappings", {}).values():
            mapping.setdefault("allocationMultiplier", "1")


def _set_claim_defaults(tree: Tree, now: str) -> None:
    _set_claim_spec_defaults(subtree(tree, "spec"))
    for result in subtree(tree, "status", "allocation", "devices").get("results", ()):
        _set_tolerations_defaults(result)


def _set_template_defaults(tree: Tree, now: str) -> None:
    _set_claim_spec_defaults(subtree(tree, "spec", "spec"))


def _set_taint_rule_defaults(tree: Tree, now: str) -> None:
    tree.setdefault("spec", {}).setdefault("taint", {}).setdefault("timeAdded", now)


def _set_claim_spec_defaults(spec: Tree) -> None:
    for request in subtree(spec, "devices").get("requests", ()):
        if "exactly" in request:
            _set_request_defaults(request["exactly"])
        for alternative in request.get("firstAvailable", ()):
            _set_request_defaults(alternative)


def _set_request_defaults(request: Tree) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = EXACT_COUNT
    if request["allocationMode"] == EXACT_COUNT and not request.get("count"):
        request["count"] = 1
    _set_tolerations_defaults(request)


def _set_tolerations_defaults(holder: Tree) -> None:
    """Default the operator of tolerations, which is therefore never missing."""
    for toleration in holder.get("tolerations", ()):
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


_BY_KIND: Mapping[str, Callable[[Tree, str], None]] = {
    "ResourceSlice": _set_slice_defaults,
    "ResourceClaim": _set_claim_defaults,
    "ResourceClaimTemplate": _set_template_defaults,
    "DeviceTaintRule": _set_taint_rule_defaults,
    "Namespace": set_namespace_defaults,
    "Node": set_node_defaults,
    "PriorityClass": set_priority_class_defaults,
    "ResourceQuota": set_quota_defaults,
}
