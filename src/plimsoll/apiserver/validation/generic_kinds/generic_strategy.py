"""Generic strategy: metadata, names, generation and status of kinds without a strategy of their own.

The status can only be written through the `status` subresource. What individual kinds add is in
`kind_table.py`: upstream's defaults, and the rules that controllers rely on.

DIFF: the rest of such an object is stored without validation (test_kinds_without_rules_are_stored_unchanged).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api.names import byte_length, dns_label, dns_subdomain
from plimsoll.apiserver.registry.empty_values import drop_empty_values
from plimsoll.apiserver.validation.equality import trees_equal
from plimsoll.apiserver.validation.field_errors import FieldErrors
from plimsoll.apiserver.validation.generic_kinds.kind_table import rules_for_kind
from plimsoll.apiserver.validation.metadata import (
    reset_for_status,
    validate_metadata,
    validate_metadata_update,
)
from plimsoll.apiserver.validation.name_formats import Format, path_segment
from plimsoll.apiserver.validation.object_trees import copy_tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext

_CRON_JOB_NAME_MAX = 52
_HEAD = ("apiVersion", "kind", "metadata", "status")


@dataclass(frozen=True, slots=True)
class KindTraits:
    """Properties of a kind for the generic strategy.

    `has_generation` overrides the table `_WITHOUT_GENERATION`, if set.
    """

    namespaced: bool
    has_status: bool
    has_generation: bool | None = None


def _cron_job_name(text: str) -> list[str]:
    found = dns_subdomain(text)
    if byte_length(text) > _CRON_JOB_NAME_MAX:
        found.append(f"must be no more than {_CRON_JOB_NAME_MAX} characters")
    return found


#: Kinds whose names are not DNS subdomains.
NAMES: Mapping[str, Format] = {
    "CronJob": _cron_job_name,
    "Service": dns_label,
    "StatefulSet": dns_label,
    **dict.fromkeys(
        (
            "APIService",
            "CertificateSigningRequest",
            "ClusterRole",
            "ClusterRoleBinding",
            "ClusterTrustBundle",
            "IPAddress",
            "PodDisruptionBudget",
            "Role",
            "RoleBinding",
        ),
        path_segment,
    ),
}

#: Kinds without a generation.
_WITHOUT_GENERATION = frozenset(
    (
        "APIService",
        "CSIDriver",
        "CSINode",
        "CSIStorageCapacity",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterTrustBundle",
        "ComponentStatus",
        "ConfigMap",
        "ControllerRevision",
        "Endpoints",
        "HorizontalPodAutoscaler",
        "IPAddress",
        "LimitRange",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Role",
        "RoleBinding",
        "RuntimeClass",
        "Secret",
        "Service",
        "ServiceAccount",
        "ServiceCIDR",
        "StorageClass",
        "VolumeAttachment",
        "VolumeAttributesClass",
    )
)

#: Kinds that accept unqualified finalizer names.
_UNQUALIFIED_FINALIZERS = frozenset(
    (
        "APIService",
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "Role",
        "RoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
    )
)

#: Kinds whose generation starts with the first change.
_GENERATION_FROM_FIRST_CHANGE = frozenset(("CSIDriver",))

#: Metadata fields whose changes increase the generation: deployments copy annotations to ReplicaSets.
_GENERATION_METADATA: Mapping[str, str] = {"Deployment": "annotations", "EndpointSlice": "labels"}

#: Kinds whose status writes also update metadata, for compatibility.
_STATUS_UPDATES_METADATA = frozenset(
    (
        "CronJob",
        "DaemonSet",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "ReplicaSet",
        "ReplicationController",
        "Service",
        "StatefulSet",
    )
)


def prepare_object(write: WriteContext[Any], kind: str, subresource: str, traits: KindTraits) -> None:
    rules = rules_for_kind(kind)
    if traits.has_status and subresource == "status":
        _prepare_status(write, kind)
        rules.prepare_status(write, subresource)
        return
    if traits.has_status:
        write.restore_fields("status")
        if write.is_create and rules.initial_status:
            write.tree["status"] = copy_tree(rules.initial_status)
    rules.prepare(write)
    if kind not in _WITHOUT_GENERATION if traits.has_generation is None else traits.has_generation:
        before = subtree(write.old_tree, "metadata").get("generation", 0)
        write.set_generation(1 if write.is_create else before + _has_changed(write, kind))
    elif kind in _GENERATION_FROM_FIRST_CHANGE and not write.is_create and _has_changed(write, kind):
        write.set_generation(subtree(write.old_tree, "metadata").get("generation", 0) + 1)
    rules.finish(write)


def _prepare_status(write: WriteContext[Any], kind: str) -> None:
    """Take only the status from the request, and for some kinds the metadata."""
    for name in [name for name in write.tree if name not in _HEAD]:
        del write.tree[name]
    write.restore_fields(*(name for name in write.old_tree if name not in _HEAD))
    old_meta = copy_tree(subtree(write.old_tree, "metadata"))
    if kind not in _STATUS_UPDATES_METADATA:
        reset_for_status(write.metadata_tree(), old_meta)
    elif kind == "Deployment":
        write.metadata_tree().pop("labels", None)
        if "labels" in old_meta:
            write.metadata_tree()["labels"] = old_meta["labels"]


def _has_changed(write: WriteContext[Any], kind: str) -> bool:
    tree, old = (
        {name: value for name, value in source.items() if name not in _HEAD}
        for source in (write.tree, write.old_tree)
    )
    field = _GENERATION_METADATA.get(kind)
    if field is not None:
        tree[field], old[field] = (
            subtree(source, "metadata", field) for source in (write.tree, write.old_tree)
        )
    if trees_equal(old, tree):
        return False
    stored = copy_tree({"apiVersion": write.tree.get("apiVersion"), **tree})
    drop_empty_values(stored, kind)
    return not trees_equal({"apiVersion": write.tree.get("apiVersion"), **old}, stored)


def validate_object(write: WriteContext[Any], kind: str, subresource: str, traits: KindTraits) -> FieldErrors:
    names, free = NAMES.get(kind, dns_subdomain), kind in _UNQUALIFIED_FINALIZERS
    if write.is_create:
        yield from validate_metadata(
            write.metadata, namespaced=traits.namespaced, names=names, free_finalizers=free
        )
    else:
        yield from validate_metadata_update(write.metadata, write.old_metadata, free_finalizers=free)
    if subresource == "status":
        yield from rules_for_kind(kind).validate_status(write, subresource)
    else:
        yield from rules_for_kind(kind).validate(write)
