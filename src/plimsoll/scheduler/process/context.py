"""What the parts of the scheduler share.

Owns `World`: the snapshot, the queue, the promises, the settings, and what tells the time. It decides
nothing; the parts are given it so that none of them has to know how the others are made.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from uuid import uuid4

from plimsoll.api.core import Pod
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.gc_control import Memory
from plimsoll.scheduler.process.informers import Feed
from plimsoll.scheduler.process.metrics import Metrics
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queue import QueueState, SchedulingQueue
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def new_id() -> str:
    """A new ID, as shares of devices have."""
    return str(uuid4())


def now_ms() -> int:
    """Our own steady clock, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


@dataclass(slots=True)
class World:
    """One scheduler's view of one cluster."""

    settings: SchedulerSettings
    snapshot: Snapshot
    queue: SchedulingQueue
    nominations: Nominations
    metrics: Metrics
    feed: Feed
    memory: Memory
    #: Set whenever there may be something to do.
    stir: asyncio.Event
    profiles: dict[str, SchedulerProfile] = field(default_factory=dict)

    @staticmethod
    def make(settings: SchedulerSettings) -> World:
        """An empty one."""
        snapshot = Snapshot(settings.gates)
        queue = SchedulingQueue(settings.queue)
        nominations, stir = Nominations(), asyncio.Event()
        metrics = Metrics(snapshot, queue.lengths)
        feed = Feed(snapshot, queue, nominations, settings.by_name, clock=now_ms, changed=stir.set)
        memory = Memory(lambda generation, seconds: metrics.pauses.at(str(generation)).observe(seconds))
        metrics.watch("plimsoll_nominated_pods", "Pods that were promised a node.", lambda: len(nominations))
        world = World(
            settings,
            snapshot,
            queue,
            nominations,
            metrics,
            feed,
            memory,
            stir,
            dict(settings.by_name),
        )
        feed.joined, feed.woken = world.joined, world.woken
        return world

    def now(self) -> int:
        return now_ms()

    def joined(self, key: str, event: str) -> None:
        """Count a pod that joined the queue."""
        where = self.queue.state_of(key)
        if where is not None:
            self.metrics.incoming.add("gated" if where is QueueState.HELD else where.value, event)

    def woken(self, event: str, count: int, backoff: int) -> None:
        """Count pods that an event woke; so many of them have to back off first."""
        for queue, some in (("active", count - backoff), ("backoff", backoff)):
            if some:
                self.metrics.incoming.add(queue, event, count=some)

    def profile(self, pod: Pod) -> SchedulerProfile:
        """The profile a pod asks for."""
        return self.profiles.get(pod.spec.scheduler_name) or self.settings.profiles[0]
