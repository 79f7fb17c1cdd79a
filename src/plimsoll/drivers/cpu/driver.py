"""START HERE: CPU driver of one node.

`CpuDriver` connects the topology, the published devices, the CPU state and the enforcer that pins containers.
Guarantees: a claim is prepared only after its CPUs are checkpointed, and after shared containers have left
them if the runtime supports updates; after a claim is unprepared, its CPUs return to the shared containers at
once if the runtime supports updates; CPU hotplug is followed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from plimsoll.api.cpuset import CpuSet, union
from plimsoll.client import Client
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.common.tasks import at_most, cancel_tasks, log_failure, sleep_to_tick, start_task
from plimsoll.drivers.cpu.capability_detection import wait_for_capabilities
from plimsoll.drivers.cpu.claim_affinity import find_claim_affinity
from plimsoll.drivers.cpu.claim_lookup import ClaimLookup
from plimsoll.drivers.cpu.claim_recovery import ClaimRecovery
from plimsoll.drivers.cpu.claim_status import DeviceStatusCache
from plimsoll.drivers.cpu.description import describe
from plimsoll.drivers.cpu.device_cache import CpuDeviceCache
from plimsoll.drivers.cpu.devices import (
    ServerCapabilities,
    check_against_node,
    check_form,
    compute_layout,
    describe_server,
    device_health,
    per_slice,
)
from plimsoll.drivers.cpu.findings_log import log_findings
from plimsoll.drivers.cpu.forget_claim import ForgottenClaim, find_claim, forget_claim
from plimsoll.drivers.cpu.observer import ERROR, SUCCESS, Observer
from plimsoll.drivers.cpu.pinning.enforcer import Enforcer, make_enforcer
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, DeviceMode
from plimsoll.drivers.cpu.stale_claim_collector import CHECK_INTERVAL_SECONDS, StaleClaimCollector
from plimsoll.drivers.cpu.stale_claims import StaleClaimTracker
from plimsoll.drivers.cpu.state.cpu_state import CPUState, read_allocated_cpus
from plimsoll.drivers.cpu.state.prepared_devices import list_prepared_devices
from plimsoll.drivers.cpu.state.reconcile import find_unused_adopted
from plimsoll.drivers.cpu.state.shared_cpus_file import SharedCpusFile
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.drivers.cpu.topology.watch import MachineReader, TopologyWatch
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
from plimsoll.errors import InputError

_log = logging.getLogger(__name__)

#: Time without a link to the runtime before devices become unhealthy; longer than a runtime restart.
UNLINKED_SECONDS = 30.0
#: Time that a claim waits for the link to the runtime before it fails; the node retries.
LINK_SECONDS = 3.0
#: Interval between checks for deleted CDI files.
FILES_CHECK_SECONDS = 5.0
#: Checks for deleted CDI files between trial writes, while writes succeed.
_PROBE_TURNS = 6
#: Limit on container faults logged at once; the debug page lists all.
_MAX_LOGGED = 5
_CLAIM_STATUS_FIX = (
    "let the driver's account patch resourceclaims/status and associated-node:patch resourceclaims/driver,"
    " or set reportCPUs: false"
)


class CpuDriver(Driver):
    """Driver of one node; `start` it on the event loop that runs it."""

    name = DRIVER_NAME

    def __init__(
        self,
        client: Client,
        settings: CpuSettings,
        *,
        observer: Observer | None = None,
        notes: tuple[NodeFinding, ...] = (),
        on_sharing_dropped: Callable[[], None] | None = None,
        watch_interval: float = 1.0,
        stale: StaleClaimTracker | None = None,
        stale_interval: float = CHECK_INTERVAL_SECONDS,
        files_interval: float = FILES_CHECK_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the driver; raises ConfigError if the socket paths are too long.

        `notes` are findings of its caller. `on_sharing_dropped` is called instead of publishing if the
        devices are grouped and the API server does not store that several claims share a device.
        """
        self.settings = settings
        self.plugin_server = PluginServer(
            self, client, settings.node, root=settings.kubelet_root, cdi=settings.cdi
        )
        self._client = client
        self._observer = observer or Observer()
        self._notes = notes
        self._on_sharing_dropped = on_sharing_dropped
        self._clock = clock
        self._machine = MachineReader(settings.host_root, settings.overlay, pcie=True)
        self._watch = TopologyWatch.of_machine(self._machine, interval=watch_interval)
        self._state: CPUState | None = None
        self._enforcer: Enforcer | None = None
        self._capabilities: ServerCapabilities | None = None
        #: What the API server's version and gates give, once it is known; for `/readyz`.
        self.server_description = ""
        self._unlinked_since: float | None = None
        #: Containers share CPUs, or have: assumed until they are known, so that too little is published
        #: rather than too much, and kept, so that the capacity does not change with every pod.
        self._shared_in_use = True
        self._containers_known = False
        self._published_unlinked = False
        self._was_health_watched = False
        self._logged_faults: tuple[str, ...] = ()
        self._findings: tuple[NodeFinding, ...] = ()
        self._status_cache = DeviceStatusCache()
        self._published = CpuDeviceCache(settings)
        lookup = ClaimLookup(client)
        self._recovery = ClaimRecovery(lookup, self.plugin_server.prepare)
        self._stale_claims = StaleClaimCollector(
            lookup,
            self.plugin_server.release,
            names=self.plugin_server.list_metadata_claims,
            on_change=self._on_claims_changed,
            stale=stale,
            interval=stale_interval,
            clock=clock,
        )
        self._files_interval = files_interval
        self._shared_cpus_file = SharedCpusFile(settings)
        self.tasks: set[asyncio.Task[None]] = set()

    # -- state

    @property
    def state(self) -> CPUState:
        assert self._state is not None, "the driver has not started"
        return self._state

    @property
    def enforcer(self) -> Enforcer:
        assert self._enforcer is not None, "the driver has not started"
        return self._enforcer

    @property
    def topology(self) -> Topology:
        return self.state.topology

    @property
    def ready(self) -> bool:
        """True if the driver is started and has no problems."""
        return self._state is not None and not self.problems()

    @property
    def findings(self) -> tuple[NodeFinding, ...]:
        """Findings for the operator."""
        return (
            *self._notes,
            *self._findings,
            *self.state.findings,
            *self.state.layout.warnings,
            *self.enforcer.findings,
            *self._stale_claims.findings,
            *self._recovery.findings,
            *self._find_unused_adopted(),
            *(
                NodeFinding(FindingSeverity.WARNING, what, _CLAIM_STATUS_FIX)
                for what in self.plugin_server.claim_status_errors
            ),
        )

    def problems(self) -> tuple[str, ...]:
        """Return the reasons why the driver is unhealthy."""
        if self._state is None or self._enforcer is None:
            return ("the driver has not started yet",)
        found = []
        self._was_health_watched = self._was_health_watched or self.plugin_server.health_watched
        if not self._enforcer.linked:
            found.append(f"containers are not pinned: {self._enforcer.link_error}")
        if not self.plugin_server.registered:
            why = self.plugin_server.registration_error
            found.append(f"not registered with the kubelet{f': {why}' if why else ''}")
        elif self._was_health_watched and not self.plugin_server.health_watched:
            # A kubelet that stops is noticed only by the end of its health stream.
            found.append("the kubelet is gone: its health stream has ended")
        found += self.state.storage.problems
        if self._watch.error:
            found.append(f"the machine cannot be read: {self._watch.error}")
        if self._capabilities is None:
            found.append("API server capabilities not detected yet")
        else:
            found += self.plugin_server.publish_errors
            if not self.plugin_server.published and not self.plugin_server.publish_errors:
                found.append("the devices are not published yet")
        return tuple(found)

    def describe(self) -> dict[str, Any]:
        """Describe the driver's state as a JSON tree."""
        return describe(self.settings, self.state, self.enforcer, self.findings)

    # -- lifecycle

    async def start(self) -> None:
        """Read machine and checkpoint, then pin, publish and serve; raises InputError on failure."""
        settings = self.settings
        topology = await asyncio.to_thread(self._machine.read)
        self._watch.current = topology
        allocated = await asyncio.to_thread(read_allocated_cpus, settings)
        preferred = await asyncio.to_thread(self._shared_cpus_file.load)
        layout = compute_layout(
            topology, settings, allocated=allocated, shared_in_use=True, preferred_shared=preferred
        )
        await asyncio.to_thread(self._shared_cpus_file.save, layout.preferred_shared)
        released_elsewhere = await self._stale_claims.released_elsewhere(settings)
        self._state = state = await asyncio.to_thread(
            CPUState.open, settings, topology, layout, released_elsewhere=released_elsewhere
        )
        self._enforcer = make_enforcer(state, lambda: state.topology, settings, self._client)
        state.shared_pool_in_use = lambda: self.enforcer.shared_in_use
        log_findings(self.findings)
        self._enforcer.on_change = self._on_link
        self._unlinked_since = self._clock()
        try:
            await self._enforcer.start()
            await self.plugin_server.start()
        except BaseException:
            await self._enforcer.stop()
            raise
        self._start_task(self._detect_capabilities(), "API server capabilities")
        self._start_task(self._watch_topology(), "topology")
        self._start_task(self._watch_link(), "health")
        self._start_task(self._recover_claims(), "recovery of claims")
        self._start_task(self._stale_claims.run(state, self._enforcer), "stale claims")
        self._start_task(self._restore_cdi_files(), "CDI files")

    async def stop(self) -> None:
        """Shut down; pinned containers, claims and published devices stay."""
        tasks, self.tasks = self.tasks, set()
        await cancel_tasks(tasks)
        await self.plugin_server.stop()
        if self._enforcer is not None:
            await self._enforcer.stop()

    # -- Driver interface

    def pools(self) -> Sequence[DevicePool] | None:
        if self._capabilities is None or self._state is None:
            return None
        settings, devices = self.settings, self._devices()
        annotations = self._published.get_annotations(self.state.topology, self.state.layout)
        return [DevicePool(settings.node, devices, (), per_slice(settings, devices), annotations)]

    def health(self) -> Iterable[DeviceHealth]:
        if self._state is None:
            return ()
        problem = f"containers are not pinned: {self.enforcer.link_error}" if self._is_unlinked() else ""
        return device_health(
            self.state.topology,
            self.state.layout,
            self.settings.node,
            offline_allocated=self._offline_allocated(),
            problem=problem,
        )

    def device_statuses(self) -> Iterable[DeviceStatus] | None:
        if self._state is None or not self.settings.report_cpus:
            return None
        return self._status_cache.build(
            self.state.allocations.values(), self.topology, pinned=not self._is_unlinked()
        )

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice] | ClaimError:
        started = self._clock()
        known = claim.ref.uid in self.state.allocations
        if not known and not await self._is_linked():
            self._observer.prepared(ERROR, self._clock() - started)
            return ClaimError(
                f"no CPUs are assigned while containers are not pinned: {self.enforcer.link_error}"
            )
        affinity, revision = await find_claim_affinity(self._client, self.state, claim), self.state.revision
        answer = await asyncio.to_thread(self.state.prepare, claim, affinity=affinity)
        if isinstance(answer, ClaimError):
            self._observer.prepared(ERROR, self._clock() - started)
            if self.state.revision != revision:
                # Claims of another driver were adopted before the failure.
                self._start_task(self._apply(), "adopted claims")
            return answer
        # Shared containers leave the CPUs before the claim is reported as prepared.
        await self._apply()
        self._observer.prepared(SUCCESS, self._clock() - started)
        if not known and answer.assigned:
            self._observer.assigned(len(answer.assigned))
            _log.info("claim %s: CPUs %s", claim.ref, answer.assigned)
        return list_prepared_devices(answer, self._attributes())

    async def unprepare(self, claim: ClaimRef) -> ClaimError | None:
        offline_allocated = self._offline_allocated()
        refusal = await asyncio.to_thread(self.state.release, claim)
        self._observer.released(SUCCESS if refusal is None else ERROR)
        if refusal is None:
            # Devices kept only for this claim are removed, and its CPUs may return to their regular group.
            self._update_layout(self.state.topology, changed=offline_allocated != self._offline_allocated())
            # Growing the shared pool can happen in the background.
            self._start_task(self._apply(), "growing the shared pool")
        return refusal

    async def forget(self, claim: str, force: bool) -> ForgottenClaim | ClaimError:
        """Release a claim that will not be unprepared, by UID or name, unless it is in use."""
        found = find_claim(self.state.allocations.values(), claim)
        if isinstance(found, ClaimError):
            return found
        answer = await forget_claim(
            found,
            self.enforcer,
            is_allocated=self._stale_claims.is_allocated,
            release=self.plugin_server.release,
            force=force,
        )
        if isinstance(answer, ForgottenClaim):
            _log.warning("claim %s: forgotten on request, CPUs %s released", answer.ref.uid, answer.cpus)
        return answer

    # -- internals

    def _find_unused_adopted(self) -> tuple[NodeFinding, ...]:
        """Return findings for adopted claims that no container uses."""
        if not self.enforcer.linked:
            return ()
        used = {uid for view in self.enforcer.containers() for uid in view.claims}
        return find_unused_adopted(self.state.allocations, used)

    async def _recover_claims(self) -> None:
        if self.state.recovering:
            await self._recovery.run(self.state, self.enforcer)
            await self._apply()
            self._on_claims_changed()

    def _on_claims_changed(self) -> None:
        """Publish the capacity again: claims that the cluster does not count are withheld from it."""
        self.plugin_server.publish()
        self.plugin_server.update_claim_status()

    def _uncounted(self) -> CpuSet:
        """Return the CPUs of claims that the scheduler does not count."""
        unknown = self._stale_claims.deallocated
        return union(
            allocation.cpus if uid in unknown or not allocation.ref.name else allocation.contested
            for uid, allocation in self.state.allocations.items()
        )

    async def _is_linked(self) -> bool:
        """Wait briefly for the enforcer to connect; return whether it is connected.

        DIFF: the Go driver prepares claims while it has no link to the runtime, and containers may start
        unpinned (test_no_claim_is_prepared_while_pinning_is_down).
        """
        async with at_most(LINK_SECONDS):
            while not self.enforcer.linked:
                await asyncio.sleep(0.05)
        return self.enforcer.linked

    async def _apply(self) -> None:
        """Update running containers; faults are logged when they change."""
        faults = tuple(map(str, await self.enforcer.apply()))
        if faults != self._logged_faults:
            self._logged_faults = faults
            for fault in faults[:_MAX_LOGGED]:
                _log.warning("%s", fault)
            if len(faults) > _MAX_LOGGED:
                _log.warning("and %d more containers", len(faults) - _MAX_LOGGED)

    async def _detect_capabilities(self) -> None:
        """Detect the capabilities of the API server; then publish."""
        version, capabilities, node = await wait_for_capabilities(self._client, self.settings)
        self.server_description = describe_server(version, capabilities, self.settings)
        is_grouped = self.settings.mode is DeviceMode.GROUPED
        if is_grouped and not capabilities.sharing and self._on_sharing_dropped is not None:
            self._on_sharing_dropped()
            return
        self._findings = check_form(self.settings, capabilities.form, capabilities)
        with suppress(InputError, KeyError, TypeError):  # not reported by the node
            allocatable = node["status"]["allocatable"]["cpu"]
            self._findings += check_against_node(self.state.topology, self.state.layout.reserved, allocatable)
        self._capabilities = capabilities
        log_findings(self._findings)
        # Whether containers use the shared pool determines what can be claimed.
        await self._is_linked()
        self.plugin_server.publish()

    async def _watch_topology(self) -> None:
        """Update layout and containers when CPUs go online or offline."""
        async for topology in self._watch.changes():
            _log.warning("CPUs online: %s, before: %s", topology.all, self.state.topology.all)
            self._update_layout(topology)
            self._observer.topology_changed()
            await self._apply()

    def _update_layout(self, topology: Topology, *, changed: bool = False) -> None:
        """Compute the layout again and publish it if it has changed, or if `changed` is set."""
        state = self.state
        with state.lock:  # no claim may get CPUs meanwhile that become shared
            layout = compute_layout(
                topology,
                self.settings,
                earlier=state.layout,
                allocated=state.by_device,
                shared_in_use=self._shared_in_use,
            )
            if topology != state.topology or layout != state.layout:
                changed = True
                log_findings((*state.update_topology(topology, layout), *layout.warnings))
        if changed:
            self._shared_cpus_file.save(state.layout.preferred_shared)
            self.plugin_server.publish()
            self.plugin_server.publish_health()
            self.plugin_server.update_claim_status()

    async def _restore_cdi_files(self) -> None:
        """Write CDI files again that were deleted: without them no container of a claim can start.

        DIFF: the Go driver does so when a claim is prepared again, which a node does not do for a container
        restart (test_deleted_cdi_files_are_written_again).
        """
        logged: tuple[str, ...] = ()
        for turn in count():
            if turn % _PROBE_TURNS == 0 or self.state.storage.problems:
                await asyncio.to_thread(self.state.storage.probe)
                await asyncio.to_thread(self._shared_cpus_file.save, self.state.layout.preferred_shared)
            if await asyncio.to_thread(lambda: self.state.has_missing_cdi_files):
                log_findings(await asyncio.to_thread(self.state.reconcile_files))
                await self._apply()
            faults = tuple(
                map(str, await self.plugin_server.restore_metadata(lambda: self.state.allocations))
            )
            for fault in faults if faults != logged else ():
                _log.warning("%s", fault)
            logged = faults
            await sleep_to_tick(self._files_interval)

    def _on_link(self) -> None:
        """Handle a change of the connection to the runtime."""
        was_linked = self._unlinked_since is None
        self._unlinked_since = None if self.enforcer.linked else (self._unlinked_since or self._clock())
        self._keep_shared_cpus()
        self._publish_link_state()
        if self.enforcer.linked != was_linked:
            # Statuses may have been written meanwhile for another reason, with another state.
            self.plugin_server.update_claim_status()

    async def _watch_link(self) -> None:
        revision = self.state.revision
        while True:
            await sleep_to_tick(1.0)
            self._keep_shared_cpus()
            self._publish_link_state()
            if revision != (revision := self.state.revision):  # disputes may have changed
                self.plugin_server.update_claim_status()

    def _keep_shared_cpus(self) -> None:
        """Withdraw the last shared CPU from the published ones once containers use the shared pool."""
        if not self.enforcer.linked:
            return
        before, in_use = self._shared_in_use, self.enforcer.shared_in_use
        self._shared_in_use = in_use or (before and self._containers_known)
        self._containers_known = True
        if self._shared_in_use != before:
            self._update_layout(self.state.topology)

    def _publish_link_state(self) -> None:
        if self._is_unlinked() != self._published_unlinked:
            self._published_unlinked = not self._published_unlinked
            self.plugin_server.publish_health()
            self.plugin_server.update_claim_status()

    def _is_unlinked(self) -> bool:
        since = self._unlinked_since
        return since is not None and self._clock() - since >= UNLINKED_SECONDS

    def _offline_allocated(self) -> dict[str, CpuSet]:
        """Return the allocated CPUs that are offline, by device."""
        online = self.state.topology.all
        if self.state.allocated <= online:
            return {}
        return {name: cpus - online for name, cpus in self.state.by_device.items() if not cpus <= online}

    def _devices(self) -> list[dict[str, Any]]:
        """Return the published devices."""
        return self._published.list_devices(
            self.state.topology,
            self.state.layout,
            self._capabilities or ServerCapabilities(),
            offline_allocated=self._offline_allocated(),
            uncounted=self._uncounted(),
        )

    def _attributes(self) -> dict[str, Mapping[str, object]]:
        return {device["name"]: device["attributes"] for device in self._devices()}

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        start_task(self.tasks, work, name).add_done_callback(partial(log_failure, _log))
