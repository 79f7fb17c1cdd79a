"""Table of resources: every group, version, name, verb and selectable field that the API serves.

`RESOURCES` is in discovery order, with lookups by path, by kind and by key. Names, short names, categories,
subresources, verbs, field labels and update rules (AllowUnconditionalUpdate, AllowCreateOnUpdate) are those
of Kubernetes 1.36. The first version of a resource is the preferred one and the storage version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.apiserver.registry.resource import ALL_VERBS, Resource

_CHANGE = ("get", "patch", "update")
_CREATE = ("create",)


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource, such as `pods/NAME/binding`."""

    name: str
    verbs: tuple[str, ...] = _CHANGE
    group: str | None = None  #: group, version and kind of its body, if not the parent's
    version: str = ""
    kind: str = ""


_SCALE = Subresource("scale", _CHANGE, "autoscaling", "v1", "Scale")

#: All subresources, by name.
SUBRESOURCES: Mapping[str, Subresource] = {
    entry.name: entry
    for entry in (
        Subresource("status"),
        Subresource("approval"),
        Subresource("ephemeralcontainers"),
        Subresource("resize"),
        Subresource("finalize", ("update",)),
        Subresource("binding", _CREATE, "", "v1", "Binding"),
        Subresource("eviction", _CREATE, "policy", "v1", "Eviction"),
        Subresource("token", _CREATE, "authentication.k8s.io", "v1", "TokenRequest"),
        _SCALE,
    )
}


def _paths(*labels: str) -> dict[str, tuple[str, ...]]:
    return {label: tuple(label.split(".")) for label in labels}


_PLAIN_ERROR = "field label not supported: {label}"
_SLICE_ERROR = "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}"
_POD_LABELS = _paths(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
) | {"spec.host": ("spec", "nodeName"), "status.podIPs": ()}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_LABELS = _paths(
    *(f"involvedObject.{name}" for name in _REFERENCE), "reason", "reportingComponent", "type"
) | {"source": ("source", "component")}
#: Events of both groups are stored as core events, so the new names map to the old fields.
_NEW_EVENT_LABELS = {
    **{f"regarding.{name}": ("involvedObject", name) for name in _REFERENCE},
    **_paths("reason", "type"),
    "reportingController": ("reportingComponent",),
}
_ALL = ("all",)
_EXTENSIONS = ("api-extensions",)


def _row(group: str, versions: str, plural: str, kind: str, namespaced: bool, **more: Any) -> Resource:
    more.setdefault("singular", kind.lower())
    for name in ("short_names", "subresources"):
        if name in more:
            more[name] = tuple(more[name].split())
    return Resource(group, tuple(versions.split()), plural, kind, namespaced, **more)


def _core() -> Iterable[Resource]:
    def row(plural: str, kind: str, namespaced: bool = True, **more: Any) -> Resource:
        return _row("", "v1", plural, kind, namespaced, **more)

    yield row("bindings", "Binding", verbs=_CREATE, has_strategy=True)
    yield row("configmaps", "ConfigMap", short_names="cm")
    yield row("endpoints", "Endpoints", short_names="ep", allow_create_on_update=True)
    yield row(
        "events",
        "Event",
        short_names="ev",
        field_labels=_EVENT_LABELS,
        field_label_message=_PLAIN_ERROR,
        has_strategy=True,
        allow_create_on_update=True,
    )
    yield row("limitranges", "LimitRange", short_names="limits", allow_create_on_update=True)
    yield row(
        "namespaces",
        "Namespace",
        False,
        short_names="ns",
        subresources="finalize status",
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        field_labels=_paths("status.phase"),
        field_label_message=_PLAIN_ERROR,
        has_strategy=True,
    )
    yield row(
        "nodes",
        "Node",
        False,
        short_names="no",
        subresources="status",
        field_labels=_paths("spec.unschedulable"),
        field_label_message=_PLAIN_ERROR,
        has_strategy=True,
    )
    yield row("persistentvolumeclaims", "PersistentVolumeClaim", short_names="pvc", subresources="status")
    yield row("persistentvolumes", "PersistentVolume", False, short_names="pv", subresources="status")
    yield row(
        "pods",
        "Pod",
        short_names="po",
        categories=_ALL,
        subresources="binding ephemeralcontainers eviction resize status",
        field_labels=_POD_LABELS,
        field_label_message=_PLAIN_ERROR,
        has_strategy=True,
    )
    yield row("podtemplates", "PodTemplate")
    yield row(
        "replicationcontrollers",
        "ReplicationController",
        short_names="rc",
        categories=_ALL,
        subresources="scale status",
        field_labels=_paths("status.replicas"),
        field_label_message=_PLAIN_ERROR,
    )
    yield row(
        "resourcequotas", "ResourceQuota", short_names="quota", subresources="status", has_strategy=True
    )
    yield row("secrets", "Secret", field_labels=_paths("type"), field_label_message=_PLAIN_ERROR)
    yield row("serviceaccounts", "ServiceAccount", short_names="sa", subresources="token")
    yield row(
        "services",
        "Service",
        short_names="svc",
        categories=_ALL,
        subresources="status",
        field_labels=_paths("spec.clusterIP", "spec.type"),
        field_label_message=_PLAIN_ERROR,
        allow_create_on_update=True,
    )


