"""START HERE: flow controller: classifies each request, and lets it wait until its priority level has seats.

The FlowSchema that matches first decides the priority level and the flow (`matching.py`); the level's queue
set shares its seats between the flows (`queue_set.py`); the levels borrow seats from each other
(`seat_demand.py`). A change of the configuration takes effect with the next request. A request that waits too
long, or finds its queue full, is rejected with 429 and Retry-After.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from plimsoll.apiserver.flowcontrol.configuration import (
    FLOW_SCHEMAS,
    LEVELS,
    FlowConfiguration,
    FlowSchema,
    read_configuration,
)
from plimsoll.apiserver.flowcontrol.flow_metrics import FlowMetrics
from plimsoll.apiserver.flowcontrol.matching import RequestDigest, matches_flow_schema
from plimsoll.apiserver.flowcontrol.queue_set import QueueSet, SeatRequest
from plimsoll.apiserver.flowcontrol.retry_after import RetryAfter
from plimsoll.apiserver.flowcontrol.seat_demand import ADJUSTMENT_SECONDS, SeatLimits, adjust_limits
from plimsoll.apiserver.flowcontrol.work_estimate import estimate_seats, max_seats
from plimsoll.apiserver.handlers.options import first_values, parse_timeout
from plimsoll.apiserver.registry.flow_control_objects import CATCH_ALL, EXEMPT
from plimsoll.apiserver.request import ApiRequest, encode_header_lines
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import too_many_requests
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.apiserver.time_slices import REQUEST_SECONDS
from plimsoll.common.counters import Buckets
from plimsoll.errors import ApiError

#: A request may wait for this part of its time.
_WAIT_PART = 4
#: Requests that last as long as their client wants hold no seats.
_LONG_RUNNING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_MAX_CLASSIFIED = 5_000
#: Longer paths are not kept, since clients choose them.
_MAX_PATH = 256
_TOO_MANY = "Too many requests, please try again later."


class _LimitedMetrics(NamedTuple):
    """Histograms of requests that may have to wait."""

    work: Buckets
    wait: Buckets
    queue_length: Buckets | None  #: None at levels without queues


class _Classification(NamedTuple):
    """Result of classification, kept for all requests of a user to the same target."""

    schema: FlowSchema
    queue_set: QueueSet
    headers: Mapping[str, str]
    header_lines: bytes  #: the same, encoded
    most_seats: int
    labels: tuple[str, str]  #: level and schema
    executed: Buckets  #: histogram of the time that these requests hold their seats
    limited: _LimitedMetrics | None  #: None at exempt levels


class HeldSeats:
    """Seats of a request, until `release`; `headers` are those of its response, `header_lines` the same
    encoded.
    """

    __slots__ = ("_classified", "_request", "header_lines", "headers")

    def __init__(self, classified: _Classification | None, request: SeatRequest | None) -> None:
        self._classified, self._request = classified, request
        self.headers: Mapping[str, str] = classified.headers if classified is not None else {}
        self.header_lines = classified.header_lines if classified is not None else b""

    def release(self) -> None:
        """Return the seats; a second call does nothing."""
        if self._classified is not None and self._request is not None:
            held = self._classified.queue_set.finish(self._request)
            self._classified.executed.observe(held)
            self._request = None


_NO_SEATS = HeldSeats(None, None)


class FlowController:
    """Priority and fairness of one server with `total` seats."""

    def __init__(self, store: Store, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._total, self._clock = store, total, clock
        self._configuration = FlowConfiguration({}, ())
        self.queue_sets: dict[str, QueueSet] = {}
        self.limits: dict[str, SeatLimits] = {}
        self.metrics = FlowMetrics(self.queue_sets, self.limits)
        self._retry_after: dict[str, RetryAfter] = {}
        self._classified: dict[tuple[object, ...], _Classification] = {}
        self._names_namespaces = False
        self._outdated = True
        #: What the configuration depends on, of each object that was written.
        self._relevant: dict[ObjectKey, tuple[object, object]] = {}
        #: Set when a FlowSchema or PriorityLevelConfiguration was written.
        self.changed = asyncio.Event()
        store.observe(self._observe)

    def _observe(self, key: ObjectKey, tree: dict[str, Any] | None) -> None:
        if key.resource not in (FLOW_SCHEMAS, LEVELS):
            return
        self.changed.set()
        # A write of the status alone, as that of the condition Dangling, does not change the configuration.
        relevant = (tree["metadata"].get("uid"), tree.get("spec")) if tree else None
        if relevant is None or relevant != self._relevant.get(key):
            self._outdated = True
        if relevant is None:
            self._relevant.pop(key, None)
        else:
            self._relevant[key] = relevant

    @property
    def configuration(self) -> FlowConfiguration:
        """Return the current configuration."""
        if self._outdated:
            self._reload()
        return self._configuration

    async def acquire(self, request: ApiRequest) -> HeldSeats:
        """Wait for the seats of a request; ApiError 429 if there are none in time."""
        info = request.info
        if info is not None and info.subresource in _LONG_RUNNING:
            return _NO_SEATS
        if self._outdated:
            self._reload()
        classified = self._classify(request, info)
        schema, queue_set, limited = classified.schema, classified.queue_set, classified.limited
        dispatched, labels = self.metrics.dispatched.values, classified.labels
        if limited is None:
            started = queue_set.start(schema.name, "", 1)
            dispatched[labels] = dispatched.get(labels, 0) + 1
            return HeldSeats(classified, started)
        query, headers = first_values(request.query), classified.headers
        seats = estimate_seats(info, query, self._store, classified.most_seats)
        limited.work.observe(seats)
        started = queue_set.start(schema.name, _flow(schema, request), seats)
        if started is None:
            reason = "concurrency-limit" if limited.queue_length is None else "queue-full"
            raise self._rejection(*labels, reason, headers)
        waited = 0.0
        if limited.queue_length is not None:
            limited.queue_length.observe(queue_set.queue_length(started))
        if started.granted is not None:
            waited = await self._wait(started, _wait_seconds(info, query), headers)
        limited.wait.observe(waited)
        dispatched[labels] = dispatched.get(labels, 0) + 1
        return HeldSeats(classified, started)

    async def _wait(self, request: SeatRequest, seconds: float, headers: Mapping[str, str]) -> float:
        """Wait for seats; return how long that took. ApiError 429."""
        since = self._clock()
        assert request.granted is not None
        try:
            async with asyncio.timeout(seconds):
                await request.granted
        except BaseException as interruption:
            request.queue_set.cancel(request)
            level, schema = request.queue_set.level.name, request.schema
            self.metrics.wait(level, schema, execute=False).observe(self._clock() - since)
            if isinstance(interruption, TimeoutError):
                raise self._rejection(level, schema, "time-out", headers) from None
            raise
        return self._clock() - since

    def _rejection(self, level: str, schema: str, reason: str, headers: Mapping[str, str]) -> ApiError:
        self.metrics.rejected.add(level, schema, reason)
        wait = self._retry_after.setdefault(level, RetryAfter()).note_rejection(self._clock())
        error = too_many_requests(_TOO_MANY, wait)
        error.headers = {**error.headers, **headers}
        return error

    # -- classification

    def classify(self, digest: RequestDigest) -> FlowSchema:
        """Return the FlowSchema of a request: the first that matches."""
        schemas = self.configuration.flow_schemas
        for schema in schemas:
            if matches_flow_schema(digest, schema):
                return schema
        return next(schema for schema in schemas if schema.name == CATCH_ALL)

    def _classify(self, request: ApiRequest, info: RequestInfo | None) -> _Classification:
        key: tuple[object, ...]
        if info is None:
            key = request.user, request.method, request.path
        else:
            # Usually only whether there is a namespace counts, not which one.
            place = _namespace(info) if self._names_namespaces else (not info.namespace, not info.name)
            key = request.user, info.verb, info.resource, info.subresource, place
        found = self._classified.get(key)
        if found is None:
            if len(self._classified) >= _MAX_CLASSIFIED:
                self._classified.clear()
            found = self._classify_anew(_digest(request, info))
            if len(request.path) <= _MAX_PATH:
                self._classified[key] = found
        return found

    def _classify_anew(self, digest: RequestDigest) -> _Classification:
        schema = self.classify(digest)
        queue_set = self.queue_sets[schema.level]
        level = queue_set.level
        headers = {
            "X-Kubernetes-PF-FlowSchema-UID": schema.uid,
            "X-Kubernetes-PF-PriorityLevel-UID": level.uid,
        }
        labels, metrics = (level.name, schema.name), self.metrics
        most = max_seats(level, self.limits[level.name].nominal)
        executed = metrics.execution(*labels, is_watch=digest.verb == "watch")
        limited = None
        if not level.is_exempt:
            queue_length = metrics.queue_length(*labels) if level.queues else None
            limited = _LimitedMetrics(
                metrics.work(*labels), metrics.wait(*labels, execute=True), queue_length
            )
        lines = encode_header_lines(headers)
        return _Classification(schema, queue_set, headers, lines, most, labels, executed, limited)

    # -- configuration and limits

    def _reload(self) -> None:
        """Read the configuration. A level that was removed finishes the requests it has."""
        self._outdated = False
        configuration = self._configuration = read_configuration(self._store)
        self._classified.clear()
        self._names_namespaces = any(
            rule.namespaces != ("*",)
            for schema in configuration.flow_schemas
            for rules in schema.rules
            for rule in rules.resource_rules
        )
        for name in [name for name in self.queue_sets if name not in configuration.levels]:
            del self.queue_sets[name], self.limits[name]
            self._retry_after.pop(name, None)
        shares = sum(level.shares for level in configuration.levels.values())
        for name, level in configuration.levels.items():
            if name not in self.queue_sets:
                self.queue_sets[name], self.limits[name] = QueueSet(level, self._clock), SeatLimits()
            self.queue_sets[name].configure(level)
            self.limits[name].configure(level, self._total, max(shares, 1))
        self.adjust()

    def adjust(self) -> None:
        """Compute the limits of all levels from their demand since the last call."""
        now = self._clock()
        for name, limits in self.limits.items():
            limits.note(self.queue_sets[name].demand.reset(now))
        self.metrics.fair_fraction = adjust_limits(self.limits, EXEMPT)
        for name, limits in self.limits.items():
            self.queue_sets[name].set_limit(limits.current)

    async def run_adjustment(self) -> None:
        """Adjust the limits periodically."""
        while True:
            await asyncio.sleep(ADJUSTMENT_SECONDS)
            if not self._outdated:
                self.adjust()


def _digest(request: ApiRequest, info: RequestInfo | None) -> RequestDigest:
    if info is None:
        return RequestDigest(request.user, request.method.lower(), path=request.path or "/")
    resource = f"{info.plural}/{info.subresource}" if info.subresource else info.plural
    return RequestDigest(
        request.user, info.verb, group=info.group, resource=resource, namespace=_namespace(info)
    )


def _namespace(info: RequestInfo) -> str:
    return info.name if info.plural == "namespaces" and not info.group else info.namespace


def _flow(schema: FlowSchema, request: ApiRequest) -> str:
    """Return what distinguishes the flow of a request from others of its FlowSchema."""
    if schema.distinguisher == "ByUser":
        return request.user.name
    if schema.distinguisher == "ByNamespace" and request.info is not None:
        return _namespace(request.info)
    return ""


def _wait_seconds(info: RequestInfo | None, query: Mapping[str, str]) -> float:
    """Return how long a request may wait: a quarter of its time."""
    seconds = REQUEST_SECONDS
    if "timeout" in query and (info is None or info.verb != "watch"):
        with suppress(ApiError):  # the request is rejected for that
            seconds = min(seconds, parse_timeout(query["timeout"]) or seconds)
    return seconds / _WAIT_PART
