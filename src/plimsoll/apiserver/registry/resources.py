"""Table of resources: every group, version, name, verb and selectable field that the API serves.

`RESOURCES` is in discovery order, with lookups by path, by kind and by key. Names, short names, categories,
subresources, verbs, field labels and rules (AllowUnconditionalUpdate, AllowCreateOnUpdate,
DefaultGarbageCollectionPolicy) are those of Kubernetes 1.36. The first version of a resource is the preferred
one and the storage version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api.kinds import KINDS
from plimsoll.apiserver.registry.resource import ALL_VERBS, Resource

_CHANGE = ("get", "patch", "update")
_CREATE = ("create",)
_CONNECT = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource, such as `pods/NAME/binding`."""

    name: str
    verbs: tuple[str, ...] = _CHANGE
    group: str | None = None  #: group, version and kind of its body, if not the parent's
    version: str = ""
    kind: str = ""

    @property
    def is_connect(self) -> bool:
        """True if requests upgrade the connection; the kind then names the options in the query."""
        return self.verbs == _CONNECT

    @property
    def is_proxy(self) -> bool:
        """True if requests are passed on as they are."""
        return self.verbs == _PROXY

    def kind_for(self, parent: str) -> str:
        """Return the kind of the subresource of a parent's kind."""
        return self.kind.format(kind=parent) or parent


_SCALE = Subresource("scale", _CHANGE, "autoscaling", "v1", "Scale")

#: All subresources, by name.
SUBRESOURCES: Mapping[str, Subresource] = {
    entry.name: entry
    for entry in (
        Subresource("status"),
        Subresource("ephemeralcontainers"),
        Subresource("resize"),
        Subresource("finalize", ("update",)),
        Subresource("binding", _CREATE, "", "v1", "Binding"),
        Subresource("eviction", _CREATE, "policy", "v1", "Eviction"),
        Subresource("token", _CREATE, "authentication.k8s.io", "v1", "TokenRequest"),
        _SCALE,
        Subresource("log", ("get",)),
        Subresource("attach", _CONNECT, "", "v1", "PodAttachOptions"),
        Subresource("exec", _CONNECT, "", "v1", "PodExecOptions"),
        Subresource("proxy", _PROXY, "", "v1", "{kind}ProxyOptions"),
        Subresource("portforward", _CONNECT, "", "v1", "PodPortForwardOptions"),
    )
}


def _paths(*labels: str) -> dict[str, tuple[str, ...]]:
    return {label: tuple(label.split(".")) for label in labels}


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
_STATUS = ("status",)
_SCALE_STATUS = ("scale", "status")
_PROXIED = ("proxy", "status")
_STRATEGY = {"has_strategy": True}
_CREATE_ON_UPDATE = {"allow_create_on_update": True}
#: An update must name the resourceVersion.
_CONDITIONAL = {"allow_unconditional_update": False}
_EXTENSION = {"categories": _EXTENSIONS, **_CONDITIONAL}
_SET = {"categories": _ALL, "subresources": _SCALE_STATUS}
_REVIEW = {"verbs": _CREATE}
_ORPHANS = {"orphans_dependents": True}


def _selectable(
    labels: Mapping[str, tuple[str, ...]], message: str = "field label not supported: {label}"
) -> dict[str, Any]:
    return {"field_labels": labels, "field_label_message": message}


