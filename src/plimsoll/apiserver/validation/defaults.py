"""Defaulting of all kinds (docs/spec/api.md, "Defaulting").

Works in place on canonical trees (`object_trees.canonicalize`), on the new object and on the stored one
alike, because both are decoded in the same way. The defaults that the schema states come first, then those
that depend on other fields.
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
from plimsoll.apiserver.validation.schema_defaults import set_schema_defaults

_PACKAGES = {
    "DeviceTaintRule": "resource.v1beta2",
    "Namespace": "core.v1",
    "Node": "core.v1",
    "PodGroup": "scheduling.v1alpha2",
    "PriorityClass": "scheduling.v1",
    "ResourceClaim": "resource.v1",
    "ResourceClaimTemplate": "resource.v1",
    "ResourcePoolStatusRequest": "resource.v1alpha3",
    "ResourceQuota": "core.v1",
    "ResourceSlice": "resource.v1",
    "Workload": "scheduling.v1alpha2",
}


def set_defaults(kind: str, tree: Tree, now: str, gates: Gates) -> None:
    """Set the defaults of a kind; `now` is the value for missing timestamps."""
    if kind == "Pod":
        set_pod_defaults(tree, gates)
        return
    rules = rules_for_kind(kind)
    package = _PACKAGES.get(kind, rules.package)
    if package:
        set_schema_defaults(f"{package}.{kind}", tree)
    if kind in _BY_KIND:
        _BY_KIND[kind](tree, now)
    else:
        rules.set_defaults(tree)


def _set_slice_defaults(tree: Tree, now: str) -> None:
    for device in subtree(tree, "spec").get("devices", ()):
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", now)


def _set_claim_defaults(tree: Tree, now: str) -> None:
    for request in subtree(tree, "spec", "devices").get("requests", ()):
        for wanted in (subtree(request, "exactly"), *request.get("firstAvailable", ())):
            if wanted.get("allocationMode") == EXACT_COUNT and not wanted.get("count"):
                wanted["count"] = 1


def _set_template_defaults(tree: Tree, now: str) -> None:
    _set_claim_defaults(subtree(tree, "spec"), now)


def _set_taint_rule_defaults(tree: Tree, now: str) -> None:
    tree["spec"]["taint"].setdefault("timeAdded", now)


_BY_KIND: Mapping[str, Callable[[Tree, str], None]] = {
    "ResourceSlice": _set_slice_defaults,
    "ResourceClaim": _set_claim_defaults,
    "ResourceClaimTemplate": _set_template_defaults,
    "DeviceTaintRule": _set_taint_rule_defaults,
    "Namespace": set_namespace_defaults,
    "Node": set_node_defaults,
}
