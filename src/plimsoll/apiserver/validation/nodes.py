"""Nodes: their taints, networks, resources and features.

A node may bring its whole status along when it is created. As in Kubernetes 1.36 taints are reported below
`metadata`, and some rules run twice on an update.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from plimsoll.api.names import SUBDOMAIN_MAX, byte_length
from plimsoll.apiserver.validation.addresses import check_network, parse_network
from plimsoll.apiserver.validation.core_views import WholeNode
from plimsoll.apiserver.validation.field_errors import Path, Problems, duplicate, forbidden, internal, invalid
from plimsoll.apiserver.validation.metadata import check_metadata, check_metadata_update
from plimsoll.apiserver.validation.node_taints import check_node_taints
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, part
from plimsoll.apiserver.validation.quantities import round_amounts
from plimsoll.apiserver.validation.resource_names import check_amount
from plimsoll.apiserver.validation.write_context import Endpoint, Job

_SPEC, _STATUS, _META = Path("spec"), Path("status"), Path("metadata")
_FEATURE = re.compile(r"[A-Z][a-zA-Z0-9]*(?:/[a-zA-Z][a-zA-Z0-9]*)*")


def fill_node(tree: Tree, now: str) -> None:
    """What can be allocated is the capacity where nothing else is said; one CIDR may stand for the list."""
    status = part(tree, "status")
    for name in ("capacity", "allocatable"):
        round_amounts(status.get(name))
    if "allocatable" not in status and "capacity" in status:
        status["allocatable"] = copy_tree(status["capacity"])
    spec = part(tree, "spec")
    single, several = spec.get("podCIDR"), spec.get("podCIDRs")
    if single and (not several or several[0] != single):
        spec["podCIDRs"] = [single]
    elif several:
        spec["podCIDR"] = several[0]


def _prepare(job: Job[WholeNode]) -> None:
    """The dynamic configuration of kubelets is gone; only nodes that still have one keep it."""
    if not job.creates:
        job.take_back("status")
    elif "config" in part(job.tree, "status"):
        del job.tree["status"]["config"]
    if "configSource" not in part(job.old_tree, "spec"):
        part(job.tree, "spec").pop("configSource", None)


def _prepare_status(job: Job[WholeNode]) -> None:
    job.take_back("spec")
    if "config" not in part(job.old_tree, "status"):
        part(job.tree, "status").pop("config", None)


def _check_create(job: Job[WholeNode]) -> Problems:
    node = job.decode()
    yield from check_metadata(job.metadata(), namespaced=False)
    yield from check_node_taints(node.spec.taints, _META.child("taints"))
    yield from _check_resources(node)
    swap = node.status.node_info.swap
    if swap is not None and swap.capacity is not None and swap.capacity <= 0:
        path = _META.child("nodeSwapStatus", "capacity")
        yield invalid(path, swap.capacity, "must be greater than 0")
    yield from _check_features(node.status.declared_features)
    yield from _check_networks(node.spec.pod_cidrs, _SPEC.child("podCIDRs"))


def _check_update(job: Job[WholeNode]) -> Problems:
    yield from _check_create(job)
    yield from _check_change(job)


def _check_change(job: Job[WholeNode]) -> Problems:
    """What holds for every update, of the status too."""
    node, old = job.decode(), job.old
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from _check_resources(node)
    yield from _check_features(node.status.declared_features)
    seen: set[tuple[str, str]] = set()
    for place, address in enumerate(node.status.addresses):
        key = (address.type, address.address)
        if key in seen:
            yield duplicate(_STATUS.child("addresses").index(place), ": ".join(key))
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
    yield from check_node_taints(node.spec.taints, _META.child("taints"))
    if node.spec.external_id != old.spec.external_id:
        yield forbidden(_SPEC.child("externalID"), "may not be updated")


def _check_resources(node: WholeNode) -> Problems:
    for field, amounts in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        for name, amount in amounts.items():
            yield from check_amount(name, amount, _STATUS.child(field, name))


def _check_features(features: Sequence[str]) -> Problems:
    path = _STATUS.child("declaredFeatures")
    for place, feature in enumerate(features):
        if byte_length(feature) > SUBDOMAIN_MAX:
            yield invalid(path.index(place), feature, f"must be no more than {SUBDOMAIN_MAX} characters")
        elif not _FEATURE.fullmatch(feature):
            detail = "must be words in UpperCamelCase separated by '/', such as MyFeature/mySubFeature"
            yield invalid(path.index(place), feature, detail)
        if place and feature == features[place - 1]:
            yield duplicate(path.index(place), feature)
        elif place and feature.encode() < features[place - 1].encode():
            yield invalid(path.index(place), feature, "list must be sorted alphabetically")


def _check_networks(networks: Sequence[str], path: Path) -> Problems:
    """One network for each family of addresses."""
    for place, network in enumerate(networks):
        yield from check_network(network, path.index(place))
    if len(networks) > 1:
        parsed = [parse_network(network) for network in networks]
        known = [network for network in parsed if network is not None]
        if len(known) < len(parsed):
            yield internal(path, "invalid PodCIDRs: one of them is no network")
        dual = len(known) == len(parsed) and len({network.version for network in known}) == 2
        if not dual or len(networks) > 2:
            detail = "may specify no more than one CIDR for each IP family"
            yield invalid(path, ", ".join(networks), detail)


def _warn(job: Job[WholeNode]) -> Iterable[str]:
    spec = part(job.tree, "spec")
    if "configSource" in spec:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"


NODE_ENDPOINTS: Mapping[tuple[str, str, str], Endpoint] = {
    ("create", "Node", ""): Endpoint(WholeNode, _prepare, _check_create, _warn),
    ("update", "Node", ""): Endpoint(WholeNode, _prepare, _check_update, _warn),
    ("update", "Node", "status"): Endpoint(WholeNode, _prepare_status, _check_change),
}