def _workloads() -> Iterable[Resource]:
    yield _row("apps", "v1", "controllerrevisions", "ControllerRevision", True)
    for plural, kind, short in (("daemonsets", "DaemonSet", "ds"),):
        yield _row(
            "apps", "v1", plural, kind, True, short_names=short, categories=_ALL, subresources="status"
        )
    for plural, kind, short in (
        ("deployments", "Deployment", "deploy"),
        ("replicasets", "ReplicaSet", "rs"),
        ("statefulsets", "StatefulSet", "sts"),
    ):
        yield _row(
            "apps", "v1", plural, kind, True, short_names=short, categories=_ALL, subresources="scale status"
        )
    yield _row(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        True,
        short_names="ev",
        field_labels=_NEW_EVENT_LABELS,
        field_label_message=_PLAIN_ERROR,
        has_strategy=True,
        stored_as="events",
        allow_create_on_update=True,
    )
    yield _row("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, verbs=_CREATE)
    yield _row("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, verbs=_CREATE)
    group = "authorization.k8s.io"
    yield _row(group, "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", True, verbs=_CREATE)
    yield _row(group, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, verbs=_CREATE)
    yield _row(group, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False, verbs=_CREATE)
    yield _row(group, "v1", "subjectaccessreviews", "SubjectAccessReview", False, verbs=_CREATE)
    yield _row(
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        True,
        short_names="hpa",
        categories=_ALL,
        subresources="status",
    )
    yield _row(
        "batch",
        "v1",
        "cronjobs",
        "CronJob",
        True,
        short_names="cj",
        categories=_ALL,
        subresources="status",
    )
    yield _row(
        "batch",
        "v1",
        "jobs",
        "Job",
        True,
        categories=_ALL,
        subresources="status",
        field_labels={"status.successful": ("status", "succeeded")},
        field_label_message='field label "{label}" not supported for Job',
    )


def _cluster_wide() -> Iterable[Resource]:
    yield _row(
        "certificates.k8s.io",
        "v1",
        "certificatesigningrequests",
        "CertificateSigningRequest",
        False,
        short_names="csr",
        subresources="approval status",
        field_labels=_paths("spec.signerName"),
        field_label_message=_PLAIN_ERROR,
    )
    group = "networking.k8s.io"
    yield _row(group, "v1", "ingressclasses", "IngressClass", False)
    yield _row(group, "v1", "ingresses", "Ingress", True, short_names="ing", subresources="status")
    yield _row(group, "v1", "ipaddresses", "IPAddress", False, short_names="ip")
    yield _row(group, "v1", "networkpolicies", "NetworkPolicy", True, short_names="netpol")
    yield _row(group, "v1", "servicecidrs", "ServiceCIDR", False, subresources="status")
    yield _row(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        True,
        short_names="pdb",
        subresources="status",
        allow_unconditional_update=False,
    )
    group = "rbac.authorization.k8s.io"
    yield _row(group, "v1", "clusterrolebindings", "ClusterRoleBinding", False, allow_create_on_update=True)
    yield _row(group, "v1", "clusterroles", "ClusterRole", False, allow_create_on_update=True)
    yield _row(group, "v1", "rolebindings", "RoleBinding", True, allow_create_on_update=True)
    yield _row(group, "v1", "roles", "Role", True, allow_create_on_update=True)
    group = "storage.k8s.io"
    yield _row(group, "v1", "csidrivers", "CSIDriver", False, allow_unconditional_update=False)
    yield _row(group, "v1", "csinodes", "CSINode", False, allow_unconditional_update=False)
    yield _row(
        group, "v1", "csistoragecapacities", "CSIStorageCapacity", True, allow_unconditional_update=False
    )
    yield _row(group, "v1", "storageclasses", "StorageClass", False, short_names="sc")
    yield _row(
        group,
        "v1",
        "volumeattachments",
        "VolumeAttachment",
        False,
        subresources="status",
        allow_unconditional_update=False,
    )
    yield _row(group, "v1", "volumeattributesclasses", "VolumeAttributesClass", False, short_names="vac")
    group = "admissionregistration.k8s.io"
    for plural, kind, subresources in (
        ("mutatingadmissionpolicies", "MutatingAdmissionPolicy", ""),
        ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", ""),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration", ""),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", "status"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", ""),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", ""),
    ):
        yield _row(
            group,
            "v1",
            plural,
            kind,
            False,
            categories=_EXTENSIONS,
            subresources=subresources,
            allow_unconditional_update=False,
        )
    yield _row(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        short_names="crd crds",
        categories=_EXTENSIONS,
        subresources="status",
        allow_unconditional_update=False,
    )
    yield _row(
        "apiregistration.k8s.io",
        "v1",
        "apiservices",
        "APIService",
        False,
        categories=_EXTENSIONS,
        subresources="status",
        allow_unconditional_update=False,
    )


