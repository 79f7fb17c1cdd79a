"""Endpoints of kinds: group, version, plural, scope, and their paths.

One constant for each built-in kind, at its preferred version. An endpoint of a custom resource is
`Endpoint("example.com", "v1", "widgets", "Widget", True)`.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from plimsoll.api.kinds import find_kind, join_api_version, resource_key


class Endpoint(NamedTuple):
    """Kind at one version, as a client addresses it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return join_api_version(self.group, self.version)

    @property
    def resource(self) -> str:
        """`pods`, or `resourceclaims.resource.k8s.io`."""
        return resource_key(self.group, self.plural)

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

    def rbac_rule(self, *verbs: str) -> str:
        """Return the rule of a role that allows these verbs, as YAML in one line."""
        group = self.group or '""'
        return f"{{apiGroups: [{group}], resources: [{self.plural}], verbs: [{', '.join(verbs)}]}}"


def _endpoint(key: str) -> Endpoint:
    kind = find_kind(key)
    return Endpoint(kind.group, kind.versions[0], kind.plural, kind.kind, kind.namespaced)


PODS = _endpoint("pods")
NODES = _endpoint("nodes")
NAMESPACES = _endpoint("namespaces")
EVENTS = _endpoint("events")
CONFIG_MAPS = _endpoint("configmaps")
SECRETS = _endpoint("secrets")
SERVICES = _endpoint("services")
ENDPOINTS = _endpoint("endpoints")
ENDPOINT_SLICES = _endpoint("endpointslices.discovery.k8s.io")
SERVICE_CIDRS = _endpoint("servicecidrs.networking.k8s.io")
SERVICE_ACCOUNTS = _endpoint("serviceaccounts")
RESOURCE_QUOTAS = _endpoint("resourcequotas")
LIMIT_RANGES = _endpoint("limitranges")
REPLICATION_CONTROLLERS = _endpoint("replicationcontrollers")
PERSISTENT_VOLUMES = _endpoint("persistentvolumes")
PERSISTENT_VOLUME_CLAIMS = _endpoint("persistentvolumeclaims")

RESOURCE_SLICES = _endpoint("resourceslices.resource.k8s.io")
RESOURCE_CLAIMS = _endpoint("resourceclaims.resource.k8s.io")
RESOURCE_CLAIM_TEMPLATES = _endpoint("resourceclaimtemplates.resource.k8s.io")
DEVICE_CLASSES = _endpoint("deviceclasses.resource.k8s.io")
DEVICE_TAINT_RULES = _endpoint("devicetaintrules.resource.k8s.io")
RESOURCE_POOL_STATUS_REQUESTS = _endpoint("resourcepoolstatusrequests.resource.k8s.io")

TOKEN_REVIEWS = _endpoint("tokenreviews.authentication.k8s.io")
SUBJECT_ACCESS_REVIEWS = _endpoint("subjectaccessreviews.authorization.k8s.io")
LEASES = _endpoint("leases.coordination.k8s.io")
PRIORITY_CLASSES = _endpoint("priorityclasses.scheduling.k8s.io")
FLOW_SCHEMAS = _endpoint("flowschemas.flowcontrol.apiserver.k8s.io")
PRIORITY_LEVEL_CONFIGURATIONS = _endpoint("prioritylevelconfigurations.flowcontrol.apiserver.k8s.io")
POD_GROUPS = _endpoint("podgroups.scheduling.k8s.io")
EVENTS_V1 = _endpoint("events.events.k8s.io")
POD_DISRUPTION_BUDGETS = _endpoint("poddisruptionbudgets.policy")

REPLICA_SETS = _endpoint("replicasets.apps")
STATEFUL_SETS = _endpoint("statefulsets.apps")
DEPLOYMENTS = _endpoint("deployments.apps")
DAEMON_SETS = _endpoint("daemonsets.apps")
CONTROLLER_REVISIONS = _endpoint("controllerrevisions.apps")
JOBS = _endpoint("jobs.batch")
CRON_JOBS = _endpoint("cronjobs.batch")

RUNTIME_CLASSES = _endpoint("runtimeclasses.node.k8s.io")
STORAGE_CLASSES = _endpoint("storageclasses.storage.k8s.io")
CSI_NODES = _endpoint("csinodes.storage.k8s.io")
CSI_DRIVERS = _endpoint("csidrivers.storage.k8s.io")
CSI_STORAGE_CAPACITIES = _endpoint("csistoragecapacities.storage.k8s.io")
VOLUME_ATTACHMENTS = _endpoint("volumeattachments.storage.k8s.io")