#: Properties of resources that differ from the defaults of `Resource`, by key.
_DETAILS: Mapping[str, Mapping[str, Any]] = {
    "bindings": {**_REVIEW, **_STRATEGY},
    "endpoints": _CREATE_ON_UPDATE,
    "events": {**_selectable(_EVENT_LABELS), **_STRATEGY, **_CREATE_ON_UPDATE},
    "limitranges": _CREATE_ON_UPDATE,
    "namespaces": {
        "subresources": ("finalize", "status"),
        "verbs": tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        **_selectable(_paths("status.phase")),
        **_STRATEGY,
    },
    "nodes": {"subresources": _PROXIED, **_selectable(_paths("spec.unschedulable")), **_STRATEGY},
    "persistentvolumeclaims": {"subresources": _STATUS},
    "persistentvolumes": {"subresources": _STATUS},
    "pods": {
        "categories": _ALL,
        "subresources": (
            "attach",
            "binding",
            "ephemeralcontainers",
            "eviction",
            "exec",
            "log",
            "portforward",
            "proxy",
            "resize",
            "status",
        ),
        **_selectable(_POD_LABELS),
        **_STRATEGY,
    },
    "replicationcontrollers": {**_SET, **_ORPHANS, **_selectable(_paths("status.replicas"))},
    "resourcequotas": {"subresources": _STATUS, **_STRATEGY},
    "secrets": _selectable(_paths("type")),
    "serviceaccounts": {"subresources": ("token",)},
    "services": {
        "categories": _ALL,
        "subresources": _PROXIED,
        **_selectable(_paths("spec.clusterIP", "spec.type")),
        **_CREATE_ON_UPDATE,
    },
    "daemonsets.apps": {"categories": _ALL, "subresources": _STATUS},
    "deployments.apps": _SET,
    "replicasets.apps": _SET,
    "statefulsets.apps": _SET,
    "events.events.k8s.io": {
        **_selectable(_NEW_EVENT_LABELS),
        **_STRATEGY,
        **_CREATE_ON_UPDATE,
        "stored_as": "events",
    },
    "selfsubjectreviews.authentication.k8s.io": _REVIEW,
    "tokenreviews.authentication.k8s.io": _REVIEW,
    "localsubjectaccessreviews.authorization.k8s.io": _REVIEW,
    "selfsubjectaccessreviews.authorization.k8s.io": _REVIEW,
    "selfsubjectrulesreviews.authorization.k8s.io": _REVIEW,
    "subjectaccessreviews.authorization.k8s.io": _REVIEW,
    "horizontalpodautoscalers.autoscaling": {"categories": _ALL, "subresources": _STATUS},
    "cronjobs.batch": {"categories": _ALL, "subresources": _STATUS},
    "jobs.batch": {
        "categories": _ALL,
        "subresources": _STATUS,
        **_ORPHANS,
        **_selectable(
            {"status.successful": ("status", "succeeded")}, 'field label "{label}" not supported for Job'
        ),
    },
    "certificatesigningrequests.certificates.k8s.io": {
        "subresources": _STATUS,
        **_selectable(_paths("spec.signerName")),
    },
    "ingresses.networking.k8s.io": {"subresources": _STATUS},
    "servicecidrs.networking.k8s.io": {"subresources": _STATUS},
    "poddisruptionbudgets.policy": {"subresources": _STATUS, **_CONDITIONAL},
    "clusterrolebindings.rbac.authorization.k8s.io": _CREATE_ON_UPDATE,
    "clusterroles.rbac.authorization.k8s.io": _CREATE_ON_UPDATE,
    "rolebindings.rbac.authorization.k8s.io": _CREATE_ON_UPDATE,
    "roles.rbac.authorization.k8s.io": _CREATE_ON_UPDATE,
    "csidrivers.storage.k8s.io": _CONDITIONAL,
    "csinodes.storage.k8s.io": _CONDITIONAL,
    "csistoragecapacities.storage.k8s.io": _CONDITIONAL,
    "volumeattachments.storage.k8s.io": {"subresources": _STATUS, **_CONDITIONAL},
    "mutatingadmissionpolicies.admissionregistration.k8s.io": _EXTENSION,
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _EXTENSION,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _EXTENSION,
    "validatingadmissionpolicies.admissionregistration.k8s.io": {**_EXTENSION, "subresources": _STATUS},
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _EXTENSION,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _EXTENSION,
    "customresourcedefinitions.apiextensions.k8s.io": {**_EXTENSION, "subresources": _STATUS},
    "apiservices.apiregistration.k8s.io": {**_EXTENSION, "subresources": _STATUS},
    "priorityclasses.scheduling.k8s.io": _STRATEGY,
    "podgroups.scheduling.k8s.io": {"subresources": _STATUS, **_STRATEGY},
    "workloads.scheduling.k8s.io": _STRATEGY,
    "leases.coordination.k8s.io": {**_STRATEGY, **_CONDITIONAL, **_CREATE_ON_UPDATE},
    "runtimeclasses.node.k8s.io": {**_CONDITIONAL, **_CREATE_ON_UPDATE},
    "deviceclasses.resource.k8s.io": _STRATEGY,
    "devicetaintrules.resource.k8s.io": {"subresources": _STATUS, **_STRATEGY},
    "resourceclaims.resource.k8s.io": {"subresources": _STATUS, **_STRATEGY},
    "resourceclaimtemplates.resource.k8s.io": _STRATEGY,
    "resourcepoolstatusrequests.resource.k8s.io": {"subresources": _STATUS, **_STRATEGY, **_CONDITIONAL},
    "resourceslices.resource.k8s.io": {
        **_selectable(_paths("spec.nodeName", "spec.driver", "spec.pool.name"), _SLICE_ERROR),
        **_STRATEGY,
    },
    "flowschemas.flowcontrol.apiserver.k8s.io": {"subresources": _STATUS},
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": {"subresources": _STATUS},
}

#: Metrics, which are no objects of the cluster: they are computed, and have the names of what they measure.
METRICS: tuple[Resource, ...] = tuple(
    Resource("metrics.k8s.io", ("v1beta1",), plural, kind, namespaced, verbs=("get", "list"), computed=True)
    for plural, kind, namespaced in (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))
)

RESOURCES: tuple[Resource, ...] = (
    *(Resource(*kind, **_DETAILS.get(kind.key, {})) for kind in KINDS),
    *METRICS,
)

_BY_PATH = {(row.group, version, row.plural): row for row in RESOURCES for version in row.versions}
_BY_KIND = {(row.group, version, row.kind): row for row in RESOURCES for version in row.versions}


def find_resource(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource of a path such as `/apis/GROUP/VERSION/PLURAL`."""
    return _BY_PATH.get((group, version, plural))


def find_resource_by_kind(group: str, version: str, kind: str) -> Resource | None:
    """Return the resource whose objects have this apiVersion and kind."""
    return _BY_KIND.get((group, version, kind))


def group_versions() -> dict[str, tuple[str, ...]]:
    """Return all groups with their versions, preferred first, in discovery order."""
    groups: dict[str, list[str]] = {}
    for row in RESOURCES:
        known = groups.setdefault(row.group, [])
        known += [version for version in row.versions if version not in known]
    return {group: tuple(sorted(versions, key=_RANK.index)) for group, versions in groups.items()}


_RANK = ("v2", "v1", "v1beta2", "v1beta1", "v1alpha3", "v1alpha2")
