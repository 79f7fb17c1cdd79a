"""Warnings about objects of the kinds without a strategy of their own, with the texts of Kubernetes 1.36.

DIFF: a TLS secret whose key does not match its certificate gives no warning
(test_tls_secrets_are_not_opened).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from plimsoll.apiserver.validation.addresses import find_address_warning, find_network_warning
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.warnings import (
    DEPRECATED_NODE_LABELS,
    Warnings,
    find_name_warnings,
    find_node_selector_warnings,
    find_pod_warnings,
    find_volume_claim_warnings,
)
from plimsoll.apiserver.validation.write_context import WriteContext

_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_OLD_STORAGE_CLASS = 'deprecated since v1.8; use "storageClassName" attribute instead'
_MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_MOUNTABLE_SECRETS = "kubernetes.io/enforce-mountable-secrets"
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
_TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_SLICE_CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
_MANY_COMPLETIONS, _MANY_PARALLEL = 100_000, 10_000
_VOLUMES = {
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}


def find_warnings(kind: str, write: WriteContext[Any], subresource: str) -> Warnings:
    """Yield the warnings about a write; updates of workloads warn if they change the spec."""
    warn = _BY_KIND.get(kind)
    if warn is None or subresource:
        return
    if not write.is_create and kind in _WORKLOADS:
        generation = subtree(write.old_tree, "metadata").get("generation")
        if generation == subtree(write.tree, "metadata").get("generation"):
            return
    elif kind in _NAMED_AFTER:
        yield from find_name_warnings(write.tree, "Pod names and hostnames")
    yield from warn(write.tree)


# -- workloads


def _template(tree: Tree) -> Warnings:
    return find_pod_warnings(subtree(tree, "spec", "template"), "spec.template.")


def _pod_template(tree: Tree) -> Warnings:
    return find_pod_warnings(subtree(tree, "template"), "template.")


def _stateful_set(tree: Tree) -> Warnings:
    yield from _template(tree)
    spec = subtree(tree, "spec")
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
        yield from find_volume_claim_warnings(subtree(claim, "spec"), f"spec.volumeClaimTemplates[{index}]")
    if spec.get("revisionHistoryLimit", 0) < 0:
        yield (
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; "
            "a value >= 0 is recommended"
        )


def _job_spec(spec: Tree, path: str) -> Warnings:
    many = spec.get("completions", 0) > _MANY_COMPLETIONS and spec.get("parallelism", 0) > _MANY_PARALLEL
    if spec.get("completionMode") == "Indexed" and many:
        yield (
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher "
            "than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes "
            "fail"
        )
    yield from find_pod_warnings(subtree(spec, "template"), f"{path}.template.")


def _cron_job(tree: Tree) -> Warnings:
    return _job_spec(subtree(tree, "spec", "jobTemplate", "spec"), "spec.jobTemplate.spec")


# -- services and networks


def _service(tree: Tree) -> Warnings:
    spec = subtree(tree, "spec")
    if _TOPOLOGY_HINTS in subtree(tree, "metadata", "annotations"):
        yield f"annotation {_TOPOLOGY_HINTS} is deprecated, please use {_TOPOLOGY_MODE} instead"
    is_external = spec.get("type") == "ExternalName"
    is_headless = spec.get("type") == "ClusterIP" and spec.get("clusterIP") == "None"
    if not is_headless and not is_external:
        for index, address in enumerate(spec.get("clusterIPs", ())):
            yield from find_address_warning(address, f"spec.clusterIPs[{index}]")
    addresses = spec.get("externalIPs", ())
    if is_headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if addresses:
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    for index, address in enumerate(addresses):
        yield from find_address_warning(address, f"spec.externalIPs[{index}]")
    if addresses and not is_headless and not is_external:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    yield from find_address_warning(spec.get("loadBalancerIP", ""), "spec.loadBalancerIP")
    for index, network in enumerate(spec.get("loadBalancerSourceRanges", ())):
        yield from find_network_warning(network, f"spec.loadBalancerSourceRanges[{index}]")
    if is_external and addresses:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if not is_external and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _endpoints(tree: Tree) -> Warnings:
    if subtree(tree, "metadata", "labels").get("endpoints.kubernetes.io/managed-by") == "endpoint-controller":
        return
    for index, subset in enumerate(tree.get("subsets", ())):
        for name in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(name, ())):
                yield from find_address_warning(
                    address.get("ip", ""), f"subsets[{index}].{name}[{number}].ip"
                )


def _endpoint_slice(tree: Tree) -> Warnings:
    if tree.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"
    if subtree(tree, "metadata", "labels").get(_MANAGED_BY) in _SLICE_CONTROLLERS:
        return
    for index, endpoint in enumerate(tree.get("endpoints", ())):
        for number, address in enumerate(endpoint.get("addresses", ())):
            yield from find_address_warning(address, f"endpoints[{index}].addresses[{number}]")


def _ingress(tree: Tree) -> Warnings:
    annotations = subtree(tree, "metadata", "annotations")
    if _INGRESS_CLASS in annotations and "ingressClassName" not in subtree(tree, "spec"):
        yield f"annotation \"{_INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"


def _network_policy(tree: Tree) -> Warnings:
    for direction, side in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(subtree(tree, "spec").get(direction, ())):
            for number, peer in enumerate(rule.get(side, ())):
                block, path = subtree(peer, "ipBlock"), f"spec.{direction}[{index}].{side}[{number}].ipBlock"
                yield from find_network_warning(block.get("cidr", ""), f"{path}.cidr")
                for place, network in enumerate(block.get("except", ())):
                    yield from find_network_warning(network, f"{path}.except[{place}]")


# -- storage


def _volume(tree: Tree) -> Warnings:
    spec, annotations = subtree(tree, "spec"), subtree(tree, "metadata", "annotations")
    if _STORAGE_CLASS in annotations:
        yield f"metadata.annotations[{_STORAGE_CLASS}]: {_OLD_STORAGE_CLASS}"
    if _MOUNT_OPTIONS in annotations:
        text = 'deprecated since v1.31; use "mountOptions" attribute instead'
        yield f"metadata.annotations[{_MOUNT_OPTIONS}]: {text}"
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        )
    terms = subtree(spec, "nodeAffinity", "required").get("nodeSelectorTerms", ())
    for index, term in enumerate(terms):
        path = f"spec.nodeAffinity.required.nodeSelectorTerms[{index}]"
        yield from find_node_selector_warnings(term, path)
    for source, text in _VOLUMES.items():
        if source in spec:
            yield f"spec.{'storageOS' if source == 'storageos' else source}: {text}"


def _volume_claim(tree: Tree) -> Warnings:
    if _STORAGE_CLASS in subtree(tree, "metadata", "annotations"):
        yield f"metadata.annotations[{_STORAGE_CLASS}]: {_OLD_STORAGE_CLASS}"
    yield from find_volume_claim_warnings(subtree(tree, "spec"), "spec")


def _storage_class(tree: Tree) -> Warnings:
    for index, topology in enumerate(tree.get("allowedTopologies", ())):
        for number, expression in enumerate(topology.get("matchLabelExpressions", ())):
            if expression.get("key") in DEPRECATED_NODE_LABELS:
                path = f"allowedTopologies[{index}].matchLabelExpressions[{number}].key"
                yield f"{path}: {DEPRECATED_NODE_LABELS[expression['key']]}"


def _storage_capacity(tree: Tree) -> Warnings:
    topology = subtree(tree, "nodeTopology")
    yield from find_node_selector_warnings(topology, "nodeTopology")
    for label in topology.get("matchLabels", ()):
        if label in DEPRECATED_NODE_LABELS:
            yield f"nodeTopology.matchLabels.{label}: {DEPRECATED_NODE_LABELS[label]}"


def _storage_driver(tree: Tree) -> Warnings:
    spec = subtree(tree, "spec")
    if spec.get("tokenRequests") and "serviceAccountTokenInSecrets" not in spec:
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to "
            "prevent possible logging of tokens in volume attributes"
        )


# -- others


def _service_account(tree: Tree) -> Iterator[str]:
    if _MOUNTABLE_SECRETS in subtree(tree, "metadata", "annotations"):
        yield (
            f"metadata.annotations[{_MOUNTABLE_SECRETS}]: deprecated in v1.32+; "
            "prefer separate namespaces to isolate access to mounted secrets"
        )


def _runtime_class(tree: Tree) -> Warnings:
    for label in subtree(tree, "scheduling", "nodeSelector"):
        if label in DEPRECATED_NODE_LABELS:
            yield f"scheduling.nodeSelector: {DEPRECATED_NODE_LABELS[label]}"


_WORKLOADS: Mapping[str, Callable[[Tree], Warnings]] = {
    "Deployment": _template,
    "ReplicaSet": _template,
    "ReplicationController": _template,
    "DaemonSet": _template,
    "StatefulSet": _stateful_set,
    "Job": lambda tree: _job_spec(subtree(tree, "spec"), "spec"),
    "CronJob": _cron_job,
    "PodTemplate": _pod_template,
}
#: Workloads whose names become part of names that must be DNS labels.
_NAMED_AFTER = ("Deployment", "ReplicaSet", "ReplicationController", "Job", "CronJob")
_BY_KIND: Mapping[str, Callable[[Tree], Warnings]] = {
    **_WORKLOADS,
    "CSIDriver": _storage_driver,
    "CSIStorageCapacity": _storage_capacity,
    "EndpointSlice": _endpoint_slice,
    "Endpoints": _endpoints,
    "Ingress": _ingress,
    "NetworkPolicy": _network_policy,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _volume_claim,
    "RuntimeClass": _runtime_class,
    "Service": _service,
    "ServiceAccount": _service_account,
    "StorageClass": _storage_class,
}
