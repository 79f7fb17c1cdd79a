"""Context shared by the parts of the scheduler process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from uuid import uuid4

from plimsoll.api.core import Pod
from plimsoll.client.stored_fields import StoredFields
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.cycle import schedule_pod
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.gc_control import GCControl
from plimsoll.scheduler.process.informers import SchedulerInformers
from plimsoll.scheduler.process.metrics import Metrics, describe_stored_fields
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queue import QueueState, SchedulingQueue
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Feature that kubelets declare if they read claim charges in the 1.37 form.
NEW_FORM_FEATURE = "DRANodeAllocatableResources"
#: Longest wait without an event (seconds).
_MAX_WAIT_SECONDS = 1.0


def new_id() -> str:
    """Return a new UID, for shares of devices."""
    return str(uuid4())


def now_ms() -> int:
    """Return the monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


@dataclass(slots=True)
class SchedulerContext:
    """Snapshot, queue, nominations, settings, metrics and informers of one scheduler."""

    settings: SchedulerSettings
    snapshot: Snapshot
    queue: SchedulingQueue
    nominations: Nominations
    metrics: Metrics
    informers: SchedulerInformers
    gc_control: GCControl
    #: Set whenever there may be work.
    wake_event: asyncio.Event
    #: Minor version of the API server; messages are those of kube-scheduler of that release.
    server_minor: int = 36
    #: Fields that the API server stores, as of the last probe.
    stored_fields: StoredFields = field(default_factory=StoredFields)
    profiles: dict[str, SchedulerProfile] = field(default_factory=dict)
    #: Nodes whose kubelets have just rejected what a pod would charge, by the pod's key.
    _rejected_by: dict[str, set[str]] = field(default_factory=dict)

    @staticmethod
    def create(settings: SchedulerSettings) -> SchedulerContext:
        """Create an empty context."""
        snapshot = Snapshot(settings.gates)
        queue = SchedulingQueue(settings.queue, settings.by_name)
        nominations, wake_event = Nominations(), asyncio.Event()
        metrics = Metrics(snapshot, queue.lengths)
        informers = SchedulerInformers(
            snapshot, queue, nominations, settings.by_name, clock=now_ms, changed=wake_event.set
        )
        gc_control = GCControl(
            lambda generation, seconds: metrics.pauses.at(str(generation)).observe(seconds)
        )
        metrics.watch(
            "plimsoll_nominated_pods", "Number of pods with a nominated node.", lambda: len(nominations)
        )
        context = SchedulerContext(
            settings,
            snapshot,
            queue,
            nominations,
            metrics,
            informers,
            gc_control,
            wake_event,
            profiles=dict(settings.by_name),
        )
        metrics.add_family(lambda: describe_stored_fields(context.stored_fields))
        informers.on_pod_queued, informers.on_pods_woken = context.count_queued, context.count_woken
        return context

    def now(self) -> int:
        return now_ms()

    async def wait_for_work(self, *, takes_pods: bool = True) -> None:
        """Wait for an event, or until a pod's backoff has expired if pods are taken."""
        due = self.queue.next_due(self.now()) if takes_pods else None
        seconds = _MAX_WAIT_SECONDS if due is None else min(_MAX_WAIT_SECONDS, due / 1000)
        self.wake_event.clear()
        try:
            async with asyncio.timeout(seconds):
                await self.wake_event.wait()
        except TimeoutError:
            pass

    def count_queued(self, key: str, event: str) -> None:
        """Count a pod that was added to the queue."""
        where = self.queue.state_of(key)
        if where is not None:
            self.metrics.incoming.add("gated" if where is QueueState.HELD else where.value, event)

    def count_woken(self, event: str, count: int, backoff: int) -> None:
        """Count pods that an event moved; `backoff` of them to the backoff queue."""
        for queue, some in (("active", count - backoff), ("backoff", backoff)):
            if some:
                self.metrics.incoming.add(queue, event, count=some)

    def reads_new_form(self, node: str) -> bool:
        """Return whether the kubelet of a node reads claim charges in the 1.37 form."""
        row = self.snapshot.row_of(node)
        return row is not None and NEW_FORM_FEATURE in self.snapshot.node(row).status.declared_features

    def schedule(self, pod: Pod, observer: CycleObserver | None = None) -> Placement | FitError | NodeReason:
        """Run a scheduling attempt with the profile of a pod; nodes that rejected it come last."""
        profile, key = self.profile(pod), pod_key(pod)
        if key in self._rejected_by:
            allowed = self.snapshot.alive.copy()
            for node in self._rejected_by[key]:
                if (row := self.snapshot.row_of(node)) is not None:
                    allowed[row] = False
            outcome = schedule_pod(
                pod, self.snapshot, profile, new_id, self.nominations, observer, allowed=allowed
            )
            if isinstance(outcome, Placement):
                return outcome
            self.forget_rejections(key)
        return schedule_pod(pod, self.snapshot, profile, new_id, self.nominations, observer)

    def on_rejected(self, key: str, node: str) -> None:
        """Try the other nodes first when a pod is attempted again."""
        self._rejected_by.setdefault(key, set()).add(node)

    def forget_rejections(self, key: str) -> None:
        self._rejected_by.pop(key, None)

    def profile(self, pod: Pod) -> SchedulerProfile:
        """Return the profile that a pod selects by its scheduler name."""
        return self.profiles.get(pod.spec.scheduler_name) or self.settings.profiles[0]
