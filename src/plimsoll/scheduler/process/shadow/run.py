"""START HERE: `ShadowProcess`, which follows a cluster next to another scheduler and writes nothing.

Each pending pod is decided when it appears or an event may help it, and once more right before its binding is
applied to the snapshot. The second decision is compared with the binding (`comparison`). It may be based on a
state that the other scheduler did not have: if the two decisions differ, or other pods were being scheduled,
whose bindings are not known yet, the result is marked as raced.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from plimsoll.api.core import Pod
from plimsoll.client import Client, ClientConfig
from plimsoll.client.delegated_auth import secure_serving
from plimsoll.common.addresses import read_address
from plimsoll.common.health import HealthServer
from plimsoll.common.structured_log import log_event, set_up_logging
from plimsoll.common.tasks import cancel_tasks, run_until, stop_on_signals
from plimsoll.errors import PlimsollError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.devices import needs_capacity
from plimsoll.scheduler.gang.members import group_key
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import SchedulerContext
from plimsoll.scheduler.process.shadow.comparison import ShadowComparison, ShadowOutcome, compare
from plimsoll.scheduler.process.shadow.metrics import ShadowMetrics
from plimsoll.scheduler.process.shadow.report import ReportFile, ShadowReport
from plimsoll.scheduler.queue import QueuedPodInfo
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement

LOG = logging.getLogger("plimsoll.shadow")
#: Time slice of decisions before the event loop continues, and between two saves of the report (seconds).
_BATCH_SECONDS = 0.004
_SAVE_SECONDS = 10.0
STATE_CHANGED = "the state changed between arrival and binding"
OTHERS_PENDING = "other pods were being scheduled"
IN_GROUP = "a pod of a group is compared alone"


@dataclass(slots=True)
class ShadowedPod:
    """Pod that the other scheduler has not bound yet."""

    decided: str | None = None  #: node of our last decision, "" if none fits, None before the first
    refused: bool = False  #: whether the other scheduler has reported it as unschedulable
    is_reported: bool = False


class ShadowProcess:
    """Shadow of another scheduler in one cluster."""

    def __init__(
        self,
        client: Client,
        settings: SchedulerSettings,
        *,
        report: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create a shadow; `report` is the file that keeps its results."""
        self.settings = settings
        self.context = SchedulerContext.create(settings)
        self.client = client.guarded(_refuse_writes)
        self._clock = clock
        self._file = ReportFile(report, lambda text: LOG.warning("%s", text))
        self.report: ShadowReport = self._file.load([profile.name for profile in settings.profiles])
        self.pending: dict[str, ShadowedPod] = {}
        self._stop = asyncio.Event()
        self._synced = asyncio.Event()
        self.health: HealthServer | None = None
        self.metrics = ShadowMetrics(self.context.metrics, lambda: len(self.pending))
        self.context.informers.before_pod_event = self._before_pod_event

    # -- public

    def stop(self) -> None:
        """Request a stop; `run` returns when the report is written."""
        self._stop.set()
        self.context.wake_event.set()

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the caches have synced."""
        async with asyncio.timeout(timeout):
            await self._synced.wait()

    async def run(self) -> None:
        """Follow the API and compare, until `stop` or cancellation."""
        informers = asyncio.create_task(self.context.informers.run(self.client), name="informers")
        main = asyncio.create_task(self._run_until_stopped(), name="main")
        saving = asyncio.create_task(self._save_regularly(), name="report")
        try:
            await self._start_health_server()
            await asyncio.wait((informers, main), return_when=asyncio.FIRST_COMPLETED)
            if informers.done() and not main.done():
                await informers  # raises the error that ended them
            await main
        finally:
            await cancel_tasks([main, saving, informers])
            self._save()
            if self.health is not None:
                await self.health.stop()

    # -- decisions

    async def _run_until_stopped(self) -> None:
        context = self.context
        await run_until(self._stop.wait(), self._await_sync())
        self.report.start(self._clock())
        log_event(LOG, "shadowing", names=list(self.settings.by_name), pending=len(context.queue))
        self._synced.set()
        while not self._stop.is_set():
            if self._decide_batch():
                await asyncio.sleep(0)
                continue
            await context.wait_for_work()

    async def _await_sync(self) -> None:
        while not self.context.informers.synced:
            self.context.wake_event.clear()
            await self.context.wake_event.wait()

    def _decide_batch(self) -> bool:
        """Decide about pods for one time slice; return whether there was one."""
        until, worked = time.perf_counter() + _BATCH_SECONDS, False
        while time.perf_counter() < until:
            attempt = self.context.queue.pop(self.context.now())
            if attempt is None:
                break
            worked = True
            try:
                self._decide(attempt)
            except Exception:  # one pod must not stop all others
                LOG.exception("deciding about pod %s failed", attempt.pod.metadata.full_name)
                self.context.queue.retry(attempt.key, self.context.now())
        return worked

    def _decide(self, attempt: QueuedPodInfo) -> None:
        """Decide about a pod without assuming its placement: the other scheduler places it."""
        context, key = self.context, attempt.key
        pending = self.pending.setdefault(key, ShadowedPod())
        found = context.schedule(attempt.pod)
        if isinstance(found, Placement):
            pending.decided = found.node
            context.queue.done(key, context.now())
        elif isinstance(found, NodeReason):
            pending.decided = ""
            context.queue.hold(attempt.pod, found, context.now())
        else:
            pending.decided = ""
            self._wait(key, found)

    def _wait(self, key: str, found: FitError) -> None:
        context = self.context
        if found.is_error:
            context.queue.retry(key, context.now())
        else:
            context.queue.mark_unschedulable(
                key, found.rules, context.now(), needs_capacity=needs_capacity(found)
            )

    # -- what the other scheduler did

    def _before_pod_event(self, old: Pod | None, new: Pod | None) -> None:
        """Compare a binding before the snapshot has it."""
        pod = new if new is not None else old
        if pod is None or pod.spec.scheduler_name not in self.settings.by_name:
            return
        key = pod_key(pod)
        try:
            if new is None or new.has_terminated:
                self.pending.pop(key, None)
            elif new.spec.node_name:
                known = self.pending.pop(key, None)
                if old is not None and not old.spec.node_name and self._synced.is_set():
                    self._on_bound(old, new.spec.node_name, known or ShadowedPod())
            elif not new.spec.scheduling_gates:
                pending = self.pending.setdefault(key, ShadowedPod())
                pending.refused = is_unschedulable(new)
                if pending.refused and not pending.is_reported and self._synced.is_set():
                    pending.is_reported = True
                    self._record(new, self.compare(new, ""), self._races(new))
        except Exception:  # the informers must not stop
            LOG.exception("comparing pod %s failed", pod.metadata.full_name)

    def compare(self, pod: Pod, node: str) -> ShadowComparison:
        context = self.context
        return compare(pod, node, context.snapshot, context.profile(pod), context.nominations)

    def _on_bound(self, pod: Pod, node: str, known: ShadowedPod) -> None:
        found = self.compare(pod, node)
        races: list[str] = []
        if found.outcome.is_difference:
            if known.decided == node:
                # Decided equally when the pod arrived; the state has changed since then.
                found, races = ShadowComparison(ShadowOutcome.SAME, node, node), [STATE_CHANGED]
            else:
                races = self._races(pod)
                if known.decided is None or known.decided != found.ours:
                    races.insert(0, STATE_CHANGED)
        self._record(pod, found, races)

    def _races(self, pod: Pod) -> list[str]:
        """Return why the other scheduler may have had another state."""
        key = pod_key(pod)
        others = any(not pending.refused for other, pending in self.pending.items() if other != key)
        grouped = group_key(pod, self.context.snapshot.gates) is not None
        return [*([OTHERS_PENDING] if others else []), *([IN_GROUP] if grouped else [])]

    def _record(self, pod: Pod, found: ShadowComparison, races: list[str]) -> None:
        name = pod.metadata.full_name
        self.report.add(name, found, races, self._clock())
        self.metrics.add(found, pod.spec.scheduler_name, raced=bool(races))
        log_event(
            LOG,
            found.outcome.value,
            logging.INFO if found.outcome.is_difference else logging.DEBUG,
            pod=name,
            node=found.theirs,
            ours=found.ours,
            why="; ".join(found.why),
            scores=[f"{each.plugin}={each.ours}/{each.theirs}" for each in found.scores] or None,
            raced=races or None,
        )

    # -- report and health

    async def _save_regularly(self) -> None:
        await self._synced.wait()
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            self._save()

    def _save(self) -> None:
        if self._synced.is_set():
            self.report.observed_until(self._clock())
            self._file.save(self.report)

    async def _start_health_server(self) -> None:
        if not self.settings.listen:
            return
        host, port = read_address(self.settings.listen)
        self.health = HealthServer(
            live={"ping": lambda: ""},
            ready={"informer-sync": self.context.informers.sync_problem},
            metrics=self.context.metrics.expose,
            debug={"shadow": self.report.to_tree},
            secure=secure_serving(self.client, self.settings.cert_dir),
        )
        await self.health.start(host, port)
        log_event(LOG, "listening", address=f"{host}:{self.health.port}")


def is_unschedulable(pod: Pod) -> bool:
    """Return whether a scheduler has reported a pod as unschedulable."""
    return any(
        condition.type == "PodScheduled"
        and condition.status == "False"
        and condition.reason == "Unschedulable"
        for condition in pod.status.conditions
    )


def _refuse_writes() -> NoReturn:
    raise PlimsollError("a shadow writes nothing")


async def serve_shadow(
    config: ClientConfig, settings: SchedulerSettings, write_text: Callable[[str], None]
) -> None:
    """Run `plimsoll scheduler --shadow` until a signal stops it, then write the report as text."""
    set_up_logging(settings.log.format, verbose=settings.log.verbose)
    async with Client.connect(settings.client.apply(config)) as client:
        process = ShadowProcess(client, settings, report=settings.report)
        stop_on_signals(process.stop)
        await process.run()
    write_text(process.report.format_text())
