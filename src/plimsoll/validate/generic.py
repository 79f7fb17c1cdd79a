"""Objects of kinds that have no rules of their own here: services, config maps, deployments and the like.

Owns what holds for all of them: metadata, names in the format of the kind, a generation that grows with the
object where the kind has one, a status that is written by way of `status` alone. Everything else is taken as
it comes.

DIFF: the fields of these kinds are neither checked nor given defaults
(test_kinds_without_rules_keep_what_they_say).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.api.meta import Object
from plimsoll.api.names import byte_length, dns_label, dns_subdomain
from plimsoll.validate.equality import same_tree
from plimsoll.validate.job import Job
from plimsoll.validate.metadata import check_metadata, check_metadata_update, reset_for_status
from plimsoll.validate.names import Format
from plimsoll.validate.problems import Problems
from plimsoll.validate.trees import Tree, copy_tree, part

_CRON_JOB_NAME_MAX = 52
_STATUS_LIKE = ("approval", "status")
_HEAD = ("apiVersion", "kind", "metadata", "status")


@dataclass(frozen=True, slots=True)
class Traits:
    """What the generic rules need to know of a kind.

    `counted` says whether the generation grows; where it is not given the kind decides (`_UNCOUNTED`).
    """

    namespaced: bool
    has_status: bool
    counted: bool | None = None


def path_segment(text: str) -> list[str]:
    """A name that can stand in a URL, of which little more is asked."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in text]


def _cron_job_name(text: str) -> list[str]:
    found = dns_subdomain(text)
    if byte_length(text) > _CRON_JOB_NAME_MAX:
        found.append(f"must be no more than {_CRON_JOB_NAME_MAX} characters")
    return found


#: Kinds whose names are no DNS subdomains.
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
            "FlowSchema",
            "IPAddress",
            "PriorityLevelConfiguration",
            "Role",
            "RoleBinding",
        ),
        path_segment,
    ),
}

#: Kinds that have no generation.
_UNCOUNTED = frozenset(
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
        "LimitRange",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Role",
        "RoleBinding",
        "RuntimeClass",
        "Secret",
        "Service",
        "ServiceAccount",
        "StorageClass",
        "VolumeAttachment",
        "VolumeAttributesClass",
    )
)

_FIRST_STATUS: Mapping[str, Tree] = {
    "PersistentVolume": {"phase": "Pending"},
    "PersistentVolumeClaim": {"phase": "Pending"},
}


def prepare_object(job: Job[Object], kind: str, subresource: str, traits: Traits) -> None:
    counted = kind not in _UNCOUNTED if traits.counted is None else traits.counted
    if job.creates:
        if traits.has_status:
            job.tree["status"] = dict(_FIRST_STATUS.get(kind, {}))
        if counted:
            job.set_generation(1)
    elif traits.has_status and subresource in _STATUS_LIKE:
        for name in [name for name in job.tree if name not in _HEAD]:
            del job.tree[name]
        job.take_back(*(name for name in job.old_tree if name not in _HEAD))
        reset_for_status(job.meta_tree(), copy_tree(part(job.old_tree, "metadata")))
    else:
        if traits.has_status:
            job.take_back("status")
        before = part(job.old_tree, "metadata").get("generation", 0)
        if counted:
            job.set_generation(before + _has_changed(job, kind))


def _has_changed(job: Job[Object], kind: str) -> bool:
    tree, old = (
        {name: value for name, value in whole.items() if name not in _HEAD}
        for whole in (job.tree, job.old_tree)
    )
    if kind == "Deployment":  # whose annotations take part in rollouts
        tree["annotations"], old["annotations"] = (
            part(whole, "metadata", "annotations") for whole in (job.tree, job.old_tree)
        )
    return not same_tree(old, tree)


def check_object(job: Job[Object], kind: str, traits: Traits) -> Problems:
    names = NAMES.get(kind, dns_subdomain)
    if job.creates:
        yield from check_metadata(
            job.metadata(), namespaced=traits.namespaced, names=names, free_finalizers=True
        )
    else:
        yield from check_metadata_update(job.metadata(), job.old_metadata(), free_finalizers=True)
