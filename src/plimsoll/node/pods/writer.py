"""Writes to the API about pods: statuses, events, and the deletion of terminated pods.

Guarantees that a status is written only if it differs from what the API has, by a patch that names only owned
fields and the pod's UID; that while the server is unreachable the latest status of each pod is kept and
written later, older ones never; and that nothing here blocks anything on the node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectReference
from plimsoll.client.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.client.event_recorder import NORMAL, Recorder, Report
from plimsoll.common.clock import SystemClock
from plimsoll.errors import ApiError, InputError
from plimsoll.node.pods.status import merge_told, status_patch, tell
from plimsoll.node.pods.status_input import Tree, branch, text

LOG = logging.getLogger("plimsoll.node")
WARNING = "Warning"


@dataclass(slots=True)
class _Page:
    """Status of one pod as the API has it, and as it should be."""

    namespace: str
    name: str
    told: Tree
    wanted: Tree = field(default_factory=dict)
    written: Tree = field(default_factory=dict)  #: last owned status that the API accepted
    revision: str = ""
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
        retry_most: float = 15.0,
        parallel: int = 16,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.written = 0
        self.failed = 0
        self._client = client
        self._retry_first = retry_first
        self._retry_most = retry_most
        self._room = asyncio.Semaphore(parallel)
        self._pages: dict[str, _Page] = {}
        self._now = now

    async def stop(self) -> None:
        """Cancel writes in progress; the next agent starts from what the API has."""
        tasks = [page.task for page in self._pages.values() if page.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pages.clear()

    # -- statuses

    def put(self, pod: Pod, status: Tree) -> None:
        """Set the desired status of a pod."""
        page = self._page(pod)
        if page.gone or (status == page.wanted and (page.task is not None or status == page.written)):
            return
        page.wanted = status
        self._go(pod.metadata.uid, page)

    def observe(self, pod: Pod) -> None:
        """Handle a pod of the API; if owned fields were overwritten, they are written again."""
        page = self._pages.get(pod.metadata.uid)
        if page is None or page.task is not None or page.revision == pod.metadata.resource_version:
            return
        page.told = tell(pod)
        page.written = {}
        if page.wanted:
            self._go(pod.metadata.uid, page)

    async def settle(self, uid: str) -> None:
        """Wait until the API has the desired status of a pod, or no longer has the pod."""
        page = self._pages.get(uid)
        if page is not None:
            await page.settled.wait()

    def forget(self, uid: str) -> None:
        page = self._pages.pop(uid, None)
        if page is not None and page.task is not None:
            page.task.cancel()

    def _page(self, pod: Pod) -> _Page:
        meta = pod.metadata
        page = self._pages.get(meta.uid)
        if page is None:
            page = _Page(meta.namespace, meta.name, tell(pod), revision=meta.resource_version)
            self._pages[meta.uid] = page
        return page

    def _go(self, uid: str, page: _Page) -> None:
        page.settled.clear()
        if page.task is None:
            page.task = asyncio.create_task(self._write(uid, page), name=f"status of {page.name}")

    async def _write(self, uid: str, page: _Page) -> None:
        wait = self._retry_first
        try:
            while not page.gone:
                status = page.wanted
                patch = status_patch(uid, page.told, status)
                if patch is None:
                    page.written = status
                    return
                try:
                    async with self._room:
                        answer = await self._client.patch(
                            PODS, page.name, patch, page.namespace, subresource="status", type="strategic"
                        )
                except ApiError as error:
                    self.failed += 1
                    if await self._is_gone(error, uid, page.name, page.namespace):
                        page.gone = True
                        return
                    LOG.info("status of pod %s/%s could not be written: %s", page.namespace, page.name, error)
                    await asyncio.sleep(wait)
                    wait = min(wait * 2, self._retry_most)
                    continue
                self.written += 1
                wait = self._retry_first
                page.written = status
                # The server's version counts, but it need not contain every field that was sent.
                page.told = merge_told(branch(answer, "status"), status)
                page.revision = text(branch(answer, "metadata"), "resourceVersion")
                if page.wanted is status:
                    return
        finally:
            page.task = None
            page.settled.set()

    # -- deletion

    async def delete(self, pod: Pod) -> bool:
        """Delete a terminating pod from the API; return True when it is gone, False if finalizers hold it."""
        meta = pod.metadata
        wait = self._retry_first
        while True:
            try:
                answer = await self._client.delete(PODS, meta.name, meta.namespace, uid=meta.uid, grace=0)
            except ApiError as error:
                if await self._is_gone(error, meta.uid, meta.name, meta.namespace):
                    return True
                LOG.info("pod %s/%s could not be deleted: %s", meta.namespace, meta.name, error)
                await asyncio.sleep(wait)
                wait = min(wait * 2, self._retry_most)
                continue
            return not branch(answer, "metadata").get("finalizers")

    async def _is_gone(self, error: ApiError, uid: str, name: str, namespace: str) -> bool:
        """Return whether an error means that the pod no longer exists; a conflict can also mean another
        writer.
        """
        if error.code != 409:
            return error.code == 404
        try:
            tree = await self._client.get(PODS, name, namespace)
        except ApiError as problem:
            return problem.code == 404
        return text(branch(tree, "metadata"), "uid") != uid


class Events:
    """Events of pods, written one after the other; the oldest are dropped if there are too many."""

    def __init__(self, client: Client, *, component: str = "plimsoll-node", limit: int = 1_000) -> None:
        self.dropped = 0
        self._recorder = Recorder(client, SystemClock())
        self._component = component
        self._queue: deque[Report] = deque()
        self._limit = limit
        self._task: asyncio.Task[None] | None = None

    def say(self, pod: Pod, reason: str, message: str, *, type: str = NORMAL, container: str = "") -> None:
        """Queue an event about a pod or one of its containers; never blocks."""
        meta = pod.metadata
        path = ""
        if container:
            inits = any(c.name == container for c in pod.spec.init_containers)
            path = f"spec.{'initContainers' if inits else 'containers'}{{{container}}}"
        regarding = ObjectReference(
            api_version="v1",
            kind="Pod",
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            resource_version=meta.resource_version,
            field_path=path,
        )
        self.tell(regarding, reason, message, type=type)

    def tell(self, regarding: ObjectReference, reason: str, message: str, *, type: str = NORMAL) -> None:
        """Queue an event about any object; never blocks."""
        if len(self._queue) >= self._limit:
            self._queue.popleft()
            self.dropped += 1
        self._queue.append(Report(regarding, reason, message, self._component, type))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="events")

    async def stop(self, seconds: float = 1.0) -> None:
        """Write the remaining events, as far as this time allows."""
        task = self._task
        if task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(task)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._queue:
                try:
                    await self._recorder.record(self._queue.popleft())
                except InputError as error:
                    LOG.debug("event dropped: %s", error)
        finally:
            self._task = None
