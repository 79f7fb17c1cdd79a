"""Strategies of Node.

A node can be created with its full status. As in Kubernetes 1.36, taints are reported below `metadata`, and
some rules run twice on an update.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from plimsoll.api.names import SUBDOMAIN_MAX, byte_length
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.addresses import find_network_warning, parse_network, validate_network
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    internal,
    invalid,
)
from plimsoll.apiserver.validation.metadata import validate_metadata, validate_metadata_update
from plimsoll.apiserver.validation.node_taints import validate_node_taints
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, subtree
from plimsoll.apiserver.validation.resource_names import validate_resource_quantity
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy

_VIEW = view_of("core.v1.Node")

_SPEC, _STATUS, _META = FieldPath("spec"), FieldPath("status"), FieldPath("metadata")
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(?:/[a-zA-Z][a-zA-Z0-9]*)*")


def set_node_defaults(tree: Tree, now: str) -> None:
    """Default allocatable to the capacity, and podCIDR and podCIDRs to each other."""
    status = subtree(tree, "status")
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = copy_tree(status["capacity"])
    spec = subtree(tree, "spec")
    single, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if single and (not several or several[0] != single):
        spec["podCIDRs"] = [single]
    elif several:
        spec["podCIDR"] = several[0]


def _prepare(write: WriteContext[View]) -> None:
    """Reset the status on update, and drop the removed dynamic kubelet configuration unless it is stored."""
    if not write.is_create:
        write.restore_fields("status")
    elif "config" in subtree(write.tree, "status"):
        del write.tree["status"]["config"]
    if "configSource" not in subtree(write.old_tree, "spec"):
        subtree(write.tree, "spec").pop("configSource", None)


def _prepare_status(write: WriteContext[View]) -> None:
    write.restore_fields("spec")
    if "config" not in subtree(write.old_tree, "status"):
        subtree(write.tree, "status").pop("config", None)


def _validate_create(write: WriteContext[View]) -> FieldErrors:
    node = write.new
    yield from validate_metadata(write.metadata, namespaced=False)
    yield from validate_node_taints(node.spec.taints, _META.child("taints"))
    yield from _validate_resources(node)
    swap = node.status.node_info.swap
    if swap is not None and swap.capacity is not None and swap.capacity <= 0:
        path = _META.child("nodeSwapStatus", "capacity")
        yield invalid(path, swap.capacity, "must be greater than 0")
    yield from _validate_features(node.status.declared_features)
    yield from _validate_networks(node.spec.pod_cidrs, _SPEC.child("podCIDRs"))


def _validate_update(write: WriteContext[View]) -> FieldErrors:
    yield from _validate_create(write)
    yield from _validate_change(write)


def _validate_change(write: WriteContext[View]) -> FieldErrors:
    """Validate what applies to every update, including status updates."""
    node, old = write.new, write.old
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    yield from _validate_resources(node)
    yield from _validate_features(node.status.declared_features)
    seen: set[tuple[str, str]] = set()
    for index, address in enumerate(node.status.addresses):
        key = (address.type, address.address)
        if key in seen:
            yield duplicate(_STATUS.child("addresses").index(index), ": ".join(key))
        seen.add(key)
    networks, before = node.spec.pod_cidrs, old.spec.pod_cidrs
    if before:
        detail = 'node updates may not change podCIDR except from "" to valid'
        changed = 1
        if len(networks) == len(before):
            changed = sum(a != b for a, b in zip(networks, before, strict=True))
        for _ in range(changed):
            yield forbidden(_SPEC.child("podCIDRs"), detail)
    if old.spec.provider_id not in ("", node.spec.provider_id):
        detail = 'node updates may not change providerID except from "" to valid'
        yield forbidden(_SPEC.child("providerID"), detail)
    yield from validate_node_taints(node.spec.taints, _META.child("taints"))
    if node.spec.external_id != old.spec.external_id:
        yield forbidden(_SPEC.child("externalID"), "may not be updated")


def _validate_resources(node: View) -> FieldErrors:
    for field, amounts in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        for name, amount in amounts.items():
            yield from validate_resource_quantity(name, amount, _STATUS.child(field, name))


def _validate_features(features: Sequence[str]) -> FieldErrors:
    path = _STATUS.child("declaredFeatures")
    for index, feature in enumerate(features):
        if byte_length(feature) > SUBDOMAIN_MAX:
            yield invalid(path.index(index), feature, f"must be no more than {SUBDOMAIN_MAX} characters")
        elif not _FEATURE.fullmatch(feature):
            detail = "must be words in UpperCamelCase separated by '/', such as MyFeature/mySubFeature"
            yield invalid(path.index(index), feature, detail)
        if index and feature == features[index - 1]:
            yield duplicate(path.index(index), feature)
        elif index and feature.encode() < features[index - 1].encode():
            yield invalid(path.index(index), feature, "list must be sorted alphabetically")


def _validate_networks(networks: Sequence[str], path: FieldPath) -> FieldErrors:
    """Validate the pod CIDRs: at most one for each IP family."""
    for index, network in enumerate(networks):
        yield from validate_network(network, path.index(index))
    if len(networks) > 1:
        parsed = [parse_network(network) for network in networks]
        known = [network for network in parsed if network is not None]
        if len(known) < len(parsed):
            yield internal(path, "invalid PodCIDRs: one of them is not a CIDR")
        dual = len(known) == len(parsed) and len({network.version for network in known}) == 2
        if not dual or len(networks) > 2:
            detail = "may specify no more than one CIDR for each IP family"
            yield invalid(path, ", ".join(networks), detail)


def _warn(write: WriteContext[View]) -> Iterable[str]:
    spec = subtree(write.tree, "spec")
    if "configSource" in spec:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"
    for index, network in enumerate(spec.get("podCIDRs", ())):
        yield from find_network_warning(network, f"spec.podCIDRs[{index}]")


NODE_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "Node", ""): WriteStrategy(_VIEW, _prepare, _validate_create, _warn),
    ("update", "Node", ""): WriteStrategy(_VIEW, _prepare, _validate_update, _warn),
    ("update", "Node", "status"): WriteStrategy(_VIEW, _prepare_status, _validate_change),
}