def _scheduling() -> Iterable[Resource]:
    yield _row(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        False,
        short_names="pc",
        has_strategy=True,
    )
    conditional = {"allow_unconditional_update": False, "allow_create_on_update": True}
    yield _row("coordination.k8s.io", "v1", "leases", "Lease", True, has_strategy=True, **conditional)
    yield _row("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, **conditional)
    yield _row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)
    group = "resource.k8s.io"
    yield _row(group, "v1 v1beta2", "deviceclasses", "DeviceClass", False, has_strategy=True)
    yield _row(
        group,
        "v1beta2 v1alpha3",
        "devicetaintrules",
        "DeviceTaintRule",
        False,
        subresources="status",
        has_strategy=True,
    )
    yield _row(
        group, "v1 v1beta2", "resourceclaims", "ResourceClaim", True, subresources="status", has_strategy=True
    )
    yield _row(
        group, "v1 v1beta2", "resourceclaimtemplates", "ResourceClaimTemplate", True, has_strategy=True
    )
    yield _row(
        group,
        "v1alpha3",
        "resourcepoolstatusrequests",
        "ResourcePoolStatusRequest",
        False,
        subresources="status",
        allow_unconditional_update=False,
    )
    yield _row(
        group,
        "v1 v1beta2",
        "resourceslices",
        "ResourceSlice",
        False,
        field_labels=_paths("spec.nodeName", "spec.driver"),
        field_label_message=_SLICE_ERROR,
        has_strategy=True,
    )
    group = "flowcontrol.apiserver.k8s.io"
    yield _row(group, "v1", "flowschemas", "FlowSchema", False, subresources="status")
    yield _row(
        group, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False, subresources="status"
    )


RESOURCES: tuple[Resource, ...] = (*_core(), *_workloads(), *_cluster_wide(), *_scheduling())

_BY_PATH = {(row.group, version, row.plural): row for row in RESOURCES for version in row.versions}
_BY_KIND = {(row.group, version, row.kind): row for row in RESOURCES for version in row.versions}
_BY_KEY = {row.key: row for row in RESOURCES}


def find_resource(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource of a path such as `/apis/GROUP/VERSION/PLURAL`."""
    return _BY_PATH.get((group, version, plural))


def find_resource_by_kind(group: str, version: str, kind: str) -> Resource | None:
    """Return the resource whose objects have this apiVersion and kind."""
    return _BY_KIND.get((group, version, kind))


def find_resource_by_key(key: str) -> Resource | None:
    """Return the resource of a store key such as `pods` or `resourceclaims.resource.k8s.io`."""
    return _BY_KEY.get(key)


def group_versions() -> dict[str, tuple[str, ...]]:
    """Return all groups with their versions, preferred first, in discovery order."""
    groups: dict[str, list[str]] = {}
    for row in RESOURCES:
        known = groups.setdefault(row.group, [])
        known += [version for version in row.versions if version not in known]
    return {group: tuple(sorted(versions, key=_RANK.index)) for group, versions in groups.items()}


_RANK = ("v2", "v1", "v1beta2", "v1alpha3")
