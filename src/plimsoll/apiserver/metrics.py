"""Prometheus metrics of the API server, under kube-apiserver's names.

Requests by verb, resource and code, their duration, requests in flight and open watches; objects by resource;
figures of the store. Requests that are refused before they reach the API (without credentials, or beyond the
limits of a client) are not counted, as in kube-apiserver.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from typing import Any

from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.storage import Store
from plimsoll.apiserver.time_slices import TimeSlice
from plimsoll.common.counters import Buckets, Histogram, MetricCounter, gauge
from plimsoll.common.metrics import (
    CounterFamily,
    GaugeFamily,
    MetricFamily,
    MetricRegistry,
    ProcessMetrics,
)

_VERBS = {"create": "POST", "update": "PUT"}
_APPLY = "application/apply-patch+"
_READS = frozenset({"GET", "HEAD"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
#: kube-apiserver's buckets.
_SECONDS = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60,
)  # fmt: skip
_TARGET = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
_LONG_RUNNING = ("verb", "group", "version", "resource", "subresource", "scope", "component")


class _TargetMetrics:
    """Metrics of requests whose labels are equal: the labels, and with each status code."""

    __slots__ = ("counts", "duration", "labels")

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels
        self.counts: dict[int, tuple[str, ...]] = {}
        self.duration: Buckets | None = None


class _CountedFrames(AsyncGenerator[bytes, None]):
    """Frames of a watch that is counted from the start of the iteration until it is closed.

    Iterating over it iterates over the frames themselves, so that no event costs more.
    """

    def __init__(
        self, frames: AsyncGenerator[bytes, None], counts: Counter[tuple[str, ...]], labels: tuple[str, ...]
    ) -> None:
        self._frames, self._counts, self._labels = frames, counts, labels
        self._is_counted = False

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        if not self._is_counted:
            self._is_counted = True
            self._counts[self._labels] += 1
        return self._frames

    def __anext__(self) -> Coroutine[Any, Any, bytes]:
        return aiter(self).__anext__()

    def asend(self, value: None) -> Coroutine[Any, Any, bytes]:
        return aiter(self).asend(value)

    def athrow(self, *error: Any) -> Coroutine[Any, Any, bytes]:
        return self._frames.athrow(*error)

    async def aclose(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._counts[self._labels] -= 1
        await self._frames.aclose()


class RequestMetrics:
    """Metrics of the requests to one API; `expose` renders them with those of its store."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.perf_counter) -> None:
        self._store = store
        self.clock = clock
        self._in_flight = {"readOnly": 0, "mutating": 0}
        self._watches: Counter[tuple[str, ...]] = Counter()
        self._targets: dict[tuple[object, ...], _TargetMetrics] = {}
        self.requests = MetricCounter(
            "apiserver_request_total",
            "Number of requests, by verb, dry run value, group, version, resource, subresource, "
            "scope, component and HTTP status code.",
            (*_TARGET, "code"),
        )
        self.duration = Histogram(
            "apiserver_request_duration_seconds",
            "Duration of requests in seconds, by verb, dry run value, group, version, resource, "
            "subresource, scope and component.",
            _SECONDS,
            _TARGET,
        )
        self.registry = MetricRegistry()
        self.registry.register(self)
        self.registry.register(ProcessMetrics())

    def start(self, request: ApiRequest) -> float:
        """Count a request that is in flight; return the time for `finish`."""
        self._in_flight["readOnly" if request.method in _READS else "mutating"] += 1
        return self.clock()

    def finish(
        self, request: ApiRequest, info: RequestInfo | None, response: ApiResponse, start: float
    ) -> None:
        """Record the response to a request; for a watch, also count it until it ends."""
        self._in_flight["readOnly" if request.method in _READS else "mutating"] -= 1
        target = self._find_target(request, info)
        count = target.counts.get(response.status)
        if count is None:
            count = target.counts[response.status] = (*target.labels, str(response.status))
        counts = self.requests.values
        counts[count] = counts.get(count, 0) + 1
        if info is None or info.verb != "watch":
            if target.duration is None:
                target.duration = self.duration.at(*target.labels)
            target.duration.observe(self.clock() - start)
        elif not isinstance(response.body, bytes):
            verb, _, *rest = target.labels
            response.body = _CountedFrames(response.body, self._watches, (verb, *rest))

    def _find_target(self, request: ApiRequest, info: RequestInfo | None) -> _TargetMetrics:
        """Return the metrics of requests with the same labels; the labels are made once."""
        key: tuple[object, ...]
        if info is None:
            key = (request.method if request.method in _METHODS else "",)
        else:
            applies = info.verb == "patch" and request.header("content-type").startswith(_APPLY)
            dry_run = bool(request.query) and any(name == "dryRun" for name, _ in request.query)
            scope = 2 if info.name or info.verb == "create" else 1 if info.namespace else 0
            key = info.resource, info.version, info.verb, info.subresource, scope, applies, dry_run
        found = self._targets.get(key)
        if found is None:
            found = self._targets[key] = _TargetMetrics(_labels(request, info))
        return found

    async def expose(self, time_slice: TimeSlice) -> bytes:
        """Return the metrics page, yielding to other requests while it is rendered."""
        parts = []
        for part in self.registry.parts():
            parts.append(part)
            if time_slice.is_expired:
                await time_slice.pause()
        return b"".join(parts)

    def collect(self) -> Iterator[MetricFamily]:
        """Yield all families; those with many samples in parts, so that rendering one takes little time."""
        yield from self.requests.parts()
        yield from self.duration.parts()
        yield gauge(
            "apiserver_current_inflight_requests",
            "Number of requests that are being processed, by kind.",
            "request_kind",
            self._in_flight,
        )
        watches = GaugeFamily(
            "apiserver_longrunning_requests", "Number of open watches.", labels=_LONG_RUNNING
        )
        for labels, count in self._watches.items():
            watches.add(labels, count)
        yield watches
        counts = self._store.counts()
        yield gauge(
            "apiserver_storage_objects",
            "Number of stored objects, by resource.",
            "resource",
            {resource: count for resource, (count, _) in counts.items()},
        )
        yield gauge(
            "apiserver_resource_size_estimate_bytes",
            "Size of the stored objects, by resource.",
            "resource",
            {resource: size for resource, (_, size) in counts.items()},
        )
        yield from self._store_figures()

    def _store_figures(self) -> Iterator[MetricFamily]:
        stats = self._store.stats()
        yield GaugeFamily("plimsoll_store_revision", "Newest revision.", value=stats.revision)
        yield GaugeFamily(
            "plimsoll_store_undurable_revisions",
            "Revisions that are not on disk yet.",
            value=stats.revision - stats.durable,
        )
        yield GaugeFamily("plimsoll_store_events", "Events kept for watches.", value=stats.events)
        yield GaugeFamily(
            "plimsoll_store_event_bytes", "Size of the events kept for watches.", value=stats.event_bytes
        )
        yield GaugeFamily("plimsoll_store_file_bytes", "Size of the database.", value=stats.file_bytes)
        yield CounterFamily("plimsoll_store_commits_total", "Commits to disk.", value=stats.commits)
        yield CounterFamily("plimsoll_store_commit_failures_total", "Failed commits.", value=stats.failures)


def expose_checks(results: Mapping[tuple[str, str], bool]) -> bytes:
    """Return the page of service level indicators: the results of health checks by name and endpoint."""
    family = GaugeFamily(
        "kubernetes_healthcheck", "Result of a health check: 1 if it passes.", labels=("name", "type")
    )
    for labels, passes in results.items():
        family.add(labels, float(passes))
    return family.render().encode()


def _labels(request: ApiRequest, info: RequestInfo | None) -> tuple[str, ...]:
    """Return the values of the target's labels; unknown methods share one value, so that they are bounded."""
    if info is None:
        method = request.method if request.method in _METHODS else "other"
        return (method, "", "", "", "", "", "", "apiserver")
    verb = _VERBS.get(info.verb, info.verb.upper())
    if info.verb == "patch" and request.header("content-type").startswith(_APPLY):
        verb = "APPLY"
    dry_run = "All" if any(name == "dryRun" for name, _ in request.query) else ""
    scope = "resource" if info.name or info.verb == "create" else "namespace" if info.namespace else "cluster"
    return (
        verb, dry_run, info.group, info.version, info.plural, info.subresource, scope, "apiserver",
    )  # fmt: skip
