"""Kinds that the server has, and the discovery documents that list them."""

from __future__ import annotations

from functools import cache
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import RESOURCES

Tree = dict[str, Any]

_SERVED = """
configmaps events namespaces nodes persistentvolumeclaims persistentvolumes pods replicationcontrollers
serviceaccounts services
events.events.k8s.io leases.coordination.k8s.io poddisruptionbudgets.policy
replicasets.apps statefulsets.apps podgroups.scheduling.k8s.io priorityclasses.scheduling.k8s.io
deviceclasses.resource.k8s.io devicetaintrules.resource.k8s.io resourceclaims.resource.k8s.io
resourceclaimtemplates.resource.k8s.io resourceslices.resource.k8s.io
csidrivers.storage.k8s.io csinodes.storage.k8s.io csistoragecapacities.storage.k8s.io
storageclasses.storage.k8s.io volumeattachments.storage.k8s.io
"""
#: Subresources that requests can name, besides those of pods.
_SUBRESOURCES = frozenset(("status", "finalize", "binding", "eviction"))


class Kind:
    """Kind of objects: its row in the table of resources, and the parts of its JSON that never change."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.group, self.plural, self.name = resource.group, resource.plural, resource.kind
        self.version = resource.versions[0]
        self.api_version = resource.api_version()
        self.namespaced = resource.namespaced
        self.subresources = _SUBRESOURCES & set(resource.subresources)
        self.has_status = "status" in self.subresources
        #: Begin of the JSON of every stored object; items of lists lack kind and apiVersion.
        self.head = f'{{"kind":"{self.name}","apiVersion":"{self.api_version}",'.encode()
        self.list_head = f'{{"kind":"{self.name}List","apiVersion":"{self.api_version}","metadata":'.encode()

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


KINDS = tuple(Kind(resource) for resource in RESOURCES if resource.key in _SERVED.split())


# -- discovery


@cache
def discovery_document(path: str, *, aggregated: bool) -> bytes | None:
    """Return the document of a path such as `/apis` or `/apis/GROUP/VERSION`; None if there is none."""
    if path == "/version":
        return codec.encode({"major": "1", "minor": "36", "gitVersion": "v1.36.4"})
    if path in ("/api", "/apis") and aggregated:
        return codec.encode(_aggregated(core=path == "/api"))
    if path == "/api":
        return codec.encode({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    groups = {kind.group: _group(kind) for kind in KINDS if kind.group}
    if path == "/apis":
        return codec.encode({"kind": "APIGroupList", "apiVersion": "v1", "groups": list(groups.values())})
    if group := groups.get(path.removeprefix("/apis/")):
        return codec.encode({"kind": "APIGroup", "apiVersion": "v1", **group})
    rows = [kind for kind in KINDS if kind.root == path]
    if not rows:
        return None
    resources = [
        {"name": name, "singularName": "", "namespaced": kind.namespaced, "kind": kind.name, "verbs": verbs}
        for kind in rows
        for name, verbs in (
            (kind.plural, list(kind.resource.verbs)),
            *((f"{kind.plural}/{each}", ["get", "patch", "update"]) for each in sorted(kind.subresources)),
        )
    ]
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": rows[0].api_version}
    return codec.encode({**head, "resources": resources})


def _group(kind: Kind) -> Tree:
    versions = sorted({each.version for each in KINDS if each.group == kind.group}, key=_stability)
    listed = [{"groupVersion": f"{kind.group}/{version}", "version": version} for version in versions]
    return {"name": kind.group, "versions": listed, "preferredVersion": listed[0]}


def _stability(version: str) -> tuple[bool, str]:
    return "alpha" in version or "beta" in version, version


def _aggregated(*, core: bool) -> Tree:
    items = []
    for group in dict.fromkeys(kind.group for kind in KINDS if (not kind.group) is core):
        rows = [kind for kind in KINDS if kind.group == group]
        versions = [
            {"version": version, "resources": [_discovered(kind) for kind in rows if kind.version == version]}
            for version in sorted({kind.version for kind in rows}, key=_stability)
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": versions})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}


def _discovered(kind: Kind) -> Tree:
    return {
        "resource": kind.plural,
        "responseKind": {"group": "", "version": "", "kind": kind.name},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "verbs": list(kind.resource.verbs),
    }
