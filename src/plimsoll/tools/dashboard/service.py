"""`DashboardService`: queries of the dashboard on two workers with the same cluster state.

Short queries go to the first worker, long ones (explain, what-if, audit) to the second, so that they do not
delay page loads. Changes of a live cluster are applied to both several times a second; each batch increases
the revision.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from plimsoll.common.tasks import at_most
from plimsoll.errors import ApiError, InputError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard import lists, nodes
from plimsoll.tools.dashboard.changes import ChangeScope, ObjectChange
from plimsoll.tools.dashboard.devices import DeviceCache
from plimsoll.tools.dashboard.event_stream import APART, EventStream
from plimsoll.tools.dashboard.findings import KEY, BackgroundAudit, run_audit
from plimsoll.tools.dashboard.history.samples import Sample, take_sample
from plimsoll.tools.dashboard.lists import ListQuery
from plimsoll.tools.dashboard.metrics import show_metrics
from plimsoll.tools.dashboard.query_worker import QueryResult, QueryWorker
from plimsoll.tools.dashboard.whatif_request import Deadline, read_plan
from plimsoll.tools.dashboard.workloads import list_workloads, workload_manifest
from plimsoll.tools.explain import explain_claim, explain_pod, summarize_pending
from plimsoll.tools.fixes import FixFinder
from plimsoll.tools.top.classes import class_rows
from plimsoll.tools.whatif import run_whatif
from plimsoll.tools.whatif.texts import group_pods

#: Timeout of long queries, in seconds.
QUERY_TIMEOUT = 30.0
#: Interval at which read errors are checked, in seconds.
_LOOK_SECONDS = 1.0


class DashboardService:
    """All queries of the page."""

    def __init__(
        self, cluster_state: ClusterState, *, live: bool = False, query_timeout: float = QUERY_TIMEOUT
    ) -> None:
        self.revision = 1
        self.live = live
        self.events = EventStream()
        #: Current read errors.
        self.read_errors: Callable[[], list[str]] = list
        self._query_timeout = query_timeout
        self._fast_worker = QueryWorker(cluster_state)
        self.slow_worker: QueryWorker | None = None
        self._node_rows = nodes.NodeRowCache()
        self._devices = DeviceCache()
        self._namespaces = lists.NamespaceCache()
        self._changed = asyncio.Event()
        self._copying = asyncio.Lock()
        self._findings = BackgroundAudit(self._get_slow_worker, self._publish_findings)

    @property
    def cluster_state(self) -> ClusterState:
        return self._fast_worker.cluster_state

    # -- updates

    def on_change(self, change: ObjectChange) -> None:
        """Queue a change."""
        self._fast_worker.on_change(change)
        if self.slow_worker is not None:
            self.slow_worker.on_change(change)
        self._changed.set()

    async def keep_up(self) -> None:
        """Apply changes until cancelled and publish them."""
        read_errors = self.read_errors()
        while True:
            async with at_most(_LOOK_SECONDS):
                await self._changed.wait()
            if self._changed.is_set():
                self._changed.clear()
                await self.catch_up()
                await asyncio.sleep(APART)
            if (now := self.read_errors()) != read_errors:
                read_errors = now
                self.events.publish(self.revision, ChangeScope(kinds={"Trouble"}))

    async def catch_up(self) -> None:
        """Apply the queued changes."""

        def entered(scope: ChangeScope) -> int:
            if scope:
                self.revision += 1
                for kept in (self._node_rows, self._devices, self._namespaces):
                    kept.invalidate(scope)
                self.events.publish(self.revision, scope)
            return self.revision

        await self._fast_worker.catch_up(entered)
        if self.slow_worker is not None and not self.slow_worker.busy:
            await self.slow_worker.catch_up(lambda _: self.revision)

    async def warm_up(self) -> None:
        """Compute the node rows before the first request."""
        await self.nodes()

    async def close(self) -> None:
        self.events.end()
        self._findings.cancel()

    # -- fast queries

    async def overview(self) -> QueryResult:
        self._findings.request(self.revision)
        findings, read_errors = self._findings.counts, self.read_errors()
        status = self.events.status

        def run_query() -> dict[str, Any]:
            extra = {"live": self.live, "status": status, "findings": findings, "troubles": read_errors}
            return {**nodes.overview(self.cluster_state, self._node_rows, self._devices), **extra}

        key = ("overview", status, tuple((findings or {}).items()), tuple(read_errors))
        return await self._fast_worker.ask(key, run_query)

    async def nodes(self) -> QueryResult:
        return await self._fast_worker.ask(
            "nodes", lambda: nodes.all_nodes(self.cluster_state, self._node_rows, self._devices)
        )

    async def node(self, name: str) -> QueryResult:
        return await self._fast_worker.ask(
            ("node", name), lambda: nodes.one_node(self.cluster_state, name, self._devices)
        )

    async def devices(self, query: ListQuery) -> QueryResult:
        return await self._fast_worker.ask(
            ("devices", query), lambda: lists.list_devices(self.cluster_state, query, self._devices)
        )

    async def pools(self, query: ListQuery) -> QueryResult:
        return await self._fast_worker.ask(
            ("pools", query), lambda: lists.list_pools(self.cluster_state, query, self._devices)
        )

    async def claims(self, query: ListQuery) -> QueryResult:
        return await self._fast_worker.ask(
            ("claims", query), lambda: lists.list_claims(self.cluster_state, query)
        )

    async def namespaces(self, query: ListQuery) -> QueryResult:
        return await self._fast_worker.ask(
            ("namespaces", query), lambda: lists.list_namespaces(self.cluster_state, query, self._namespaces)
        )

    async def take_sample(self, now: int) -> Sample:
        """Return the state of the cluster for its history."""
        return await self._fast_worker.compute(
            lambda: take_sample(self.cluster_state, self._node_rows.rows(self.cluster_state), now)
        )

    async def metrics(self) -> QueryResult:
        return await self._fast_worker.ask(
            "metrics", lambda: show_metrics(self.cluster_state, self._node_rows, self._devices)
        )

    # -- slow queries

    async def pods(self, query: ListQuery) -> QueryResult:
        if query.state != "pending":
            return await self._fast_worker.ask(
                ("pods", query), lambda: lists.list_pods(self.cluster_state, query)[0]
            )
        part = 0.8 * self._query_timeout
        return await self.run_long(
            ("pods", query),
            lambda worker: _pending(worker.cluster_state, query, time.monotonic() + part),
        )

    async def explain_pod(self, namespace: str, name: str) -> QueryResult:
        return await self.run_long(
            ("explain pod", namespace, name),
            lambda worker: explain_pod(
                worker.cluster_state, _named(worker.cluster_state.pod, name, namespace)
            ).as_json(),
        )

    async def explain_claim(self, namespace: str, name: str) -> QueryResult:
        return await self.run_long(
            ("explain claim", namespace, name),
            lambda worker: explain_claim(
                worker.cluster_state, _named(worker.cluster_state.claim, name, namespace)
            ).as_json(),
        )

    async def classes(self) -> QueryResult:
        return await self.run_long(
            "classes", lambda worker: {"classes": [row.as_json() for row in class_rows(worker.cluster_state)]}
        )

    async def workloads(self) -> QueryResult:
        return await self._fast_worker.ask("workloads", lambda: list_workloads(self.cluster_state))

    async def workload(self, namespace: str, kind: str, name: str) -> QueryResult:
        return await self._fast_worker.ask(
            ("workload", namespace, kind, name),
            lambda: workload_manifest(self.cluster_state, namespace, kind, name),
        )

    async def audit(self) -> QueryResult:
        answer = await self.run_long(KEY, run_audit)
        self._findings.record(answer)
        return answer

    async def whatif(self, plan: Any) -> QueryResult:
        request = read_plan(plan)

        def run_query(worker: QueryWorker) -> Any:
            tick = Deadline(self._query_timeout)
            result = run_whatif(worker.cluster_state, request, tick=tick, lent=True)
            return {**result.as_json(), "groups": [each.as_json() for each in group_pods(result)]}

        return await self.run_long(None, run_query)

    async def run_long(self, key: object, run_query: Callable[[QueryWorker], Any]) -> QueryResult:
        """Run a query on the slow worker. Raise ApiError if it does not begin, or does not end, in time."""
        worker = await self._get_slow_worker()
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def run() -> Any:
            loop.call_soon_threadsafe(begun.set)
            return run_query(worker)

        future = asyncio.ensure_future(worker.ask(key, run))
        future.add_done_callback(_consume_exception)
        future.add_done_callback(lambda _: begun.set())
        try:
            async with asyncio.timeout(self._query_timeout):
                await begun.wait()
        except TimeoutError:
            future.cancel()  # its result is not needed any more
            text = f"timed out after {self._query_timeout:g} s of waiting for other queries: retry later"
            raise ApiError(503, "ServiceUnavailable", text) from None
        try:
            async with asyncio.timeout(self._query_timeout):
                return await asyncio.shield(future)
        except TimeoutError:
            text = f"timed out after {self._query_timeout:g} s: reduce the request, or use the command line"
            raise ApiError(503, "ServiceUnavailable", text) from None

    async def _get_slow_worker(self) -> QueryWorker:
        async with self._copying:
            if self.slow_worker is None:
                self.slow_worker = await self._fast_worker.copy(lambda: self.revision)
            return self.slow_worker

    def _publish_findings(self) -> None:
        self.events.publish(self.revision, ChangeScope(kinds={"Finding"}))


def _pending(cluster_state: ClusterState, query: ListQuery, until: float) -> dict[str, Any]:
    """Return a page of pending pods with their reasons and, as long as there is time, their nearest fixes."""
    page, pods = lists.list_pods(cluster_state, query)
    reasons = {pod.metadata.key: why for pod, why in summarize_pending(cluster_state, pods=pods)}
    for row in page["items"]:
        row["why"] = reasons.get((row["namespace"], row["name"])) or row["why"]
    if query.fixes:
        finder = FixFinder(cluster_state)
        for pod, row in zip(pods, page["items"], strict=True):
            if time.monotonic() > until:
                break
            found = finder.find(pod)
            nearest = found.nearest
            row["fix"] = None if nearest is None else {"text": nearest.text, "proven": bool(found.fixes)}
    return page


def _named(find: Callable[[str, str], Any], name: str, namespace: str) -> Any:
    try:
        return find(name, namespace)
    except InputError as error:
        raise ApiError(404, "NotFound", str(error)) from None


def _consume_exception(future: asyncio.Future[QueryResult]) -> None:
    """Retrieve the exception of an abandoned query, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
