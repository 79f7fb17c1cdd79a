"""Writes to the API about pods: statuses, events, and the deletion of terminated pods.

Guarantees that a status is written only if it differs from what the API has, by a patch that names only owned
fields and the pod's UID; that while the server is unreachable the latest status of each pod is kept and
written later, older ones never; that a status is complete in the end, although responses are lost and lost
writes arrive late; and that nothing here blocks anything on the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectReference
from plimsoll.client.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.client.event_recorder import NORMAL, EventRecord, EventRecorder
from plimsoll.common.clock import SystemClock
from plimsoll.common.json_tree import branch, text
from plimsoll.common.tasks import at_most, cancel_tasks
from plimsoll.errors import ApiError, InputError, UnreachableError
from plimsoll.node.pods.status import merge_reported, reported_status, status_patch
from plimsoll.node.pods.status_input import Tree

LOG = logging.getLogger("plimsoll.node")
WARNING = "Warning"
#: Source of events: that of a kubelet, by which clients select them.
_COMPONENT = "kubelet"
#: Maximum number of queued events, and of statuses written at the same time.
_MAX_EVENTS = 1_000
_MAX_PARALLEL = 16


@dataclass(slots=True)
class _StatusEntry:
    """Status of one pod as the API has it, and as it should be."""

    namespace: str
    name: str
    reported: Tree
    desired: Tree = field(default_factory=dict)
    written: Tree = field(default_factory=dict)  #: last owned status that the API accepted
    revision: str = ""
    #: A write may have reached the API although it failed: what the API has is not known.
    uncertain: bool = False
    #: Pod that arrived while its status was being written.
    observed: Pod | None = None
    #: Fields that the API did not take over from the last write.
    refused: Tree | None = None
    gone: bool = False
    task: asyncio.Task[None] | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class StatusWriter:
    """Writer of pod statuses, each pod independently."""

    def __init__(
        self,
        client: Client,
        *,
        retry_first: float = 0.5,
        retry_max: float = 15.0,
    ) -> None:
        self.written = 0
        self.failed = 0
        self._client = client
        self._retry_first = retry_first
        self._retry_most = retry_max
        self._semaphore = asyncio.Semaphore(_MAX_PARALLEL)
        self._entries: dict[str, _StatusEntry] = {}

    async def stop(self) -> None:
        """Cancel writes in progress; the next agent starts from what the API has."""
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        await cancel_tasks(tasks)
        self._entries.clear()

    # -- statuses

    def put(self, pod: Pod, status: Tree) -> None:
        """Set the desired status of a pod."""
        entry = self._page(pod)
        if entry.gone or (status == entry.desired and (entry.task is not None or status == entry.written)):
            return
        entry.desired = status
        self._schedule_write(pod.metadata.uid, entry)

    def observe(self, pod: Pod) -> None:
        """Handle a pod of the API; if owned fields were overwritten, they are written again."""
        entry = self._entries.get(pod.metadata.uid)
        if entry is None or entry.revision == pod.metadata.resource_version:
            return
        if entry.task is not None:
            entry.observed = pod
            return
        entry.reported = reported_status(pod)
        entry.written = {}
        if entry.desired:
            self._schedule_write(pod.metadata.uid, entry)

    async def wait_until_written(self, uid: str) -> None:
        """Wait until the API has the desired status of a pod, or no longer has the pod."""
        entry = self._entries.get(uid)
        if entry is not None:
            await entry.settled.wait()

    def forget(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is not None and entry.task is not None:
            entry.task.cancel()

    def _page(self, pod: Pod) -> _StatusEntry:
        meta = pod.metadata
        entry = self._entries.get(meta.uid)
        if entry is None:
            entry = _StatusEntry(
                meta.namespace, meta.name, reported_status(pod), revision=meta.resource_version
            )
            self._entries[meta.uid] = entry
        return entry

    def _schedule_write(self, uid: str, entry: _StatusEntry) -> None:
        entry.settled.clear()
        if entry.task is None:
            entry.task = asyncio.create_task(self._write(uid, entry), name=f"status of {entry.name}")

    async def _write(self, uid: str, entry: _StatusEntry) -> None:
        wait = self._retry_first
        try:
            while not entry.gone:
                try:
                    if entry.uncertain:
                        await self._read(uid, entry)
                    elif await self._write_once(uid, entry):
                        return
                except ApiError as error:
                    self.failed += 1
                    entry.uncertain |= _may_have_been_applied(error)
                    if await self._is_gone(error, uid, entry.name, entry.namespace):
                        entry.gone = True
                        return
                    LOG.info(
                        "status of pod %s/%s could not be written: %s", entry.namespace, entry.name, error
                    )
                    await asyncio.sleep(wait)
                    wait = min(wait * 2, self._retry_most)
                else:
                    wait = self._retry_first
        finally:
            entry.task = None
            entry.settled.set()

    async def _write_once(self, uid: str, entry: _StatusEntry) -> bool:
        """Write what differs; return whether the API has the desired status. Raises ApiError."""
        observed, entry.observed = entry.observed, None
        if observed is not None and _is_newer(observed.metadata.resource_version, entry.revision):
            entry.reported, entry.revision = reported_status(observed), observed.metadata.resource_version
        status = entry.desired
        patch = status_patch(uid, entry.reported, status)
        if patch is None:
            entry.written = status
            return True
        async with self._semaphore:
            response = await self._client.patch(
                PODS, entry.name, patch, entry.namespace, subresource="status", type="strategic"
            )
        self.written += 1
        entry.written = status
        entry.revision = text(branch(response, "metadata"), "resourceVersion")
        found = branch(response, "status")
        missing = status_patch(uid, found, status)
        if missing not in (None, patch, entry.refused):
            entry.reported = found  # an earlier write has arrived late, or another client has written
            return False
        # The server's version counts, but it need not contain every field that was sent.
        entry.reported, entry.refused = merge_reported(found, status), missing
        return entry.desired is status and entry.observed is None

    async def _read(self, uid: str, entry: _StatusEntry) -> None:
        """Read what the API has of a pod; raises ApiError."""
        tree = await self._client.get(PODS, entry.name, entry.namespace)
        metadata = branch(tree, "metadata")
        entry.gone = text(metadata, "uid") != uid
        entry.reported, entry.revision = branch(tree, "status"), text(metadata, "resourceVersion")
        entry.uncertain = False

    # -- deletion

    async def delete(self, pod: Pod) -> bool:
        """Delete a terminating pod from the API; return True when it is gone, False if finalizers hold it."""
        meta = pod.metadata
        wait = self._retry_first
        while True:
            try:
                response = await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=0)
            except ApiError as error:
                if await self._is_gone(error, meta.uid, meta.name, meta.namespace):
                    return True
                LOG.info("pod %s/%s could not be deleted: %s", meta.namespace, meta.name, error)
                await asyncio.sleep(wait)
                wait = min(wait * 2, self._retry_most)
                continue
            return not branch(response, "metadata").get("finalizers")

    async def _is_gone(self, error: ApiError, uid: str, name: str, namespace: str) -> bool:
        """Return whether an error means that the pod is gone; a conflict can also mean another writer."""
        if error.code != 409:
            return error.code == 404
        try:
            tree = await self._client.get(PODS, name, namespace)
        except ApiError as problem:
            return problem.code == 404
        return text(branch(tree, "metadata"), "uid") != uid


def _may_have_been_applied(error: ApiError) -> bool:
    """Return whether a write may have changed the pod although it failed."""
    return error.sent if isinstance(error, UnreachableError) else error.code >= 500


def _is_newer(revision: str, known: str) -> bool:
    """Return whether a resource version is later than another; those that are no numbers are taken to be."""
    if revision.isdecimal() and known.isdecimal():
        return int(revision) > int(known)
    return revision != known


class PodEvents:
    """Events of pods, written one after the other; the oldest are dropped if there are too many."""

    def __init__(self, client: Client, node: str) -> None:
        self.dropped = 0
        self._node = node
        self._recorder = EventRecorder(client, SystemClock())
        self._queue: deque[EventRecord] = deque()
        self._task: asyncio.Task[None] | None = None

    def emit(
        self,
        pod: Pod,
        reason: str,
        message: str,
        *,
        type: str = NORMAL,
        container: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Queue an event about a pod or one of its containers; never blocks."""
        path = ""
        if container:
            path = f"spec.{_field_of(pod, container)}{{{container}}}"
        regarding = replace(ObjectReference.to_version(pod.metadata, "Pod"), field_path=path)
        self.emit_for(regarding, reason, message, type=type, annotations=annotations)

    def emit_for(
        self,
        regarding: ObjectReference,
        reason: str,
        message: str,
        *,
        type: str = NORMAL,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Queue an event about any object; never blocks."""
        if len(self._queue) >= _MAX_EVENTS:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(
            EventRecord(regarding, reason, message, _COMPONENT, type, self._node, annotations or {})
        )
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="events")

    async def stop(self, seconds: float = 1.0) -> None:
        """Write the remaining events, as far as this time allows."""
        task = self._task
        if task is None:
            return
        async with at_most(seconds):
            await asyncio.shield(task)
        await cancel_tasks((task,))

    async def _run(self) -> None:
        try:
            while self._queue:
                try:
                    await self._recorder.record(self._queue.popleft())
                except InputError as error:
                    LOG.debug("event dropped: %s", error)
        finally:
            self._task = None


def _field_of(pod: Pod, container: str) -> str:
    """Return the field of the pod's spec that has a container."""
    if any(each.name == container for each in pod.spec.init_containers):
        return "initContainers"
    is_ephemeral = any(each.name == container for each in pod.spec.ephemeral_containers)
    return "ephemeralContainers" if is_ephemeral else "containers"
