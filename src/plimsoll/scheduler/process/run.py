"""START HERE: the scheduler process, from the first list to the last binding.

`SchedulerProcess` runs all parts on one event loop. Informers follow the API; once they have synced, and
while this process leads, the loop schedules. Nothing is scheduled before the caches are complete and the
writes of a previous leader are fenced (`takeover.py`). A leader that loses its lease stops writing, and `run`
raises LeaseLostError: the process exits, as kube-scheduler does, and its supervisor starts a new one. On a
stop request it schedules no more pods, waits for the bindings in progress, and releases the lease if all of
them have ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from plimsoll.allocator import Features
from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.pod_claims import find_requesting_pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.client import Client, ClientConfig
from plimsoll.client.delegated_auth import secure_serving
from plimsoll.client.leader_election import Election
from plimsoll.common.addresses import read_address
from plimsoll.common.health import HealthServer
from plimsoll.common.structured_log import log_event, set_up_logging
from plimsoll.common.tasks import at_most, cancel_tasks, run_until, stop_on_signals
from plimsoll.errors import LeaseLostError
from plimsoll.ledger.placeholders import is_placeholder, make_pod, plan_placeholders
from plimsoll.scheduler.binding.device_check import find_device_conflict
from plimsoll.scheduler.binding.placeholders import PlaceholderBinder
from plimsoll.scheduler.binding.result import BindFailure, BindSuccess
from plimsoll.scheduler.binding.volumes import VolumeBinder
from plimsoll.scheduler.filters.volumes import find_claims
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.binder import OnFinished, PodBinder
from plimsoll.scheduler.process.charge_writer import ChargeForm
from plimsoll.scheduler.process.configuration import NAME, SchedulerSettings
from plimsoll.scheduler.process.context import SchedulerContext
from plimsoll.scheduler.process.debug_pages import show_ledger, show_queue
from plimsoll.scheduler.process.event_recorder import SchedulerEventRecorder
from plimsoll.scheduler.process.failure_handler import FailureHandler
from plimsoll.scheduler.process.loop import SchedulingLoop
from plimsoll.scheduler.process.other_scheduler import OtherSchedulerDetector
from plimsoll.scheduler.process.placeholder_keeper import PlaceholderKeeper
from plimsoll.scheduler.process.placeholder_writer import PlaceholderApiWriter
from plimsoll.scheduler.process.plugin_timer import record_binding
from plimsoll.scheduler.process.server_probe import ServerProbe
from plimsoll.scheduler.process.takeover import recover_bindings, take_over
from plimsoll.scheduler.process.volume_waiters import VolumeWaiters
from plimsoll.scheduler.result import Placement

LOG = logging.getLogger("plimsoll.scheduler")

#: Nodes per batch of the warm-up.
_WARM_UP_BATCH = 20
#: Time limit for writing the last events (seconds).
_FLUSH_SECONDS = 1.0
#: Time limit for the recovery of interrupted bindings (seconds).
_RECOVERY_SECONDS = 5.0
#: Concurrent calls reserved for leases, conditions and events.
_RESERVED_CALLS = 64


class SchedulerProcess:
    """Scheduler of one cluster."""

    def __init__(
        self, client: Client, settings: SchedulerSettings, *, identity: str = "", dedicated: bool = False
    ) -> None:
        """Create a scheduler; with `dedicated`, it controls the garbage collection of the process."""
        self.settings = settings
        self.identity = identity or f"{socket.gethostname()}_{uuid4()}"
        self.context = SchedulerContext.create(settings)
        self._client = client
        self._dedicated = dedicated
        guarded = client.guarded(self.check_lease)
        form = ChargeForm(settings.wire_form)
        self.writer = ApiWriter(
            guarded,
            form,
            reads_new_form=self.context.reads_new_form,
            sets_timestamps=Features.of(settings.gates).binding_conditions,
        )
        self.recorder = SchedulerEventRecorder(
            client,
            controller=settings.profiles[0].name,
            instance=f"{NAME}-{socket.gethostname()}",
            lease=ObjectMeta(name=settings.election.name, namespace=settings.election.namespace),
            is_busy=lambda: self.loop is not None and self.loop.in_flight > 0,
        )
        self.failure_handler = FailureHandler(
            self.context, guarded, self.writer, self.recorder, self._on_claim_written
        )
        self.context.informers.on_forbidden = partial(self.recorder.problem, "MissingPermission", "Listing")
        self.context.informers.on_pod_left = self._on_pod_left
        self.context.informers.on_claim_changed = self.writer.claim_waiters.notify
        creates = self.context.metrics.claim_creates
        self.writer.on_claim_creation = lambda succeeded: creates.add("success" if succeeded else "failure")
        self.other_scheduler = OtherSchedulerDetector(
            self.context.profiles,
            is_leading=lambda: self.leading and self.scheduling.is_set(),
            find_node=self._find_assumed_node,
            has_written=self.failure_handler.condition_writer.has_written,
            report=partial(self.recorder.problem, "OtherScheduler", "Scheduling"),
        )
        self.context.informers.before_pod_event = self.other_scheduler.on_pod_event
        self.server_probe = ServerProbe(client, self.context)
        self.writer.on_charges_dropped = self.server_probe.probe_soon
        self.server_probe.on_changed = lambda old, new: self._set_placeholders()
        self.volume_waiters = VolumeWaiters(self.context.snapshot, self.context.informers.find_pod)
        self.context.informers.on_volume_changed = self.volume_waiters.notify
        self.placeholder_writer = PlaceholderApiWriter(
            guarded,
            settings.placeholders,
            self.volume_waiters.node,
            self.context.informers.find_pod,
            self.volume_waiters,
        )
        self.keeper = PlaceholderKeeper(
            self.context.snapshot,
            self.placeholder_writer,
            self.recorder,
            self.context.metrics,
            self.is_responsible,
        )
        self.context.informers.after_pod_event = self._on_pod_event
        self.context.informers.on_node_changed = self.keeper.on_node_changed
        self.loop: SchedulingLoop | None = None
        #: Whether the next leader need not fence: no write is in flight, of ours or of our predecessor.
        self._all_writes_ended = True
        self.election: Election | None = None
        self._stop = asyncio.Event()
        self._synced = asyncio.Event()
        self.scheduling = asyncio.Event()
        self.health: HealthServer | None = None

    # -- public

    def stop(self) -> None:
        """Request a graceful stop; `run` returns when it is complete."""
        self._stop.set()
        if self.loop is not None:
            self.loop.stop()

    @property
    def leading(self) -> bool:
        """True while this process schedules."""
        return self.loop is not None

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the caches have synced and, without leader election, scheduling has started."""
        async with asyncio.timeout(timeout):
            await (self._synced if self.settings.election.elect else self.scheduling).wait()

    # -- lifecycle

    async def run(self) -> None:
        """Follow the API, wait for the lease and schedule, until `stop` or cancellation."""
        try:
            await self._start_health_server()
            await self._run_with_informers(self._run_until_stopped())
        finally:
            self.context.gc_control.stop()
            if self.health is not None:
                await self.health.stop()

    async def _run_until_stopped(self) -> None:
        """Wait for the caches and the first facts of the server, then lead."""
        await run_until(self._stop.wait(), self._await_sync())
        if self._stop.is_set():
            return
        probing = asyncio.create_task(self.server_probe.run(), name="server probe")
        try:
            await self._warm_up()
            await self.server_probe.wait_for_first()
            self._set_placeholders()
            await self._lead_until_stopped()
        finally:
            await cancel_tasks([probing])

    async def _lead_until_stopped(self) -> None:
        """Lead, with an election if configured."""
        if self._dedicated:
            self.context.gc_control.start()
        log_event(LOG, "synced", nodes=len(self.context.snapshot), pending=len(self.context.queue))
        self._synced.set()
        if not self.settings.election.elect:
            await self._lead()
            return
        election_settings = self.settings.election
        self.election = Election(
            self._client.unlimited(),
            election_settings.namespace,
            election_settings.name,
            self.identity,
            timing=election_settings.timing,
            settled=lambda: self._all_writes_ended,
        )
        await run_until(self._wait_stop_deadline(), self.election.run(self._lead))

    async def _warm_up(self) -> None:
        """Read the devices of all nodes, so that the first pods need not wait for that."""
        snapshot = self.context.snapshot
        for count, row in enumerate(snapshot.rows(), 1):
            node = snapshot.nodes[row]
            if node is not None:
                snapshot.inventory.devices_for(node)
            if not count % _WARM_UP_BATCH:
                await asyncio.sleep(0)

    async def _lead(self) -> None:
        """Schedule; cancelled when the lease is lost."""
        log_event(LOG, "leading", identity=self.identity, names=list(self.settings.by_name))
        election = self.election
        may_decide = election.holds if election is not None else _always
        loop = self.loop = SchedulingLoop(
            self.context, self.failure_handler, self._make_binder, may_decide=may_decide
        )
        if self._stop.is_set():
            loop.stop()
        tasks = [asyncio.create_task(self.failure_handler.run())]
        self._all_writes_ended = taken_over = False
        try:
            await self._take_over()
            taken_over = True
            await self._recover_bindings()
            if self.settings.placeholders.mode != "Off":
                tasks.append(asyncio.create_task(self._keep_placeholders()))
            self.scheduling.set()
            await loop.run(self.settings.stop_seconds)
        finally:
            self.loop = None
            self._all_writes_ended = taken_over and not loop.cancelled
            await cancel_tasks(tasks)
            log_event(LOG, "stopped leading", identity=self.identity)

    async def _take_over(self) -> None:
        """Fence what a previous leader may have left in flight.

        Without an election no other process schedules: the initial lists are current.
        """
        election = self.election
        await take_over(
            self.context.informers,
            lambda: list(self.context.snapshot.all(ResourceClaim)),
            self.writer,
            self.is_responsible,
            self._on_claim_written,
            find_volume_claims=partial(find_claims, snapshot=self.context.snapshot),
            on_volume_claim=self._on_volume_written,
            refresh=election is not None,
            fence=election is None or not election.was_released,
        )

    def check_lease(self) -> None:
        if self.election is not None:
            self.election.check()

    async def _recover_bindings(self) -> None:
        """Recover interrupted bindings, within a time limit."""
        claims = list(self.context.snapshot.all(ResourceClaim))
        async with at_most(_RECOVERY_SECONDS):
            await recover_bindings(
                claims,
                self.context.informers.pods(),
                self.writer,
                self._on_claim_written,
                self.is_responsible,
            )

    def is_responsible(self, pod: Pod) -> bool:
        return pod.spec.scheduler_name in self.context.profiles

    def _make_binder(self, on_finished: OnFinished) -> PodBinder:
        def finish(placement: Placement, outcome: BindSuccess | BindFailure) -> None:
            if isinstance(outcome, BindFailure):
                self.other_scheduler.on_binding_failed(placement.pod_info.key, placement.node)
            on_finished(placement, outcome)

        return PodBinder(
            self.writer,
            self._on_claim_written,
            finish,
            find_conflict=partial(find_device_conflict, self.context.snapshot),
            on_point=partial(record_binding, self.context.metrics),
            limit=self.settings.binds,
            make_volume_binder=self._make_volume_binder,
            make_placeholder_binder=self._make_placeholder_binder,
            on_free=self.context.wake_event.set,
        )

    def _find_assumed_node(self, key: str) -> str:
        """Return the node of a placement that the API may not show yet, or an empty string."""
        snapshot = self.context.snapshot
        placement = snapshot.assumed.get(key) or snapshot.unconfirmed.get(key)
        return placement.node if placement is not None else ""

    def _make_volume_binder(self, placement: Placement) -> VolumeBinder:
        writer = self.writer
        return VolumeBinder(placement, writer, writer.volumes, self.volume_waiters, self._on_volume_written)

    def _make_placeholder_binder(self, placement: Placement) -> PlaceholderBinder | None:
        profile, options = self.context.snapshot.profile, self.context.snapshot.options
        if not profile.placeholders:
            return None
        if self.context.stored_fields.charges is None:
            self.server_probe.probe_soon()
        planned = plan_placeholders(placement.pod_info.pod, placement.charged_claims, options, profile)
        if not planned:
            return None
        pods = [make_pod(each, placement.node) for each in planned]
        return PlaceholderBinder(placement, pods, self.writer, self.placeholder_writer)

    def _set_placeholders(self) -> None:
        """Use placeholders unless the server is known to store charges."""
        stores, is_on = self.context.stored_fields.charges, self.settings.placeholders.mode == "Auto"
        self.context.snapshot.set_placeholders(is_on and stores is not True)
        self.keeper.creates = is_on and stores is False
        self.keeper.compare_all_soon()

    async def _keep_placeholders(self) -> None:
        with suppress(LeaseLostError):  # the next leader continues
            await self.keeper.run()

    def _on_pod_left(self, key: str) -> None:
        self.failure_handler.forget(key)
        self.context.forget_rejections(key)

    def _on_pod_event(self, old: Pod | None, new: Pod | None) -> None:
        pod = new if new is not None else old
        if pod is not None and is_placeholder(pod):
            self.volume_waiters.notify(pod)
        self.keeper.on_pod_event(old, new)

    def _on_claim_written(self, claim: ResourceClaim) -> None:
        """Update the snapshot from a response, which arrives before the watch event."""
        known = self.context.snapshot.claim(*claim.metadata.key)
        if known is None and find_requesting_pod(claim) is not None:
            self.context.informers.on_claim_created(claim)
        elif known is not None and known is not claim and known.metadata.uid == claim.metadata.uid:
            self.context.snapshot.set(claim)

    def _on_volume_written(self, volume: PersistentVolume | PersistentVolumeClaim) -> None:
        """Update the snapshot from a response, which arrives before the watch event."""
        known = self.context.snapshot.find(type(volume), *volume.metadata.key)
        if known is not None and known.metadata.uid == volume.metadata.uid:
            self.context.snapshot.set(volume)

    # -- supporting tasks

    async def _run_with_informers(self, main_task: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine along with the informers and the recorder; ends if the informers end."""
        informers = asyncio.create_task(self.context.informers.run(self._client), name="informers")
        recorder = asyncio.create_task(self.recorder.run(), name="recorder")
        main = asyncio.create_task(main_task, name="main")
        try:
            await asyncio.wait((informers, main), return_when=asyncio.FIRST_COMPLETED)
            if informers.done() and not main.done():
                await cancel_tasks([main])
                await informers  # raises the error that ended them
            await main
            await self.recorder.flush(_FLUSH_SECONDS)
        finally:
            await cancel_tasks([main, recorder, informers])

    async def _wait_stop_deadline(self) -> None:
        """Wait until a stop is requested, and give a leader time to finish its bindings."""
        await self._stop.wait()
        if self.loop is not None:
            await asyncio.sleep(self.settings.stop_seconds + 5)

    async def _await_sync(self) -> None:
        while not self.context.informers.synced:
            self.context.wake_event.clear()
            await self.context.wake_event.wait()

    async def _start_health_server(self) -> None:
        if not self.settings.listen:
            return
        host, port = read_address(self.settings.listen)
        context = self.context
        debug: dict[str, Callable[[], Any]] = {}
        if self.settings.debug:
            debug = {"queue": lambda: show_queue(context), "ledger": lambda: show_ledger(context)}
        self.health = HealthServer(
            live={"ping": lambda: ""},
            ready={"informer-sync": context.informers.sync_problem},
            metrics=context.metrics.expose,
            debug=debug,
            secure=secure_serving(self._client, self.settings.cert_dir),
        )
        await self.health.start(host, port)
        log_event(LOG, "listening", address=f"{host}:{self.health.port}")


def _always() -> bool:
    return True


def _make_scheduler(client: Client, settings: SchedulerSettings) -> SchedulerProcess:
    return SchedulerProcess(client, settings, dedicated=True)


async def serve_scheduler(
    config: ClientConfig,
    settings: SchedulerSettings,
    make_process: Callable[[Client, SchedulerSettings], SchedulerProcess] = _make_scheduler,
) -> None:
    """Run `plimsoll scheduler`, or a variant of it, until a signal stops it or the lease is lost."""
    set_up_logging(settings.log.format, verbose=settings.log.verbose)
    config = settings.client.apply(replace(config, in_flight=settings.binds + _RESERVED_CALLS))
    async with Client.connect(config) as client:
        process = make_process(client, settings)
        stop_on_signals(process.stop)
        log_event(LOG, "starting", server=config.server, pid=os.getpid())
        try:
            await process.run()
        except LeaseLostError as error:
            LOG.error("%s; exiting, a new process has to take over", error)
            sys.exit(1)  # as kube-scheduler does
    LOG.info("stopped")
