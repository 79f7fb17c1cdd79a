"""`BackgroundAudit`: number of audit findings, computed without delaying queries.

An audit takes seconds in a large cluster. It runs while its worker is idle, yields to queries, and runs again
only after a pause many times as long as it took. After several yields it runs to completion. Its result also
serves the audit page.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from plimsoll.api import codec
from plimsoll.errors import ApiError
from plimsoll.tools.audit import audit
from plimsoll.tools.audit.checks import CHECKS
from plimsoll.tools.audit.findings import Check
from plimsoll.tools.dashboard.query_worker import QueryResult, QueryWorker

_log = logging.getLogger("plimsoll.dashboard")
#: Cache key of the audit query.
KEY = "audit"
#: Pause after an audit: a multiple of its duration, and a minimum in seconds.
REST_PART, REST_SECONDS = 20.0, 5.0
#: Audits shorter than this do not yield.
SHORT_SECONDS = 0.2
#: An audit that yielded is retried after this many seconds, doubled each time; the last try does not yield.
AGAIN_SECONDS, TRIES = 1.0, 6


class BackgroundAudit:
    """Finding counts by severity as of the last audit; None before the first."""

    def __init__(
        self,
        worker: Callable[[], Awaitable[QueryWorker]],
        on_counts_changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call `on_counts_changed` when the counts change."""
        self.counts: dict[str, int] | None = None
        self._worker = worker
        self._on_counts_changed = on_counts_changed
        self._clock = clock
        self._requested = -1  #: latest revision whose findings were requested
        self.audited = -1
        self.due = 0.0
        self._yielded = 0
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    def request(self, revision: int) -> None:
        """Request the counts of a revision: audit now or when it is due."""
        self._requested = revision
        self.start_if_due()

    def start_if_due(self) -> None:
        """Start the audit if it is requested and due, else schedule it."""
        running = self.task is not None and not self.task.done()
        if running or self._requested <= self.audited:
            return
        if (wait := self.due - self._clock()) <= 0:
            self.task = asyncio.create_task(self._run(), name="dashboard: audit")
        else:
            self._schedule(wait)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.timer is not None:
            self.timer.cancel()

    def _schedule(self, seconds: float) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(seconds + 0.01, self.start_if_due)

    async def _run(self) -> None:
        began = self._clock()
        try:
            worker = await self._worker()
            yields = self._yielded + 1 < TRIES
            answer = await worker.ask(KEY, lambda: run_audit(worker, yields=yields))
        except ApiError:  # it yielded to other queries
            pause = AGAIN_SECONDS * 2**self._yielded
            self.due = self._clock() + pause
            self._yielded = min(self._yielded + 1, TRIES)
            self._schedule(pause)
            return
        except Exception as error:  # not retried before something changes
            self.audited = self._requested
            _log.error("audit failed: %s", error, exc_info=error)
            return
        self._yielded = 0
        pause = max(REST_SECONDS, REST_PART * (self._clock() - began))
        self.due = self._clock() + pause
        self._schedule(pause)
        self.record(answer)

    def record(self, answer: QueryResult) -> None:
        """Record the result of an audit, including one requested by the page."""
        self.audited = max(self.audited, answer.revision)
        counts: dict[str, int] = codec.decode_tree(answer.body)["summary"]
        if counts != self.counts:
            self.counts = counts
            self._on_counts_changed()


def run_audit(worker: QueryWorker, *, yields: bool = False) -> Any:
    """Audit the worker's cluster state. Raise ApiError if it yields to another query."""

    def checks() -> Iterator[Check]:
        began = time.monotonic()
        for check in CHECKS:
            long = time.monotonic() - began >= SHORT_SECONDS
            if yields and long and worker.has_other_queries(KEY):
                raise ApiError(503, "ServiceUnavailable", "the audit yielded to another query")
            yield check

    report = audit(worker.cluster_state, checks=checks())
    return {**report.as_json(), "titles": {check.id: check.title for check in report.checks}}
