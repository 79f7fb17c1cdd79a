"""What is filled in where a client said nothing (section 3 of the API semantics).

Owns the defaults of the DRA kinds, and who fills in those of the others. Works on canonical trees
(`trees.canonicalise`) and fills in place; runs on the new object and on the stored one, as both are read
through the same door.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plimsoll.api.gates import Gates
from plimsoll.api.resource import EXACT_COUNT
from plimsoll.apiserver.validation.generic_kinds.kind_table import rules_of
from plimsoll.apiserver.validation.namespaces import fill_namespace
from plimsoll.apiserver.validation.nodes import fill_node
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.pod.defaults import fill_pod
from plimsoll.apiserver.validation.priority_classes import fill_priority_class
from plimsoll.apiserver.validation.resource_quotas import fill_quota


def fill_defaults(kind: str, tree: Tree, now: str, gates: Gates) -> None:
    """Fill in the defaults of this kind; `now` is the moment for times that are missing."""
    if kind == "Pod":
        fill_pod(tree, gates)
        return
    fill = _BY_KIND.get(kind)
    if fill is not None:
        fill(tree, now)
    else:
        rules_of(kind).fill(tree)


def _fill_slice(tree: Tree, now: str) -> None:
    for device in part(tree, "spec").get("devices", ()):
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", now)
        for mapping in device.get("nodeAllocatableResourceMappings", {}).values():
            mapping.setdefault("allocationMultiplier", "1")


def _fill_claim(tree: Tree, now: str) -> None:
    _fill_claim_spec(part(tree, "spec"))
    for result in part(tree, "status", "allocation", "devices").get("results", ()):
        _fill_tolerations(result)


def _fill_template(tree: Tree, now: str) -> None:
    _fill_claim_spec(part(tree, "spec", "spec"))


def _fill_taint_rule(tree: Tree, now: str) -> None:
    tree.setdefault("spec", {}).setdefault("taint", {}).setdefault("timeAdded", now)


def _fill_claim_spec(spec: Tree) -> None:
    for request in part(spec, "devices").get("requests", ()):
        if "exactly" in request:
            _fill_request(request["exactly"])
        for alternative in request.get("firstAvailable", ()):
            _fill_request(alternative)


def _fill_request(request: Tree) -> None:
    if not request.get("allocationMode"):
        request["allocationMode"] = EXACT_COUNT
    if request["allocationMode"] == EXACT_COUNT and not request.get("count"):
        request["count"] = 1
    _fill_tolerations(request)


def _fill_tolerations(holder: Tree) -> None:
    """An operator can therefore never be missing."""
    for toleration in holder.get("tolerations", ()):
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


_BY_KIND: Mapping[str, Callable[[Tree, str], None]] = {
    "ResourceSlice": _fill_slice,
    "ResourceClaim": _fill_claim,
    "ResourceClaimTemplate": _fill_template,
    "DeviceTaintRule": _fill_taint_rule,
    "Namespace": fill_namespace,
    "Node": fill_node,
    "PriorityClass": fill_priority_class,
    "ResourceQuota": fill_quota,
}
