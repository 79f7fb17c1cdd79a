"""Keeper of placeholder pods: compares them with the pods and claims that they stand for.

A node is compared when one of its pods changes, and all nodes at the start and once a minute. A missing
placeholder is created, unless its node is being drained; one whose pod or claim is not on the node any more
is deleted. Nothing else is remembered, so that whatever a crash or a person leaves is repaired.

A kubelet that rejects a missing placeholder is full: the pod has an event, and the keeper tries again a
minute later. After an error of the API server it tries again soon.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any

from plimsoll.api.core import Node, Pod
from plimsoll.common.tasks import at_most, cancel_tasks, start_task
from plimsoll.errors import ApiError, LeaseLostError
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placeholders import is_draining, is_placeholder, placeholder_owner
from plimsoll.ledger.placement import find_missing_placeholders
from plimsoll.scheduler.binding.placeholders import ADMISSION_TIMEOUT_MS, find_refusal
from plimsoll.scheduler.process.event_recorder import WARNING, SchedulerEventRecorder
from plimsoll.scheduler.process.metrics import Metrics
from plimsoll.scheduler.process.placeholder_writer import PlaceholderApiWriter
from plimsoll.scheduler.snapshot.snapshot import Snapshot

LOG = logging.getLogger("plimsoll.scheduler")

#: Time between comparisons of all nodes, and before a rejected placeholder is created again.
PERIOD_SECONDS = 60.0
#: Placeholders written concurrently.
_CONCURRENCY = 32


class PlaceholderKeeper:
    """Keeper for the pods of one scheduler, or of others."""

    def __init__(
        self,
        snapshot: Snapshot,
        writer: PlaceholderApiWriter,
        recorder: SchedulerEventRecorder,
        metrics: Metrics,
        is_charged: Callable[[Pod], bool],
        *,
        error_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a keeper; it creates placeholders only for pods that satisfy `is_charged`."""
        self._snapshot = snapshot
        self._writer = writer
        self._recorder = recorder
        self._metrics = metrics
        self._is_charged = is_charged
        self._error_seconds = error_seconds
        self._clock = clock
        self._changed_nodes: set[str] = set()
        self._wake = asyncio.Event()
        self._limit = asyncio.Semaphore(_CONCURRENCY)
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry_at: dict[str, float] = {}
        self._last_error = ""
        #: Whether missing placeholders are created: the server is known to drop charges.
        self.creates = False

    def on_pod_event(self, old: Pod | None, new: Pod | None) -> None:
        """Note the node of a pod that has changed."""
        pod = new if new is not None else old
        assert pod is not None
        if pod.spec.node_name and (pod.spec.resource_claims or is_placeholder(pod)):
            self.compare_soon(pod.spec.node_name)

    def on_node_changed(self, old: Node | None, new: Node) -> None:
        """Note a node that is not drained any more."""
        if old is not None and is_draining(old) and not is_draining(new):
            self.compare_soon(new.metadata.name)

    def compare_soon(self, node: str) -> None:
        self._changed_nodes.add(node)
        self._wake.set()

    def compare_all_soon(self) -> None:
        self._changed_nodes.update(self._snapshot.ledger(row).name for row in self._snapshot.rows())
        self._wake.set()

    async def run(self) -> None:
        """Compare until cancelled."""
        try:
            while True:
                await self.compare_all()
                until = self._clock() + PERIOD_SECONDS
                while (rest := until - self._clock()) > 0:
                    async with at_most(rest):
                        await self._wake.wait()
                    self._wake.clear()
                    nodes, self._changed_nodes = self._changed_nodes, set()
                    self._compare(nodes)
        finally:
            await cancel_tasks(list(self._tasks))

    async def compare_all(self) -> None:
        """Compare all nodes, and delete the placeholders that have failed since."""
        self.compare_all_soon()
        nodes, self._changed_nodes = self._changed_nodes, set()
        self._compare(nodes)
        try:
            for placeholder in await self._writer.list_all():
                owner = placeholder_owner(placeholder)
                if owner is not None and (
                    placeholder.has_terminated or self._snapshot.row_of(placeholder.spec.node_name) is None
                ):
                    await self._delete(placeholder)
        except ApiError as error:
            self._report(error)

    def _compare(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            row = self._snapshot.row_of(node)
            if row is None:
                continue  # collected with the node
            ledger = self._snapshot.ledger(row)
            for placeholder in self._find_stale(row):
                start_task(self._tasks, self._write(self._delete(placeholder)))
            for pod, placeholder in self._find_missing(ledger):
                self._retry_at[placeholder.metadata.name] = self._clock() + PERIOD_SECONDS
                start_task(self._tasks, self._write(self._create(pod, placeholder)))

    def _find_stale(self, row: int) -> list[Pod]:
        """Return the placeholders of a node whose pod or claim is not in use there."""
        entries = self._snapshot.ledger(row).entries.values()
        return [
            entry.pod
            for entry in entries
            if not entry.assumed and self._snapshot.is_stale_placeholder(row, entry.pod)
        ]

    def _find_missing(self, ledger: NodeLedger) -> Iterator[tuple[Pod, Pod]]:
        """Yield the pods of a node that lack a placeholder, and the placeholder."""
        if not self.creates:
            return
        now, planned = self._clock(), set()
        self._retry_at = {name: at for name, at in self._retry_at.items() if at > now}
        for pod, placeholder in find_missing_placeholders(ledger):
            name = placeholder.metadata.name
            if name not in planned and name not in self._retry_at and self._is_charged(pod):
                planned.add(name)
                yield pod, placeholder

    async def _write(self, work: Coroutine[Any, Any, None]) -> None:
        """Make a write in its turn; once the lease is lost, the next leader makes it."""
        async with self._limit:
            with suppress(LeaseLostError):
                await work

    async def _delete(self, placeholder: Pod) -> None:
        if self._writer.is_writing(placeholder.metadata.name):
            return  # a binding needs it again; the next event of it causes a comparison
        try:
            await self._writer.delete(placeholder)
        except ApiError as error:
            self._report(error)

    async def _create(self, pod: Pod, placeholder: Pod) -> None:
        name, node = placeholder.metadata.name, placeholder.spec.node_name
        try:
            created = await self._writer.create(placeholder)
            refusal = find_refusal(await self._writer.wait_for_admission(created, ADMISSION_TIMEOUT_MS))
            if refusal:
                await self._writer.delete(created)
        except ApiError as error:
            self._report(error)
            # Other writes wait meanwhile: a server that refuses them all is not flooded.
            await asyncio.sleep(self._error_seconds)
            self._retry_at.pop(name, None)
            self.compare_soon(node)
            return
        if not refusal:
            self._metrics.placeholders_created.add()
            self._retry_at.pop(name, None)
            return
        self._metrics.placeholders_rejected.add()
        self._recorder.record(
            pod,
            "ClaimsNotCharged",
            "Binding",
            f"node {node} has no room for the charges of the pod's claims (placeholder {name}: {refusal}); "
            "move other pods from the node, or this one",
            type=WARNING,
        )

    def _report(self, error: ApiError) -> None:
        """Log an error of a write, once while it is the same."""
        if str(error) != self._last_error:
            LOG.error("placeholder pods: %s", error)
        self._last_error = str(error)
