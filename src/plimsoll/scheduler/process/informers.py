"""Informers of the scheduler: watch events to snapshot and queue.

The snapshot is updated before an event moves pods in the queue. The queue has exactly the unscheduled pods of
our scheduler names. Kinds that a server does not serve are retried, and are empty until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Namespace, Node, Pod
from plimsoll.api.kept import is_kept
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.api.workloads import ReplicaSet, ReplicationController, Service, StatefulSet
from plimsoll.client.client import Client
from plimsoll.client.discovery import discover
from plimsoll.client.endpoints import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Endpoint,
)
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.client.served_versions import readable_versions
from plimsoll.errors import ApiError, DecodeError, UnreachableError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.events import NodeCapacity, classify_change, node_capacity
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.queue import SchedulingQueue
from plimsoll.scheduler.snapshot.snapshot import Snapshot

LOG = logging.getLogger("plimsoll.scheduler")

#: Delay before discovery is retried (seconds).
DISCOVERY_RETRY_SECONDS = 1.0
#: Terminated pods charge nothing and are never scheduled.
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
#: Kinds that determine which devices, volumes and resources are allocated.
_ALLOCATIONS = frozenset(
    kind.plural for kind in (PODS, RESOURCE_CLAIMS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
)


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """Kind that is watched, and how it is decoded."""

    endpoint: Endpoint
    view: type[Any]
    optional: bool = True
    fields: str = ""


WATCHED_KINDS: tuple[WatchedKind, ...] = (
    WatchedKind(NODES, Node, optional=False),
    WatchedKind(DEVICE_CLASSES, DeviceClass),
    WatchedKind(RESOURCE_SLICES, ResourceSlice),
    WatchedKind(DEVICE_TAINT_RULES, DeviceTaintRule),
    WatchedKind(RESOURCE_CLAIMS, ResourceClaim),
    WatchedKind(NAMESPACES, Namespace),
    WatchedKind(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
    WatchedKind(PERSISTENT_VOLUMES, PersistentVolume),
    WatchedKind(STORAGE_CLASSES, StorageClass),
    WatchedKind(CSI_NODES, CSINode),
    WatchedKind(CSI_DRIVERS, CSIDriver),
    WatchedKind(CSI_STORAGE_CAPACITIES, CSIStorageCapacity),
    WatchedKind(VOLUME_ATTACHMENTS, VolumeAttachment),
    WatchedKind(POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
    WatchedKind(POD_GROUPS, PodGroup),
    WatchedKind(SERVICES, Service),
    WatchedKind(REPLICATION_CONTROLLERS, ReplicationController),
    WatchedKind(REPLICA_SETS, ReplicaSet),
    WatchedKind(STATEFUL_SETS, StatefulSet),
    WatchedKind(PODS, Pod, optional=False, fields=LIVE_PODS),
)


class SchedulerInformers:
    """Informers that keep a snapshot and a queue up to date."""

    def __init__(
        self,
        snapshot: Snapshot,
        queue: SchedulingQueue,
        nominations: Nominations,
        names: Iterable[str],
        *,
        clock: Callable[[], int],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Create informers; `clock` returns milliseconds, `changed` is called after every change."""
        self._snapshot = snapshot
        self._queue = queue
        self._nominations = nominations
        self._names = frozenset(names)
        self._clock = clock
        self._changed = changed
        #: Called with the key of a pod that leaves the queue, and with every changed claim and volume.
        self.on_pod_left: Callable[[str], None] = lambda key: None
        self.on_claim_changed: Callable[[ResourceClaim], None] = lambda claim: None
        self.on_volume_changed: Callable[[PersistentVolume | PersistentVolumeClaim], None] = lambda volume: (
            None
        )
        #: Called when a pod is queued, with the event; and when an event moves pods, with their number and
        #: how many of them are in backoff.
        self.on_pod_queued: Callable[[str, str], None] = lambda key, event: None
        self.on_pods_woken: Callable[[str, int, int], None] = lambda event, count, backoff: None
        #: Called with the old and the new state of a pod, before the new one is applied and after it.
        self.before_pod_event: Callable[[Pod | None, Pod | None], None] = lambda old, new: None
        self.after_pod_event: Callable[[Pod | None, Pod | None], None] = lambda old, new: None
        self.informers: list[Informer[Any]] = []
        self._discovery_error = ""  #: why API discovery failed
        self.synced = False

    # -- watching

    async def run(self, client: Client) -> None:
        """Watch every kind until cancelled or until the configuration proves unusable."""
        served = await self._discover_with_retry(client)
        self.informers = [self._informer(client, kind, endpoint) for kind, endpoint in served]
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self.informers:
                    group.create_task(informer.run())
                group.create_task(self._await_sync())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # all have this cause

    async def list_once(self, client: Client) -> None:
        """List every kind once, without watching."""
        for kind, endpoint in await _watched_endpoints(client):
            on_event = self.on_pod_event if kind.view is Pod else self.on_event
            try:
                listing = await client.list(endpoint, fields=kind.fields)
            except ApiError as error:
                if kind.optional and error.code == 404:
                    continue
                raise
            for raw in listing.items:
                try:
                    on_event(None, codec.decode(raw, kind.view))
                except DecodeError as error:
                    LOG.error("skipping an object of %s that cannot be decoded: %s", endpoint.plural, error)
        self.synced = True

    async def _discover_with_retry(self, client: Client) -> list[tuple[WatchedKind, Endpoint]]:
        """Return the endpoints to watch, once a server answers."""
        while True:
            try:
                return await _watched_endpoints(client)
            except UnreachableError as error:
                self._discovery_error = str(error)
                LOG.warning("waiting for the API server: %s", error)
                await asyncio.sleep(DISCOVERY_RETRY_SECONDS)

    async def _await_sync(self) -> None:
        for informer in self.informers:
            await informer.synced()
        self.synced = True
        self._changed()

    def _informer(self, client: Client, kind: WatchedKind, endpoint: Endpoint) -> Informer[Any]:
        view = kind.view
        informer: Informer[Any] = Informer(
            client,
            endpoint,
            lambda raw: codec.decode(raw, view),
            fields=kind.fields,
            optional=kind.optional,
        )
        informer.add_handler(CallbackHandler(self.on_pod_event if view is Pod else self.on_event))
        return informer

    async def refresh_allocations(self) -> None:
        """List pods and claims again: allocations are known as of this call, not as of the last event."""
        informers = [each for each in self.informers if each.endpoint.plural in _ALLOCATIONS]
        await asyncio.gather(*(each.refresh() for each in informers))

    def pods(self) -> list[Pod]:
        """Return all cached pods that have not terminated, scheduled or not."""
        return next((each.items() for each in self.informers if each.endpoint.plural == PODS.plural), [])

    def find_pod(self, namespace: str, name: str) -> Pod | None:
        """Return a cached pod that has not terminated, scheduled or not."""
        found = (each.get(namespace, name) for each in self.informers if each.endpoint.plural == PODS.plural)
        return next(found, None)

    def sync_problem(self) -> str:
        """Return the kinds that have not synced and why; "" if all have."""
        if self.synced:
            return ""
        waiting: list[tuple[str, object]] = [("API discovery", self._discovery_error)]
        if self.informers:
            waiting = [(each.endpoint.plural, each.error) for each in self.informers if not each.listings]
        return "not synced: " + ", ".join(f"{what} ({error})" if error else what for what, error in waiting)

    # -- event handlers

    def on_event(self, old: Any, new: Any) -> None:
        """Handle the addition, change or removal of any object but a pod."""
        if new is None:
            self._snapshot.remove(old)
        else:
            self._snapshot.set(new)
            if isinstance(new, ResourceClaim):
                self.on_claim_changed(new)
            elif isinstance(new, PersistentVolume | PersistentVolumeClaim):
                self.on_volume_changed(new)
        self._wake(old, new)

    def on_pod_event(self, old: Pod | None, new: Pod | None) -> None:
        """Handle the addition, change or removal of a pod."""
        pod = new if new is not None else old
        assert pod is not None
        key = pod_key(pod)
        self.before_pod_event(old, new)
        if new is None:
            self._dequeue(key)
            self._nominations.drop(key)
            self._snapshot.remove(pod)
        else:
            self._nominations.update(new)
            if new.spec.node_name:
                self._dequeue(key)
                self._snapshot.set(new)
            else:
                self._on_unscheduled_pod(key, old, new)
        capacity = None
        if old is not None and new is None and self.synced:
            capacity = node_capacity(self._snapshot, old.spec.node_name)
        self.after_pod_event(old, new)
        self._wake(old, new, capacity)

    def _on_unscheduled_pod(self, key: str, old: Pod | None, new: Pod) -> None:
        """Queue an unscheduled pod that has our scheduler name and is neither being deleted nor kept."""
        is_gone = new.metadata.deletion_timestamp is not None
        if is_gone or is_kept(new.metadata) or new.spec.scheduler_name not in self._names:
            self._dequeue(key)
        elif self._snapshot.find_pod(key) is not None and key not in self._queue:
            return  # already bound by us: this event is older than the binding
        elif old is None:
            self._queue.add(new, self._clock())
            self.on_pod_queued(key, "PodAdd")
        else:
            self._queue.update(new, self._clock())

    def _dequeue(self, key: str) -> None:
        """Remove a pod from the queue."""
        self._queue.remove(key)
        self.on_pod_left(key)

    def _wake(self, old: Any, new: Any, capacity: NodeCapacity | None = None) -> None:
        if not self.synced:
            return  # no pod has been attempted yet
        event = classify_change(old, new, capacity)
        if event is not None:
            before = self._queue.lengths()["backoff"]
            woken = self._queue.on_event(event, self._clock())
            if woken:
                self.on_pods_woken(event.kind.value, woken, self._queue.lengths()["backoff"] - before)
        self._changed()


async def _watched_endpoints(client: Client) -> list[tuple[WatchedKind, Endpoint]]:
    """Return each kind at a version that the server has; raises UnreachableError without a server."""
    versions: dict[tuple[str, str], tuple[str, ...]] = {}
    try:
        for served in await discover(client):
            versions[served.endpoint.group, served.endpoint.plural] = served.versions
    except UnreachableError:
        raise
    except ApiError as error:
        LOG.warning("API discovery failed, falling back to the default API versions: %s", error)
    found = []
    for kind in WATCHED_KINDS:
        endpoint = kind.endpoint
        offered = versions.get((endpoint.group, endpoint.plural), ())
        # The client converts the versions it can read.
        if offered and not set(offered) & set(readable_versions(endpoint)):
            endpoint = endpoint.at(offered[0])
        found.append((kind, endpoint))
    return found
