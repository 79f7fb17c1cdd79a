"""Informers of the scheduler: watch events to snapshot and queue.

The snapshot is updated before an event moves pods in the queue. The queue has exactly the unscheduled pods of
our scheduler names.

Only kinds that API discovery lists are watched: a request for a kind that is not served is refused with 403,
like that for a kind which the role does not allow. The others are empty, and discovery is repeated every
minute until all are served. `WATCHED_KINDS` has what happens without the permission to list a kind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
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
from plimsoll.client.cache import is_older
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
from plimsoll.errors import ApiError, DecodeError, InputError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.events import NodeCapacity, classify_change, node_capacity
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.queue import SchedulingQueue
from plimsoll.scheduler.snapshot.snapshot import Snapshot

LOG = logging.getLogger("plimsoll.scheduler")

#: Delay before discovery is retried (seconds).
DISCOVERY_RETRY_SECONDS = 1.0
#: Interval of discovery while some kinds are not served (seconds).
REDISCOVERY_SECONDS = 60.0
#: Terminated pods charge nothing and are never scheduled.
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
#: Kinds that determine which devices, volumes and resources are allocated.
_ALLOCATIONS = frozenset(
    kind.plural for kind in (PODS, RESOURCE_CLAIMS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
)


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """Kind that is watched, how it is decoded, and the effect of a role that does not allow to list it.

    Without `unreadable_effect` nothing is scheduled until the kind can be listed: decisions would be wrong.
    With it, all pods are scheduled for which the kind does not matter, and the rest wait. A kind with a
    feature gate is not watched while that is disabled, as in kube-scheduler.
    """

    endpoint: Endpoint
    view: type[Any]
    unreadable_effect: str = ""
    gate: str = ""
    optional: bool = True  #: whether some servers do not have it
    fields: str = ""


#: Effect of kinds that scores read, and those that correct counts of other objects.
_SPREAD_EFFECT = "pods are not spread by the owners that select them"
_ATTACHED_EFFECT = "volumes count as attached where pods use them"

WATCHED_KINDS: tuple[WatchedKind, ...] = (
    # What a node has and who uses it: without one of these, capacity or devices would be given twice.
    WatchedKind(NODES, Node, optional=False),
    WatchedKind(DEVICE_CLASSES, DeviceClass),
    WatchedKind(RESOURCE_SLICES, ResourceSlice),
    # The role of kube-scheduler has the rule only where the kind is served.
    WatchedKind(
        DEVICE_TAINT_RULES, DeviceTaintRule, "pods with claims that need devices wait", "DRADeviceTaintRules"
    ),
    WatchedKind(RESOURCE_CLAIMS, ResourceClaim),
    # Pod affinity by namespace labels: without namespaces, pods would be placed next to those they exclude.
    WatchedKind(NAMESPACES, Namespace),
    # Where volumes are and how many fit: a pod whose volumes cannot be used would be bound to a node.
    WatchedKind(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
    WatchedKind(PERSISTENT_VOLUMES, PersistentVolume),
    WatchedKind(STORAGE_CLASSES, StorageClass),
    WatchedKind(CSI_NODES, CSINode),
    WatchedKind(CSI_DRIVERS, CSIDriver),
    WatchedKind(CSI_STORAGE_CAPACITIES, CSIStorageCapacity),
    WatchedKind(VOLUME_ATTACHMENTS, VolumeAttachment, _ATTACHED_EFFECT),
    # Preemption would evict pods that budgets protect.
    WatchedKind(POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
    WatchedKind(POD_GROUPS, PodGroup, "pods of PodGroups wait", "GenericWorkload"),
    WatchedKind(SERVICES, Service, _SPREAD_EFFECT),
    WatchedKind(REPLICATION_CONTROLLERS, ReplicationController, _SPREAD_EFFECT),
    WatchedKind(REPLICA_SETS, ReplicaSet, _SPREAD_EFFECT),
    WatchedKind(STATEFUL_SETS, StatefulSet, _SPREAD_EFFECT),
    WatchedKind(PODS, Pod, optional=False, fields=LIVE_PODS),
)


_BY_PLURAL = {kind.endpoint.plural: kind for kind in WATCHED_KINDS}


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
        #: Called with the old and the new state of a node, after the new one is applied.
        self.on_node_changed: Callable[[Node | None, Node], None] = lambda old, new: None
        #: Called when a pod is queued, with the event; and when an event moves pods, with their number and
        #: how many of them are in backoff.
        self.on_pod_queued: Callable[[str, str], None] = lambda key, event: None
        self.on_pods_woken: Callable[[str, int, int], None] = lambda event, count, backoff: None
        #: Called with the old and the new state of a pod, before the new one is applied and after it.
        self.before_pod_event: Callable[[Pod | None, Pod | None], None] = lambda old, new: None
        self.after_pod_event: Callable[[Pod | None, Pod | None], None] = lambda old, new: None
        #: Called once for each kind that the role does not allow to list, with a message.
        self.on_forbidden: Callable[[str], None] = lambda text: None
        self.informers: list[Informer[Any]] = []
        self.unserved: list[WatchedKind] = []
        self._unlisted: dict[str, WatchedKind] = {}  # kinds that are watched, until their first list
        self._forbidden: set[str] = set()  # those of them that the role does not allow to list
        #: Claims that a response has shown and no list or watch yet.
        self._unseen: dict[tuple[str, str], ResourceClaim] = {}
        self._discovery_error = ""  #: why API discovery failed
        self.synced = False

    # -- watching

    async def run(self, client: Client) -> None:
        """Watch every kind until cancelled or until the configuration proves unusable."""
        served = await self._discover_with_retry(client)
        try:
            async with asyncio.TaskGroup() as group:
                self._start(group, client, served)
                await self._rediscover(group, client)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # all have this cause

    def _start(
        self, group: asyncio.TaskGroup, client: Client, served: Iterable[tuple[WatchedKind, Endpoint]]
    ) -> None:
        started = [(kind, self._informer(client, kind, endpoint)) for kind, endpoint in served]
        self.informers += [informer for _, informer in started]
        self._unlisted.update((kind.endpoint.plural, kind) for kind, _ in started)
        for kind, informer in started:
            group.create_task(informer.run())
            group.create_task(self._await_first_list(kind, informer))

    async def _rediscover(self, group: asyncio.TaskGroup, client: Client) -> None:
        """Start to watch kinds when the server begins to serve them."""
        while self.unserved:
            await asyncio.sleep(REDISCOVERY_SECONDS)
            try:
                served = await self._discover(client, self.unserved)
            except ApiError:
                continue
            self._start(group, client, served)
            for kind, _ in served:
                LOG.info("%s is served now", kind.endpoint.resource)

    async def list_once(self, client: Client) -> None:
        """List every kind once, without watching."""
        for kind, endpoint in await self._discover(client):
            on_event = self.on_pod_event if kind.view is Pod else self.on_event
            try:
                listing = await client.list(endpoint, fields=kind.fields)
            except ApiError as error:
                if kind.optional and error.code == 404:
                    continue
                if not (_is_forbidden(error) and kind.unreadable_effect):
                    raise
                self._report_forbidden(kind)
                continue
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
                return await self._discover(client)
            except ApiError as error:
                self._discovery_error = str(error)
                LOG.warning("waiting for the API server: %s", error)
                await asyncio.sleep(DISCOVERY_RETRY_SECONDS)

    async def _discover(
        self, client: Client, kinds: Iterable[WatchedKind] = WATCHED_KINDS
    ) -> list[tuple[WatchedKind, Endpoint]]:
        """Return the kinds that the server has, at a version of it; `unserved` are the others."""
        found = await discover(client)
        versions = {(each.endpoint.group, each.endpoint.plural): each.versions for each in found}
        served, self.unserved = [], []
        for kind in kinds:
            endpoint = kind.endpoint
            if kind.gate and not self._snapshot.gates.enabled(kind.gate):
                continue
            offered = versions.get((endpoint.group, endpoint.plural), ())
            if not offered and kind.optional:
                self.unserved.append(kind)
                continue
            # The client converts the versions it can read.
            if offered and not set(offered) & set(readable_versions(endpoint)):
                endpoint = endpoint.at(offered[0])
            served.append((kind, endpoint))
        return served

    async def _await_first_list(self, kind: WatchedKind, informer: Informer[Any]) -> None:
        await informer.synced()
        plural = kind.endpoint.plural
        del self._unlisted[plural]
        if plural in self._forbidden:
            self._forbidden.remove(plural)
            self._snapshot.unreadable.discard(kind.view)
            LOG.info("%s can be listed now", kind.endpoint.resource)
            self._queue.activate([pod_key(pod) for pod in self._queue], self._clock())
        self._check_sync()

    def _check_sync(self) -> None:
        """Mark the caches as synced when no kind is waited for."""
        if not self._awaited():
            self.synced = True
        self._changed()

    def _awaited(self) -> list[str]:
        """Return the kinds without which nothing is scheduled and that are not listed yet."""
        return [
            plural
            for plural, kind in self._unlisted.items()
            if not (kind.unreadable_effect and plural in self._forbidden)
        ]

    def _on_error(self, kind: WatchedKind, error: InputError) -> None:
        """Handle an error of a kind that is not listed yet."""
        plural = kind.endpoint.plural
        if _is_forbidden(error) and plural in self._unlisted and plural not in self._forbidden:
            self._forbidden.add(plural)
            self._report_forbidden(kind)
            self._check_sync()

    def _report_forbidden(self, kind: WatchedKind) -> None:
        if kind.unreadable_effect:
            self._snapshot.unreadable.add(kind.view)
        effect = kind.unreadable_effect or "nothing is scheduled"
        text = f"no permission to list {kind.endpoint.resource}: {effect}; {_remedy(kind)}"
        LOG.error("%s", text)
        self.on_forbidden(text)

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
        informer.on_error = partial(self._on_error, kind)
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
        """Return the kinds that have not synced, or may not be read any more, and why; "" if none."""
        if not self.informers and not self.synced:
            problems = {"API discovery": self._discovery_error}
        else:
            errors = {each.endpoint.plural: each.error for each in self.informers}
            names = [
                name
                for name, error in errors.items()
                if _is_forbidden(error) and not _BY_PLURAL[name].unreadable_effect
            ]
            if not self.synced:
                names = self._awaited()
            problems = {name: _explain(_BY_PLURAL[name], errors[name]) for name in names}
        listed = ", ".join(f"{what} ({why})" if why else what for what, why in problems.items())
        return f"not synced: {listed}" if listed else ""

    # -- responses

    def on_claim_created(self, claim: ResourceClaim) -> None:
        """Add or update a claim that this scheduler has created, until it is listed or watched.

        Its devices are taken even if its pod is deleted before the claim is seen.
        """
        self._unseen[claim.metadata.key] = claim
        self._snapshot.set(claim)
        self._drop_unseen()

    def _drop_unseen(self) -> None:
        """Remove the claims that were deleted before they were listed or watched."""
        informers = (each for each in self.informers if each.endpoint.plural == RESOURCE_CLAIMS.plural)
        revision = next((each.revision for each in informers), "")
        for claim in list(self._unseen.values()):
            if is_older(claim.metadata.resource_version, revision):
                self.on_event(claim, None)

    # -- event handlers

    def on_event(self, old: Any, new: Any) -> None:
        """Handle the addition, change or removal of any object but a pod."""
        if self._unseen and isinstance(old if new is None else new, ResourceClaim):
            self._unseen.pop((old if new is None else new).metadata.key, None)
        if new is None:
            self._snapshot.remove(old)
        else:
            self._snapshot.set(new)
            if isinstance(new, ResourceClaim):
                self.on_claim_changed(new)
            elif isinstance(new, PersistentVolume | PersistentVolumeClaim):
                self.on_volume_changed(new)
            elif isinstance(new, Node):
                self.on_node_changed(old, new)
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
        if self._unseen:
            self._drop_unseen()
        if not self.synced:
            return  # no pod has been attempted yet
        event = classify_change(old, new, capacity)
        if event is not None:
            before = self._queue.lengths()["backoff"]
            woken = self._queue.on_event(event, self._clock())
            if woken:
                self.on_pods_woken(event.kind.value, woken, self._queue.lengths()["backoff"] - before)
        self._changed()


def _is_forbidden(error: InputError | None) -> bool:
    return isinstance(error, ApiError) and error.code == 403


def _remedy(kind: WatchedKind) -> str:
    or_disable = f", or disable the feature gate {kind.gate}" if kind.gate else ""
    return f"add to the role: {kind.endpoint.rbac_rule('get', 'list', 'watch')}{or_disable}"


def _explain(kind: WatchedKind, error: InputError | None) -> str:
    if _is_forbidden(error):
        return f"no permission; {_remedy(kind)}"
    return "" if error is None else str(error)
