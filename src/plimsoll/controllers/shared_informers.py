"""Shared informers of all controllers: one per kind, with indexes over them.

Every cached view has `metadata`. An index always matches the state of its informer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.meta import Object, ObjectMeta, Wire
from plimsoll.api.quota import CountedVolumeClaim, ResourceQuota
from plimsoll.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.storage import PersistentVolume, StorageClass
from plimsoll.client.client import Client
from plimsoll.client.endpoints import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    ENDPOINT_SLICES,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_POOL_STATUS_REQUESTS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    Endpoint,
)
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.controllers import object_views as views
from plimsoll.controllers import workload_views as workloads

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

#: Cached views of the kinds whose content controllers read; of all others only the metadata is cached.
VIEWS: Mapping[tuple[str, str], type[Wire]] = {
    (endpoint.group, endpoint.plural): view
    for endpoint, view in (
        (CONFIG_MAPS, views.ConfigMapView),
        (PODS, Pod),
        (NODES, Node),
        (NAMESPACES, views.NamespaceView),
        (POD_GROUPS, PodGroup),
        (RESOURCE_CLAIMS, ResourceClaim),
        (RESOURCE_CLAIM_TEMPLATES, views.ClaimTemplateView),
        (RESOURCE_POOL_STATUS_REQUESTS, views.PoolStatusRequestView),
        (RESOURCE_SLICES, ResourceSlice),
        (DEVICE_CLASSES, DeviceClass),
        (DEVICE_TAINT_RULES, DeviceTaintRule),
        (RESOURCE_QUOTAS, ResourceQuota),
        (LEASES, views.LeaseView),
        (PERSISTENT_VOLUME_CLAIMS, CountedVolumeClaim),
        (PERSISTENT_VOLUMES, PersistentVolume),
        (STORAGE_CLASSES, StorageClass),
        (SERVICES, views.ServiceView),
        (ENDPOINT_SLICES, views.EndpointSliceView),
        (REPLICATION_CONTROLLERS, workloads.ReplicationControllerView),
        (REPLICA_SETS, workloads.ReplicaSetView),
        (DEPLOYMENTS, workloads.DeploymentView),
        (STATEFUL_SETS, workloads.StatefulSetView),
        (DAEMON_SETS, workloads.DaemonSetView),
        (CONTROLLER_REVISIONS, workloads.ControllerRevisionView),
        (JOBS, workloads.JobView),
        (CRON_JOBS, workloads.CronJobView),
        (POD_DISRUPTION_BUDGETS, workloads.DisruptionBudgetView),
    )
}


class SharedInformers:
    """Informers of all controllers, created on first use."""

    def __init__(self, client: Client, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._client = client
        self._sleep = sleep
        self._informers: dict[tuple[str, str], Informer[Any]] = {}

    def get(self, endpoint: Endpoint) -> Informer[Any]:
        """Return the informer of a kind."""
        key = (endpoint.group, endpoint.plural)
        informer = self._informers.get(key)
        if informer is None:
            view: Any = VIEWS.get(key, Object)
            decode = partial(codec.decode, view=view)
            informer = Informer[Any](self._client, endpoint, decode, sleep=self._sleep)
            self._informers[key] = informer
        return informer

    def all(self) -> list[Informer[Any]]:
        return list(self._informers.values())


class ObjectIndex(EventHandler[T], Generic[T, H]):
    """Index over the objects of an informer."""

    def __init__(self, values_of: Callable[[T], Iterable[H]]) -> None:
        self._values_of = values_of
        self._objects: dict[H, dict[tuple[str, str], T]] = {}

    def find(self, value: H) -> list[T]:
        """Return the objects with an index value."""
        return list(self._objects.get(value, {}).values())

    def __contains__(self, value: H) -> bool:
        return value in self._objects

    def on_added(self, new: T) -> None:
        for value in set(self._values_of(new)):
            self._objects.setdefault(value, {})[_key(new)] = new

    def on_changed(self, old: T, new: T) -> None:
        self.on_removed(old)
        self.on_added(new)

    def on_removed(self, old: T) -> None:
        for value in set(self._values_of(old)):
            found = self._objects.get(value)
            if found is not None:
                found.pop(_key(old), None)
                if not found:
                    del self._objects[value]


def _key(item: Any) -> tuple[str, str]:
    metadata: ObjectMeta = item.metadata
    return metadata.key
