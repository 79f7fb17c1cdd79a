"""START HERE: the CPU driver of one node, put together.

Owns `CpuDriver`: topology, what is published of it, the book of who holds which CPUs, and whoever pins
containers to them. Promises: a claim is answered only when its CPUs are on record, and after the shared
containers have left them where the runtime allows that; after a claim is released its CPUs go back to the
shared containers at once where the runtime allows that; CPUs that come and go are followed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from plimsoll.api import codec
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.resource import ResourceSlice
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, RESOURCE_SLICES
from plimsoll.client.retries import Backoff
from plimsoll.common.checkpoint import Finding, Severity
from plimsoll.drivers.cpu.claim_status import claim_reports
from plimsoll.drivers.cpu.description import describe
from plimsoll.drivers.cpu.devices import (
    Abilities,
    Arrangement,
    arrange,
    check_against_node,
    check_form,
    detect_abilities,
    device_health,
    make_annotations,
    make_devices,
    per_slice,
)
from plimsoll.drivers.cpu.observer import ERROR, SUCCESS, Observer
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer, make_enforcer
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings
from plimsoll.drivers.cpu.stale_claim_collector import LOOK_SECONDS, Leftovers
from plimsoll.drivers.cpu.stale_claims import StaleClaims
from plimsoll.drivers.cpu.state.cpu_state import CpuBook, held_before
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.drivers.cpu.topology.watch import Machine, TopologyWatch
from plimsoll.drivers.plugin import (
    AllocatedClaim,
    ClaimError,
    ClaimRef,
    DeviceHealth,
    DevicePool,
    DeviceStatus,
    Driver,
    PluginServer,
    PreparedDevice,
)
from plimsoll.errors import ApiError, InputError

_log = logging.getLogger(__name__)

#: How long nothing may pin containers before devices are told to be unhealthy: a runtime that restarts is
#: back sooner.
UNLINKED_SECONDS = 30.0
#: How long a claim waits for the link to the runtime before it is refused; nodes ask again.
LINK_SECONDS = 3.0
#: Between two looks whether CDI files are still there.
FILES_LOOK_SECONDS = 5.0
#: How many containers are named in the log at once; the pages name all.
_MOST_TOLD = 5
_TELL_FIX = (
    "let the driver's account patch resourceclaims/status and associated-node:patch resourceclaims/driver,"
    " or set reportCPUs: false"
)
_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}


class CpuDriver(Driver):
    """The driver of one node. `start` it on the loop it is to live on."""

    name = DRIVER_NAME

    def __init__(
        self,
        client: Client,
        settings: CpuSettings,
        *,
        observer: Observer | None = None,
        watch_every: float = 1.0,
        stale: StaleClaims | None = None,
        stale_every: float = LOOK_SECONDS,
        files_every: float = FILES_LOOK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """ConfigError if the sockets' paths are too long."""
        self.settings = settings
        self.station = PluginServer(self, client, settings.node, root=settings.kubelet_root, cdi=settings.cdi)
        self._client = client
        self._observer = observer or Observer()
        self._clock = clock
        self._dice = Random()
        self._machine = Machine(settings.host_root, settings.overlay, pcie=True)
        self._watch = TopologyWatch.of_machine(self._machine, every=watch_every)
        self._book: CpuBook | None = None
        self._enforcer: Enforcer | None = None
        self._able: Abilities | None = None
        self._unlinked_since: float | None = None
        self._told_unlinked = False
        self._was_watched = False
        self._told_faults: tuple[str, ...] = ()
        self._findings: tuple[Finding, ...] = ()
        self._charted: tuple[tuple[Topology, Arrangement], dict[str, str]] | None = None
        self._made: tuple[Arrangement, dict[str, CpuSet], Abilities, list[dict[str, Any]]] | None = None
        self._leftovers = Leftovers(client, self.station.release, stale=stale, every=stale_every, clock=clock)
        self._files_every = files_every
        self._tasks: set[asyncio.Task[None]] = set()

    # -- state

    @property
    def book(self) -> CpuBook:
        assert self._book is not None, "the driver has not started"
        return self._book

    @property
    def enforcer(self) -> Enforcer:
        assert self._enforcer is not None, "the driver has not started"
        return self._enforcer

    @property
    def topology(self) -> Topology:
        return self.book.topology

    @property
    def ready(self) -> bool:
        """Whether it does all its work."""
        return self._book is not None and not self.problems()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What its owner should know."""
        return (
            *self._findings,
            *self.book.findings,
            *self.book.arrangement.warnings,
            *self.enforcer.findings,
            *(Finding(Severity.WARNING, what, _TELL_FIX) for what in self.station.claim_status_errors),
        )

    def problems(self) -> tuple[str, ...]:
        """Why it is not well now."""
        if self._book is None or self._enforcer is None:
            return ("the driver has not started yet",)
        found = []
        self._was_watched = self._was_watched or self.station.health_watched
        if not self._enforcer.linked:
            found.append(f"containers are not pinned: {self._enforcer.link_error}")
        if not self.station.registered:
            why = self.station.registration_error
            found.append(f"not registered with the kubelet{f': {why}' if why else ''}")
        elif self._was_watched and not self.station.health_watched:
            # A kubelet that goes says nothing; one that listened to the health of devices does so no more.
            found.append("the kubelet is gone: nobody listens to the health of devices")
        if self._watch.error:
            found.append(f"the machine cannot be read: {self._watch.error}")
        if self._able is None:
            found.append("the API server has not been asked yet")
        else:
            found += self.station.publish_errors
            if not self.station.published and not self.station.publish_errors:
                found.append("the devices are not published yet")
        return tuple(found)

    def describe(self) -> dict[str, Any]:
        """What it knows, for people."""
        return describe(self.settings, self.book, self.enforcer, self.findings)

    # -- lifecycle

    async def start(self) -> None:
        """Read machine and record, begin to pin, to publish and to answer; InputError if that cannot be."""
        settings = self.settings
        topology = await asyncio.to_thread(self._machine.read)
        self._watch.current = topology
        held = await asyncio.to_thread(held_before, settings)
        arrangement = arrange(topology, settings, held=held)
        leaving = await self._leftovers.released_elsewhere(settings)
        self._book = book = await asyncio.to_thread(
            CpuBook.open, settings, topology, arrangement, leaving=leaving
        )
        self._enforcer = make_enforcer(book, lambda: book.topology, settings, self._client)
        book.needed = lambda: self.enforcer.shared_in_use
        self._tell(self.findings)
        self._enforcer.on_change = self._on_link
        self._unlinked_since = self._clock()
        try:
            await self._enforcer.start()
            await self.station.start()
        except BaseException:
            await self._enforcer.stop()
            raise
        self._begin(self._learn(), "what the API server knows")
        self._begin(self._follow(), "CPUs that come and go")
        self._begin(self._mind_link(), "health")
        self._begin(self._leftovers.keep_clear(book, self._enforcer), "claims that are left over")
        self._begin(self._keep_files(), "CDI files")

    async def stop(self) -> None:
        """End in good order; pins, claims and published devices stay."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.station.stop()
        if self._enforcer is not None:
            await self._enforcer.stop()

    # -- what the kit asks

    def pools(self) -> Sequence[DevicePool] | None:
        if self._able is None or self._book is None:
            return None
        settings, devices = self.settings, self._devices()
        return [DevicePool(settings.node, devices, (), per_slice(settings, devices), self._chart())]

    def health(self) -> Iterable[DeviceHealth]:
        if self._book is None:
            return ()
        problem = f"containers are not pinned: {self.enforcer.link_error}" if self._is_unlinked() else ""
        return device_health(
            self.book.topology,
            self.book.arrangement,
            self.settings.node,
            lost=self._lost(),
            problem=problem,
        )

    def device_statuses(self) -> Iterable[DeviceStatus] | None:
        if self._book is None or not self.settings.report_cpus:
            return None
        return claim_reports(self.book.holdings.values(), self.topology, pinned=not self._is_unlinked())

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice] | ClaimError:
        began = self._clock()
        known = claim.ref.uid in self.book.holdings
        if not known and not await self._is_linked():
            self._observer.prepared(ERROR, self._clock() - began)
            return ClaimError(
                f"no CPUs are handed out while containers are not pinned: {self.enforcer.link_error}"
            )
        near, revision = await self._near(claim), self.book.revision
        answer = await asyncio.to_thread(self.book.prepare, claim, near=near)
        if isinstance(answer, ClaimError):
            self._observer.prepared(ERROR, self._clock() - began)
            if self.book.revision != revision:
                # On the way to the refusal claims of another driver were found.
                self._begin(self._apply(), "claims that were found")
            return answer
        # The shared containers leave before anybody is told of the CPUs.
        await self._apply()
        self._observer.prepared(SUCCESS, self._clock() - began)
        if not known and answer.granted:
            self._observer.assigned(len(answer.granted))
            _log.info("claim %s: CPUs %s", claim.ref, answer.granted)
        return self.book.devices_of(answer, self._attributes())

    async def unprepare(self, claim: ClaimRef) -> ClaimError | None:
        lost = self._lost()
        refusal = await asyncio.to_thread(self.book.release, claim)
        self._observer.released(SUCCESS if refusal is None else ERROR)
        if refusal is None:
            # Devices that were kept for this claim alone go, and CPUs that it held may be where they belong.
            self._rearrange(self.book.topology, changed=lost != self._lost())
            # Nobody waits for the shared containers to grow.
            self._begin(self._apply(), "growing the shared pool")
        return refusal

    # -- inside

    async def _is_linked(self) -> bool:
        """Whether containers can be pinned now, or shortly.

        DIFF: the Go driver prepares claims while it has no link to the runtime, and containers may start
        unpinned (test_no_claim_is_prepared_while_nobody_pins).
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LINK_SECONDS):
                while not self.enforcer.linked:
                    await asyncio.sleep(0.05)
        return self.enforcer.linked

    async def _near(self, claim: AllocatedClaim) -> Mapping[str, CpuSet] | None:
        """CPUs that lie near the other devices of a claim, where it ties them together."""
        if not self.book.needs_neighbours(claim):
            return None
        try:
            listing = await self._client.list(RESOURCE_SLICES)
        except ApiError as error:
            _log.warning("claim %s: other devices cannot be looked at: %s", claim.ref, error)
            return None
        slices = []
        for raw in listing.items:
            with suppress(InputError):  # of some other driver: not ours to judge
                slices.append(codec.decode(raw, ResourceSlice))
        return self.book.near_of(claim, slices)

    async def _apply(self) -> None:
        """Bring running containers in line; what is wrong is told once, however many claims come."""
        faults = tuple(map(str, await self.enforcer.apply()))
        if faults != self._told_faults:
            self._told_faults = faults
            for fault in faults[:_MOST_TOLD]:
                _log.warning("%s", fault)
            if len(faults) > _MOST_TOLD:
                _log.warning("and %d containers more", len(faults) - _MOST_TOLD)

    async def _learn(self) -> None:
        """Ask the API server what it keeps of devices, until it answers; then publish."""
        backoff = Backoff(first=0.2, most=10.0)
        attempt = 0
        while self._able is None:
            try:
                able = await detect_abilities(self._client, self.settings)
                node = await self._client.get(NODES, self.settings.node)
            except ApiError as error:
                _log.warning("the API server does not tell what it knows: %s", error)
                attempt += 1
                await asyncio.sleep(backoff.delay(attempt, self._dice))
                continue
            self._able = able
            self._findings = check_form(self.settings, able.form, able) + self._check_node(node)
            self._tell(self._findings)
        self.station.publish()

    def _check_node(self, node: Mapping[str, Any]) -> tuple[Finding, ...]:
        """Whether the node's allocatable and the reserved CPUs agree."""
        with suppress(InputError, KeyError, TypeError):  # a node that does not say
            told = node["status"]["allocatable"]["cpu"]
            return check_against_node(self.book.topology, self.book.arrangement.reserved, told)
        return ()

    async def _follow(self) -> None:
        """CPUs come and go: arrange them anew, and bring everybody in line."""
        async for topology in self._watch.changes():
            _log.warning("CPUs online: %s, before: %s", topology.all, self.book.topology.all)
            self._rearrange(topology)
            self._observer.topology_changed()
            await self._apply()

    def _rearrange(self, topology: Topology, *, changed: bool = False) -> None:
        """Decide anew what is published, and publish it if that is something else, or has `changed`."""
        book = self.book
        with book.lock:  # no claim gets CPUs meanwhile that are to be shared from now on
            arrangement = arrange(topology, self.settings, earlier=book.arrangement, held=book.by_device)
            if topology != book.topology or arrangement != book.arrangement:
                changed = True
                self._tell((*book.change(topology, arrangement), *arrangement.warnings))
        if changed:
            self.station.publish()
            self.station.publish_health()
            self.station.update_claim_status()

    async def _keep_files(self) -> None:
        """Write CDI files again that somebody has deleted: without them no container of a claim starts.

        DIFF: the Go driver does so when a claim is prepared again, which a node does not do for a container
        that restarts (test_cdi_files_that_somebody_deletes_come_back).
        """
        told: tuple[str, ...] = ()
        while True:
            if await asyncio.to_thread(lambda: self.book.lacks_files):
                self._tell(await asyncio.to_thread(self.book.recheck))
                await self._apply()
            faults = tuple(map(str, await self.station.restore_metadata(lambda: self.book.holdings)))
            for fault in faults if faults != told else ():
                _log.warning("%s", fault)
            told = faults
            await asyncio.sleep(self._files_every)

    def _on_link(self) -> None:
        """The link to the runtime came or went."""
        self._unlinked_since = None if self.enforcer.linked else (self._unlinked_since or self._clock())
        self._tell_link()

    async def _mind_link(self) -> None:
        revision = self.book.revision
        while True:
            await asyncio.sleep(1.0)
            self._tell_link()
            if revision != (revision := self.book.revision):  # claims may be disputed by now, or no more
                self.station.update_claim_status()

    def _tell_link(self) -> None:
        if self._is_unlinked() != self._told_unlinked:
            self._told_unlinked = not self._told_unlinked
            self.station.publish_health()
            self.station.update_claim_status()

    def _is_unlinked(self) -> bool:
        since = self._unlinked_since
        return since is not None and self._clock() - since >= UNLINKED_SECONDS

    def _lost(self) -> dict[str, CpuSet]:
        """CPUs that claims hold and that are offline, by device."""
        online = self.book.topology.all
        return {name: cpus - online for name, cpus in self.book.by_device.items() if not cpus <= online}

    def _devices(self) -> list[dict[str, Any]]:
        """What is published; made anew only when that depends on something else, for every claim asks."""
        arrangement, lost, able = self.book.arrangement, self._lost(), self._able or Abilities()
        if self._made is None or self._made[0] is not arrangement or self._made[1:3] != (lost, able):
            devices = make_devices(
                self.book.topology, arrangement, self.settings, able.form, lost=lost, able=able
            )
            self._made = (arrangement, lost, able, devices)
        return self._made[3]

    def _chart(self) -> dict[str, str]:
        """What is said about the machine; the same holds for it."""
        key = (self.book.topology, self.book.arrangement)
        if self._charted is None or any(a is not b for a, b in zip(self._charted[0], key, strict=True)):
            self._charted = (key, make_annotations(*key))
        return self._charted[1]

    def _attributes(self) -> dict[str, Mapping[str, object]]:
        return {device["name"]: device["attributes"] for device in self._devices()}

    def _begin(self, work: Awaitable[None], name: str) -> None:
        task = asyncio.ensure_future(work)
        task.set_name(name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: %s: %s", task.get_name(), type(error).__name__, error, exc_info=error)

    def _tell(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            _log.log(
                _LEVELS[finding.severity], "%s%s", finding.what, f"; {finding.fix}" if finding.fix else ""
            )
