"""From the API to the snapshot and the queue: who hears of what.

Owns `Feed`: one informer for each kind the scheduler reads, and what each change means. Promises: the
snapshot knows of a change before the queue wakes anyone because of it; pods without a node that ask for us
are in the queue, all others are not. Kinds that a server does not serve are looked for from time to time and
empty until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Namespace, Node, Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.client.client import Client
from plimsoll.client.discovery import discover
from plimsoll.client.endpoints import (
    CSI_NODES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Endpoint,
)
from plimsoll.client.informer import Handler, Informer
from plimsoll.errors import ApiError, DecodeError, UnreachableError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.events import NodeCapacity, classify_change, node_capacity
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.queue import SchedulingQueue
from plimsoll.scheduler.snapshot.snapshot import Snapshot

LOG = logging.getLogger("plimsoll.scheduler")

#: How long to wait before a server that did not answer is asked again (seconds).
_AGAIN = 1.0
#: Pods that have ended charge nothing and are never scheduled.
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
#: The kinds that tell who holds what.
_ALLOCATIONS = frozenset({PODS.plural, RESOURCE_CLAIMS.plural})


@dataclass(frozen=True, slots=True)
class Followed:
    """A kind that is followed, and how it is read."""

    endpoint: Endpoint
    view: type[Any]
    optional: bool = True
    fields: str = ""


FOLLOWED: tuple[Followed, ...] = (
    Followed(NODES, Node, optional=False),
    Followed(DEVICE_CLASSES, DeviceClass),
    Followed(RESOURCE_SLICES, ResourceSlice),
    Followed(DEVICE_TAINT_RULES, DeviceTaintRule),
    Followed(RESOURCE_CLAIMS, ResourceClaim),
    Followed(NAMESPACES, Namespace),
    Followed(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim),
    Followed(PERSISTENT_VOLUMES, PersistentVolume),
    Followed(STORAGE_CLASSES, StorageClass),
    Followed(CSI_NODES, CSINode),
    Followed(VOLUME_ATTACHMENTS, VolumeAttachment),
    Followed(POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
    Followed(PODS, Pod, optional=False, fields=LIVE_PODS),
)


class Feed:
    """Keeps a snapshot and a queue up to date; `run` follows until it is cancelled."""

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
        """`clock` gives milliseconds; `changed` is called after every change."""
        self._snapshot = snapshot
        self._queue = queue
        self._nominations = nominations
        self._names = frozenset(names)
        self._clock = clock
        self._changed = changed
        #: Called with the key of a pod that waits for us no longer, and with every claim.
        self.left: Callable[[str], None] = lambda key: None
        self.claim_changed: Callable[[ResourceClaim], None] = lambda claim: None
        #: Called when a pod joined the queue, by which event; and when an event woke pods: how many, and how
        #: many of them have to back off first.
        self.joined: Callable[[str, str], None] = lambda key, event: None
        self.woken: Callable[[str, int, int], None] = lambda event, count, backoff: None
        self.informers: list[Informer[Any]] = []
        self._unreachable = ""  #: why nobody could be asked yet what is served
        self.synced = False

    # -- following

    async def run(self, client: Client) -> None:
        """Follow every kind; ends only by cancellation or a configuration that cannot work."""
        served = await self._await_served(client)
        self.informers = [self._informer(client, kind, endpoint) for kind, endpoint in served]
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self.informers:
                    group.create_task(informer.run())
                group.create_task(self._await_sync())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None  # they have one cause, and one is enough to tell it

    async def read(self, client: Client) -> None:
        """Read everything once, without following it."""
        for kind, endpoint in await _served(client):
            hear = self.hear_pod if kind.view is Pod else self.hear
            try:
                listing = await client.list(endpoint, fields=kind.fields)
            except ApiError as error:
                if kind.optional and error.code == 404:
                    continue
                raise
            for raw in listing.items:
                try:
                    hear(None, codec.decode(raw, kind.view))
                except DecodeError as error:
                    LOG.error("one of %s cannot be read and was passed over: %s", endpoint.plural, error)
        self.synced = True

    async def _await_served(self, client: Client) -> list[tuple[Followed, Endpoint]]:
        """What to follow, as soon as there is a server to ask."""
        while True:
            try:
                return await _served(client)
            except UnreachableError as error:
                self._unreachable = str(error)
                LOG.warning("waiting for the API: %s", error)
                await asyncio.sleep(_AGAIN)

    async def _await_sync(self) -> None:
        for informer in self.informers:
            await informer.synced()
        self.synced = True
        self._changed()

    def _informer(self, client: Client, kind: Followed, endpoint: Endpoint) -> Informer[Any]:
        view = kind.view
        informer: Informer[Any] = Informer(
            client,
            endpoint,
            lambda raw: codec.decode(raw, view),
            fields=kind.fields,
            optional=kind.optional,
        )
        informer.add_handler(_Ear(self.hear_pod if view is Pod else self.hear))
        return informer

    async def refresh_allocations(self) -> None:
        """List pods and claims anew: who holds what is known as of this call, not as of the last event."""
        informers = [each for each in self.informers if each.endpoint.plural in _ALLOCATIONS]
        await asyncio.gather(*(each.refresh() for each in informers))

    def pods(self) -> list[Pod]:
        """All pods that have not ended, bound or not, as last heard of."""
        return next((each.items() for each in self.informers if each.endpoint.plural == PODS.plural), [])

    def missing(self) -> str:
        """Which kinds are not listed yet, and why; empty when all are."""
        if self.synced:
            return ""
        waiting: list[tuple[str, object]] = [("what the API serves", self._unreachable)]
        if self.informers:
            waiting = [(each.endpoint.plural, each.error) for each in self.informers if not each.listings]
        return "not listed yet: " + ", ".join(
            f"{what} ({error})" if error else what for what, error in waiting
        )

    # -- hearing

    def hear(self, old: Any, new: Any) -> None:
        """Anything but a pod is new, has changed or is gone."""
        if new is None:
            self._snapshot.remove(old)
        else:
            self._snapshot.set(new)
            if isinstance(new, ResourceClaim):
                self.claim_changed(new)
        self._wake(old, new)

    def hear_pod(self, old: Pod | None, new: Pod | None) -> None:
        """A pod is new, has changed or is gone."""
        pod = new if new is not None else old
        assert pod is not None
        key = pod_key(pod)
        if new is None:
            self._leave(key)
            self._nominations.drop(key)
            self._snapshot.remove(pod)
        else:
            self._nominations.hear(new)
            if new.spec.node_name:
                self._leave(key)
                self._snapshot.set(new)
            else:
                self._hear_waiting(key, old, new)
        room = None
        if old is not None and new is None and self.synced:
            room = node_capacity(self._snapshot, old.spec.node_name)
        self._wake(old, new, room)

    def _hear_waiting(self, key: str, old: Pod | None, new: Pod) -> None:
        """A pod that nobody has bound: ours, if it asks for us and is not on its way out."""
        if new.spec.scheduler_name not in self._names or new.metadata.deletion_timestamp is not None:
            self._leave(key)
        elif self._snapshot.find_pod(key) is not None and key not in self._queue:
            return  # we have bound it, and this is what was written before that: the news is on its way
        elif old is None:
            self._queue.add(new, self._clock())
            self.joined(key, "PodAdd")
        else:
            self._queue.update(new, self._clock())

    def _leave(self, key: str) -> None:
        """A pod waits for us no longer."""
        self._queue.remove(key)
        self.left(key)

    def _wake(self, old: Any, new: Any, room: NodeCapacity | None = None) -> None:
        if not self.synced:
            return  # nobody has been tried yet, so nobody sleeps
        happening = classify_change(old, new, room)
        if happening is not None:
            before = self._queue.lengths()["backoff"]
            woken = self._queue.on_event(happening, self._clock())
            if woken:
                self.woken(happening.kind.value, woken, self._queue.lengths()["backoff"] - before)
        self._changed()


class _Ear(Handler[Any]):
    """Tells what an informer tells, as old and new."""

    def __init__(self, hear: Callable[[Any, Any], None]) -> None:
        self._hear = hear

    def on_added(self, new: Any) -> None:
        self._hear(None, new)

    def on_changed(self, old: Any, new: Any) -> None:
        self._hear(old, new)

    def on_removed(self, old: Any) -> None:
        self._hear(old, None)


async def _served(client: Client) -> list[tuple[Followed, Endpoint]]:
    """What to follow, each kind at a version that the server has; UnreachableError if nobody answers."""
    versions: dict[tuple[str, str], tuple[str, ...]] = {}
    try:
        for served in await discover(client):
            versions[served.endpoint.group, served.endpoint.plural] = served.versions
    except UnreachableError:
        raise
    except ApiError as error:
        LOG.warning("what the API serves cannot be read, the usual is tried: %s", error)
    found = []
    for kind in FOLLOWED:
        endpoint = kind.endpoint
        offered = versions.get((endpoint.group, endpoint.plural), ())
        if offered and endpoint.version not in offered:
            endpoint = endpoint.at(offered[0])
        found.append((kind, endpoint))
    return found
