"""Endpoints of kinds: group, version, plural, scope, and their paths.

One constant for each kind that Plimsoll reads or writes. Any other kind is one line: `Endpoint("batch", "v1",
"jobs", "Job", True)`.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class Endpoint(NamedTuple):
    """Kind at one version, as a client addresses it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """`/api/v1` or `/apis/GROUP/VERSION`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """Return the path of a collection (no namespace: of all), of one object, or of its subresource."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def at(self, version: str) -> Endpoint:
        """Return the kind at another version."""
        return self._replace(version=version)


_CORE, _DRA = "", "resource.k8s.io"

PODS = Endpoint(_CORE, "v1", "pods", "Pod", True)
NODES = Endpoint(_CORE, "v1", "nodes", "Node", False)
NAMESPACES = Endpoint(_CORE, "v1", "namespaces", "Namespace", False)
EVENTS = Endpoint(_CORE, "v1", "events", "Event", True)
CONFIG_MAPS = Endpoint(_CORE, "v1", "configmaps", "ConfigMap", True)
SECRETS = Endpoint(_CORE, "v1", "secrets", "Secret", True)
SERVICES = Endpoint(_CORE, "v1", "services", "Service", True)
SERVICE_ACCOUNTS = Endpoint(_CORE, "v1", "serviceaccounts", "ServiceAccount", True)
RESOURCE_QUOTAS = Endpoint(_CORE, "v1", "resourcequotas", "ResourceQuota", True)
LIMIT_RANGES = Endpoint(_CORE, "v1", "limitranges", "LimitRange", True)
REPLICATION_CONTROLLERS = Endpoint(_CORE, "v1", "replicationcontrollers", "ReplicationController", True)
PERSISTENT_VOLUMES = Endpoint(_CORE, "v1", "persistentvolumes", "PersistentVolume", False)
PERSISTENT_VOLUME_CLAIMS = Endpoint(_CORE, "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True)

RESOURCE_SLICES = Endpoint(_DRA, "v1", "resourceslices", "ResourceSlice", False)
RESOURCE_CLAIMS = Endpoint(_DRA, "v1", "resourceclaims", "ResourceClaim", True)
RESOURCE_CLAIM_TEMPLATES = Endpoint(_DRA, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True)
DEVICE_CLASSES = Endpoint(_DRA, "v1", "deviceclasses", "DeviceClass", False)
DEVICE_TAINT_RULES = Endpoint(_DRA, "v1beta2", "devicetaintrules", "DeviceTaintRule", False)

LEASES = Endpoint("coordination.k8s.io", "v1", "leases", "Lease", True)
PRIORITY_CLASSES = Endpoint("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
EVENTS_V1 = Endpoint("events.k8s.io", "v1", "events", "Event", True)
POD_DISRUPTION_BUDGETS = Endpoint("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True)

REPLICA_SETS = Endpoint("apps", "v1", "replicasets", "ReplicaSet", True)
STATEFUL_SETS = Endpoint("apps", "v1", "statefulsets", "StatefulSet", True)
DEPLOYMENTS = Endpoint("apps", "v1", "deployments", "Deployment", True)
DAEMON_SETS = Endpoint("apps", "v1", "daemonsets", "DaemonSet", True)
JOBS = Endpoint("batch", "v1", "jobs", "Job", True)

STORAGE_CLASSES = Endpoint("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
CSI_NODES = Endpoint("storage.k8s.io", "v1", "csinodes", "CSINode", False)
CSI_DRIVERS = Endpoint("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False)
CSI_STORAGE_CAPACITIES = Endpoint("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True)
VOLUME_ATTACHMENTS = Endpoint("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", False)

ENDPOINTS: tuple[Endpoint, ...] = tuple(
    value for name, value in sorted(globals().items()) if name.isupper() and isinstance(value, Endpoint)
)


def find_endpoint(api_version: str, kind: str) -> Endpoint | None:
    """Return the endpoint of a known kind at the version that an object names."""
    group, _, version = api_version.rpartition("/")
    for endpoint in ENDPOINTS:
        if endpoint.group == group and endpoint.kind == kind:
            return endpoint if endpoint.version == version else endpoint.at(version)
    return None
