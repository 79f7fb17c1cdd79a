"""START HERE: the scheduler, from the first listing to the last binding.

`SchedulerProcess` puts all parts together on one event loop: the feed follows the API all the time; once
everything is listed, and while we lead (if several replicas stand by for each other), the loop schedules.
Nothing is decided before everything is known and nothing of a previous leader can land any more
(`takeover.py`). A leader that loses its lease writes nothing more and `run` raises LeaseLostError: the
process ends, as kube-scheduler's does, and whoever supervises it starts a new one. A scheduler that is asked
to stop takes no more pods, waits for the bindings under way, and releases the lease if all of them were
answered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.client import Client, ClientConfig
from plimsoll.client.leader_election import Election
from plimsoll.common.addresses import read_address
from plimsoll.common.health import HealthServer
from plimsoll.common.structured_log import log_event, set_up_logging
from plimsoll.errors import LeaseLostError
from plimsoll.scheduler.binding.device_check import find_device_conflict
from plimsoll.scheduler.process.api_writer import ApiWriter, Charging
from plimsoll.scheduler.process.binder import Bindings, Done
from plimsoll.scheduler.process.configuration import NAME, SchedulerSettings
from plimsoll.scheduler.process.context import World
from plimsoll.scheduler.process.debug_pages import show_ledger, show_queue
from plimsoll.scheduler.process.event_recorder import Recorder
from plimsoll.scheduler.process.failure_handler import Aftermath
from plimsoll.scheduler.process.loop import Loop
from plimsoll.scheduler.process.periodic import keep_up, mend
from plimsoll.scheduler.process.takeover import take_over

LOG = logging.getLogger("plimsoll.scheduler")

#: Nodes whose devices are read before others get their turn.
_READ_AT_ONCE = 20
#: How long events may still be written when all else is done (seconds).
_LAST_WORDS = 1.0
#: How long the first pod waits at most for what another scheduler left half done (seconds).
_MEND_SECONDS = 5.0
#: Calls that must not wait for bindings: leases, conditions, events.
_BESIDE_BINDINGS = 64


class SchedulerProcess:
    """One scheduler; `run` it on the loop it is to live on."""

    def __init__(
        self, client: Client, settings: SchedulerSettings, *, identity: str = "", alone: bool = False
    ) -> None:
        """`alone`: this process does nothing else, and its garbage is collected when the loop has time."""
        self.settings = settings
        self.identity = identity or f"{socket.gethostname()}_{uuid4()}"
        self.world = World.make(settings)
        self._client = client
        self._alone = alone
        guarded = client.guarded(self._check_lease)
        self.writer = ApiWriter(guarded, Charging(settings.wire_form))
        self.recorder = Recorder(
            client,
            controller=settings.profiles[0].name,
            instance=f"{NAME}-{socket.gethostname()}",
            is_busy=lambda: self.loop is not None and self.loop.in_flight > 0,
        )
        self.aftermath = Aftermath(self.world, guarded, self.writer, self.recorder, self._heard)
        self.world.feed.left = self.aftermath.leave
        self.world.feed.claim_changed = self.writer.waits.tell
        self.loop: Loop | None = None
        #: Whether a next leader need not fence: nothing is under way, of ours or of our predecessor.
        self._settled = True
        self._election: Election | None = None
        self._stop = asyncio.Event()
        self._synced = asyncio.Event()
        self._scheduling = asyncio.Event()
        self.health: HealthServer | None = None

    # -- from outside

    def stop(self) -> None:
        """Ask for an orderly end; `run` returns when it is reached."""
        self._stop.set()
        if self.loop is not None:
            self.loop.stop()

    @property
    def leading(self) -> bool:
        """Whether it is us who schedule."""
        return self.loop is not None

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until everything is listed and, unless others lead, scheduling has begun."""
        async with asyncio.timeout(timeout):
            await (self._synced if self.settings.election.elect else self._scheduling).wait()

    # -- the story

    async def run(self) -> None:
        """Follow, wait for the lease, schedule; until `stop`, or until cancelled."""
        try:
            await self._open_pages()
            await self._accompanied(self._live())
        finally:
            self.world.memory.end()
            if self.health is not None:
                await self.health.stop()

    async def _live(self) -> None:
        """From the first listing to the end of the last binding."""
        await self._or_stopped(self._await_sync())
        if self._stop.is_set():
            return
        await self._warm_up()
        if self._alone:
            self.world.memory.begin()
        log_event(LOG, "synced", nodes=len(self.world.snapshot), pending=len(self.world.queue))
        self._synced.set()
        if not self.settings.election.elect:
            await self._lead()
            return
        where = self.settings.election
        self._election = Election(
            self._client,
            where.namespace,
            where.name,
            self.identity,
            timing=where.timing,
            settled=lambda: self._settled,
        )
        await self._or_stopped(self._election.run(self._lead), patience=self.settings.stop_seconds + 5)

    async def _warm_up(self) -> None:
        """Read the devices of all nodes, so that the first pods need not wait for that."""
        snapshot = self.world.snapshot
        for count, row in enumerate(snapshot.rows(), 1):
            node = snapshot.nodes[row]
            if node is not None:
                snapshot.inventory.devices_for(node)
            if not count % _READ_AT_ONCE:
                await asyncio.sleep(0)

    async def _lead(self) -> None:
        """Schedule; cancelled when the lease is lost."""
        log_event(LOG, "leading", identity=self.identity, names=list(self.settings.by_name))
        election = self._election
        may_decide = election.holds if election is not None else _always
        loop = self.loop = Loop(self.world, self.aftermath, self._bindings, may_decide=may_decide)
        if self._stop.is_set():
            loop.stop()
        upkeep = asyncio.create_task(keep_up(self.aftermath))
        self._settled = taken_over = False
        try:
            await self._take_over()
            taken_over = True
            await self._mend()
            self._scheduling.set()
            await loop.run(self.settings.stop_seconds)
        finally:
            self.loop = None
            self._settled = taken_over and not loop.cancelled
            await _cancel([upkeep])
            log_event(LOG, "stopped leading", identity=self.identity)

    async def _take_over(self) -> None:
        """End what a previous leader may have left under way.

        Without an election nobody schedules beside us: what was listed at the start is up to date.
        """
        election = self._election
        await take_over(
            self.world.feed,
            lambda: list(self.world.snapshot.all(ResourceClaim)),
            self.writer,
            self._is_ours,
            self._heard,
            refresh=election is not None,
            fence=election is None or not election.was_released,
        )

    def _check_lease(self) -> None:
        if self._election is not None:
            self._election.check()

    async def _mend(self) -> None:
        """Put right what somebody before us left half done; what that takes too long for is left, too."""
        claims = list(self.world.snapshot.all(ResourceClaim))
        with suppress(TimeoutError):
            async with asyncio.timeout(_MEND_SECONDS):
                await mend(claims, self.world.feed.pods(), self.writer, self._heard, self._is_ours)

    def _is_ours(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name in self.world.profiles

    def _bindings(self, done: Done) -> Bindings:
        return Bindings(
            self.writer,
            self._heard,
            done,
            find_conflict=partial(find_device_conflict, self.world.snapshot),
            limit=self.settings.binds,
        )

    def _heard(self, claim: ResourceClaim) -> None:
        """An answer to a write tells of a claim before the watch does, unless it comes after its end."""
        known = self.world.snapshot.claim(claim.metadata.namespace, claim.metadata.name)
        if known is not None and known.metadata.uid == claim.metadata.uid:
            self.world.snapshot.set(claim)

    # -- what runs beside

    async def _accompanied(self, story: Coroutine[Any, Any, None]) -> None:
        """Do something with feed and recorder beside it; the feed's end is the end of all."""
        feed = asyncio.create_task(self.world.feed.run(self._client), name="feed")
        recorder = asyncio.create_task(self.recorder.run(), name="recorder")
        main = asyncio.create_task(story, name="story")
        try:
            await asyncio.wait((feed, main), return_when=asyncio.FIRST_COMPLETED)
            if feed.done() and not main.done():
                await _cancel([main])
                await feed  # raises what ended it
            await main
            await self.recorder.flush(_LAST_WORDS)
        finally:
            await _cancel([main, recorder, feed])

    async def _await_sync(self) -> None:
        while not self.world.feed.synced:
            self.world.stir.clear()
            await self.world.stir.wait()

    async def _or_stopped(self, work: Coroutine[Any, Any, None], patience: float = 0.0) -> None:
        """Do something until it ends or we are asked to stop, and then for so long at most."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and self.loop is not None and patience > 0:
                await asyncio.wait((task,), timeout=patience)
            if task.done():
                task.result()
        finally:
            await _cancel([task, stopped])

    async def _open_pages(self) -> None:
        if not self.settings.listen:
            return
        host, port = read_address(self.settings.listen)
        world = self.world
        debug: dict[str, Callable[[], Any]] = {}
        if self.settings.debug:
            debug = {"queue": lambda: show_queue(world), "ledger": lambda: show_ledger(world)}
        self.health = HealthServer(
            live={"ping": lambda: ""},
            ready={"informer-sync": world.feed.missing},
            metrics=world.metrics.expose,
            debug=debug,
        )
        await self.health.start(host, port)
        log_event(LOG, "listening", address=f"{host}:{self.health.port}")


def _always() -> bool:
    return True


async def _cancel(tasks: list[asyncio.Task[Any]] | list[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task


async def serve_scheduler(config: ClientConfig, settings: SchedulerSettings) -> None:
    """The process behind `plimsoll scheduler`: runs until a signal asks it to stop, or the lease is lost."""
    set_up_logging(settings.log_format, verbose=settings.verbose)
    config = replace(config, in_flight=settings.binds + _BESIDE_BINDINGS)
    async with Client.connect(config) as client:
        process = SchedulerProcess(client, settings, alone=True)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, process.stop)
        log_event(LOG, "starting", server=config.server, pid=os.getpid())
        try:
            await process.run()
        except LeaseLostError as error:
            LOG.error("%s; a new process has to take over", error)
            sys.exit(1)  # as kube-scheduler does
    LOG.info("stopped")
