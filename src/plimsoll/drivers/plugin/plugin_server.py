"""DRA plugin server: connects a `Driver` to the API server and to the kubelet or node agent.

Guarantees: sockets exist from `start` to `stop` and are created again if they or their directory are deleted;
claims can be prepared before the first slice is published; neither the node nor the API server has to be
reachable at start, and errors of either never stop the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.client import Client
from plimsoll.common.checkpoint import NodeFinding
from plimsoll.common.tasks import cancel_tasks, sleep_to_tick
from plimsoll.drivers.plugin.claim_handler import ClaimCall, ClaimCallCounters, ClaimHandler
from plimsoll.drivers.plugin.claim_status_writer import SETTLE_SECONDS, ClaimStatusCounters, ClaimStatusWriter
from plimsoll.drivers.plugin.driver import ClaimError, DeviceHealth, DeviceStatus, Driver
from plimsoll.drivers.plugin.metadata import MetadataFiles
from plimsoll.drivers.plugin.prepared_claim_store import PreparedClaimRecord, PreparedClaimStore
from plimsoll.drivers.plugin.services import (
    DRA_VERSIONS,
    HEALTH_INTERVAL_SECONDS,
    HEALTH_VERSIONS,
    HealthStreams,
    handle_claims,
    handle_registration,
)
from plimsoll.drivers.plugin.slice_publisher import SliceCounters, SlicePublisher
from plimsoll.errors import ConfigError, InputError
from plimsoll.protocols import rpc
from plimsoll.protocols.cdi import CdiFault
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

_log = logging.getLogger("plimsoll.driver")

KUBELET_ROOT = Path("/var/lib/kubelet")
CDI_DIR = Path("/var/run/cdi")
#: Interval between checks that the sockets still exist.
SOCKET_POLL_SECONDS = 1.0
#: Time for calls in flight to finish on shutdown; the kubelet's call times out after 45 seconds.
GRACE_SECONDS = 30.0
#: Time for pending claim status writes on shutdown.
STATUS_FLUSH_SECONDS = 1.0
#: Delay before a task that failed unexpectedly is restarted.
RESTART_SECONDS = 5.0

_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_MAX_NAME_LENGTH = 63
_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,63}")


@dataclass
class PluginServerMetrics:
    """Counters of one plugin server."""

    calls: ClaimCallCounters
    slices: SliceCounters
    claim_status: ClaimStatusCounters
    registrations: int = 0
    rejections: int = 0
    sockets_created: int = 0


class PluginServer:
    """Server for one driver on one node.

    `root` is the root directory of the kubelet or node agent, `cdi` the directory for CDI files. `instance`
    enables rolling updates: two processes of one driver, each with its own sockets that contain this text in
    their names. With `publish=False` the server leaves ResourceSlices to other processes.
    """

    def __init__(
        self,
        driver: Driver,
        client: Client,
        node: str,
        *,
        root: Path = KUBELET_ROOT,
        cdi: Path = CDI_DIR,
        publish: bool = True,
        instance: str = "",
        socket_poll: float = SOCKET_POLL_SECONDS,
        health_interval: float = HEALTH_INTERVAL_SECONDS,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """Create the server; raises ConfigError if a name or path is invalid."""
        if not _NAME.fullmatch(driver.name) or len(driver.name) > _MAX_NAME_LENGTH:
            raise ConfigError(
                f"driver name {driver.name!r}:"
                " write a DNS name of at most 63 characters, such as gpu.example.com"
            )
        if instance and not _INSTANCE.fullmatch(instance):
            raise ConfigError(f"instance {instance!r}: at most 63 letters, digits, '.', '_' and '-'")
        suffix = f"-{instance}" if instance else ""
        self.driver = driver
        self.node = node
        self.plugin_dir = root.absolute() / "plugins" / driver.name
        #: Sockets: DRA and health services, and plugin registration.
        self.endpoint = rpc.check_path(self.plugin_dir / f"dra{suffix}.sock")
        registry = root.absolute() / "plugins_registry"
        self.registration = rpc.check_path(registry / f"{driver.name}{suffix}-reg.sock")
        #: Problems with the checkpoint of an earlier process.
        self.findings: tuple[NodeFinding, ...] = ()
        self._store = PreparedClaimStore(driver.name, self.plugin_dir, cdi)
        self._metadata = MetadataFiles(driver.name, self.plugin_dir, cdi)
        lock = self.plugin_dir / "serialize.lock" if instance else None
        self._calls = ClaimHandler(driver, client, self._store, self._metadata, lock=lock)
        self._client = client
        self._publisher = SlicePublisher(client, driver.name, node)
        self._publish = publish
        self._health = HealthStreams(self._collect_health, interval=health_interval)
        self._serves_health = type(driver).health is not Driver.health
        self._socket_poll = socket_poll
        self._grace = grace
        self.status_writer = ClaimStatusWriter(client, driver.name, settle=0.0)
        self._status_task: asyncio.Task[None] | None = None
        self._status_timer: asyncio.TimerHandle | None = None
        self._sets_claim_status = False
        self._calls.counters.observers.append(self._on_claim_call)
        self.metrics = PluginServerMetrics(
            self._calls.counters, self._publisher.counters, self.status_writer.counters
        )
        self._registered = False
        self._registration_error = ""
        self._pools_error = ""
        self._registration_changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._servers: dict[Path, _Server] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # -- state

    @property
    def registered(self) -> bool:
        """True if the node has accepted the driver's registration."""
        return self._registered

    @property
    def registration_error(self) -> str:
        """Reason why the registration failed, or ""."""
        return self._registration_error

    @property
    def published(self) -> bool:
        """True if all slices match the driver's pools."""
        return self._publish and self._publisher.published and not self._pools_error

    @property
    def publish_errors(self) -> tuple[str, ...]:
        """Reasons why slices do not match the driver's pools."""
        own = (self._pools_error,) if self._pools_error else ()
        return own + (self._publisher.problems if self._publish else ())

    @property
    def claim_status_synced(self) -> bool:
        """True if no device status is waiting to be written to a claim."""
        return self._status_timer is None and self.status_writer.synced

    @property
    def claim_status_errors(self) -> tuple[str, ...]:
        """Reasons why device statuses could not be written. They do not affect preparing claims."""
        return self.status_writer.problems

    @property
    def health_watched(self) -> bool:
        """True if a node is connected to the health stream, as every running node with health support is."""
        return self._health.open > 0

    @property
    def prepared_claims(self) -> Mapping[str, PreparedClaimRecord]:
        """Prepared claims by UID, for drivers that return `InjectedDevice`; those of former runs included."""
        return self._store.claims

    # -- updates

    def publish(self) -> None:
        """Publish `Driver.pools`; call it when they have changed."""
        if not self._publish:
            return
        try:
            pools = self.driver.pools()
            errors = () if pools is None else self._publisher.set_pools(pools)
        except Exception as error:
            self._pools_error = f"pools(): {type(error).__name__}: {error}"
            _log.exception("driver %s: pools() failed", self.driver.name)
            return
        self._pools_error = ""
        for invalid in errors:
            _log.error("driver %s: %s", self.driver.name, invalid)

    def publish_health(self) -> None:
        """Send `Driver.health` to the node; call it when it has changed."""
        self._health.notify()

    def update_claim_status(self) -> None:
        """Write `Driver.device_statuses` after a short delay that merges several changes into one."""
        if self._status_task is not None and self._status_timer is None:
            loop = asyncio.get_running_loop()
            self._status_timer = loop.call_later(SETTLE_SECONDS, self._refresh_claim_status)

    def _refresh_claim_status(self) -> None:
        if self._status_timer is not None:
            self._status_timer.cancel()
            self._status_timer = None
        injected = [
            DeviceStatus(claim.ref, device.pool, device.device, device.share_id, device.data)
            for claim in self._store.claims.values()
            for device in claim.devices
            if device.data is not None
        ]
        try:
            own = self.driver.device_statuses()
            self._sets_claim_status = own is not None
            self.status_writer.set_statuses([*injected, *(own or ())])
        except Exception:
            _log.exception("driver %s: device_statuses() failed", self.driver.name)

    def _on_claim_call(self, call: ClaimCall) -> None:
        """Update device statuses after a claim was prepared or unprepared."""
        if call.refusal is not None:
            return
        if call.method == "unprepare" and self._sets_claim_status and call.ref.name:
            self.status_writer.clear(call.ref)  # including those of an earlier process
        self.update_claim_status()

    async def update_metadata(
        self, ref: ClaimRef, request: str, devices: Sequence[PreparedDevice]
    ) -> ClaimError | None:
        """Replace the metadata that containers read about the devices of a prepared request."""
        return await asyncio.to_thread(self._metadata.update, ref, request, devices)

    async def restore_metadata(self, uids: Callable[[], Container[str]]) -> list[CdiFault]:
        """Write missing CDI files of device metadata for these claims."""
        return await self._calls.restore(uids)

    def list_metadata_claims(self) -> dict[str, ClaimRef]:
        """Return the claims that have device metadata in the plugin directory, by UID. Blocks."""
        return self._metadata.list_claims()

    async def prepare(self, ref: ClaimRef) -> ClaimError | None:
        """Prepare a claim as if the node had requested it."""
        response = (await self._calls.prepare([ref]))[ref.uid]
        return response if isinstance(response, ClaimError) else None

    async def release(self, ref: ClaimRef) -> ClaimError | None:
        """Unprepare a claim as if the node had requested it."""
        return await self._calls.release(ref)

    # -- lifecycle

    async def start(self) -> None:
        """Serve, register and start publishing; raises ConfigError if the sockets cannot be created."""
        self._stopping.clear()
        self._health.reopen()
        self._publisher = SlicePublisher(
            self._client, self.driver.name, self.node, counters=self._publisher.counters
        )
        try:
            self.plugin_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.plugin_dir}: {error.strerror}") from None
        self.findings = await asyncio.to_thread(self._store.open)
        for finding in self.findings:
            _log.error("driver %s: %s", self.driver.name, finding.what)
        # The DRA socket first: the node must not find the driver before it can serve claims.
        try:
            await self._serve(self.endpoint)
            await self._serve(self.registration)
        except BaseException:
            await self._close_sockets()
            raise
        self._tasks.append(asyncio.create_task(self._watch_sockets(), name=f"sockets of {self.driver.name}"))
        if type(self.driver).watch is not Driver.watch:
            self._tasks.append(self._start_restarting(partial(self.driver.watch, self), "watch()"))
        self._refresh_claim_status()
        self._status_task = self._start_restarting(self.status_writer.run, "writing claim status")
        if self._publish:
            self.publish()
            self._tasks.append(self._start_restarting(self._publisher.run, "publishing"))

    async def run(self) -> None:
        """Run until `stop` is called or the task is cancelled."""
        await self.start()
        try:
            await self._stopping.wait()
        finally:
            await self.stop()

    async def stop(self, *, withdraw: bool = False) -> None:
        """Unregister, finish calls in flight and, with `withdraw`, delete the slices."""
        self._stopping.set()
        tasks, self._tasks = self._tasks, []
        await cancel_tasks(tasks)
        await self._close_sockets()
        await self._stop_status_writer()
        if withdraw and self._publish:
            problem = await self._publisher.withdraw()
            if problem:
                _log.warning("driver %s: ResourceSlices not deleted: %s", self.driver.name, problem)

    async def wait_registered(self, timeout: float = 30.0) -> str:
        """Wait until the node has registered the driver; return "" or the reason why it did not in time."""
        try:
            async with asyncio.timeout(timeout):
                while not self._registered:
                    self._registration_changed.clear()
                    await self._registration_changed.wait()
        except TimeoutError:
            if self._registration_error:
                return (
                    "kubelet did not register the plugin, last rejection was"
                    f' "{self._registration_error}" ({timeout:g} s)'
                )
            if self.metrics.rejections:
                return f"kubelet did not register the plugin and reported no reason ({timeout:g} s)"
            return (
                "kubelet never reported a registration status,"
                f" check that it watches {self.registration.parent} ({timeout:g} s)"
            )
        return ""

    # -- sockets

    async def _serve(self, path: Path) -> None:
        if path == self.endpoint:
            handlers = handle_claims(self._calls.prepare, self._calls.unprepare)
            if self._serves_health:
                handlers += self._health.handlers()
        else:
            handlers = [handle_registration(self.info, self._on_registration_status)]
        try:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{path.parent}: {error.strerror}") from None
        server = await rpc.serve(path, handlers, rename=True)
        self._servers[path] = _Server(server, _file_identity(path))
        self.metrics.sockets_created += 1

    def info(self) -> Mapping[str, Any]:
        versions = [*DRA_VERSIONS, *(HEALTH_VERSIONS if self._serves_health else ())]
        return {
            "type": "DRAPlugin",
            "name": self.driver.name,
            "endpoint": str(self.endpoint),
            "supported_versions": versions,
        }

    def _on_registration_status(self, registered: bool, error: str) -> None:
        self._registered = registered
        self._registration_error = "" if registered else error
        if registered:
            self.metrics.registrations += 1
            _log.info("driver %s registered", self.driver.name)
        else:
            self.metrics.rejections += 1
            _log.error("driver %s: registration failed: %s", self.driver.name, error)
        self._registration_changed.set()

    async def _watch_sockets(self) -> None:
        """Create sockets again that were deleted: a node may clean its directories when it starts.

        DIFF: the Go helper keeps serving on the deleted socket until it is restarted
        (test_sockets_are_recreated_when_their_directories_are_deleted).
        """
        logged = ""
        while True:
            await sleep_to_tick(self._socket_poll)
            try:
                for path in (self.endpoint, self.registration):
                    current = self._servers.get(path)
                    if current is None or current.identity != _file_identity(path):
                        await self._recreate_socket(path)
                logged = ""
            except InputError as error:
                self._registered, self._registration_error = False, str(error)
                if logged != str(error):
                    logged = str(error)
                    _log.error("driver %s: %s", self.driver.name, error)

    async def _recreate_socket(self, path: Path) -> None:
        if rpc.is_listening(path):
            raise ConfigError(f"{path}: another process is serving on this socket")
        _log.warning("driver %s: %s was deleted; creating it again", self.driver.name, path)
        await self._close(path)
        await self._serve(path)
        if path == self.endpoint and self.registration in self._servers:
            # The node is connected to the deleted socket: it has to discover the driver again.
            await self._close(self.registration)
            await self._serve(self.registration)
        self._registered = False

    async def _close(self, path: Path) -> None:
        """Stop serving and remove the socket, unless the path belongs to another socket by now."""
        current = self._servers.pop(path, None)
        if current is None:
            return
        if current.identity == _file_identity(path):
            path.unlink(missing_ok=True)
        if path == self.endpoint:
            self._health.notify()
        await current.server.stop(1.0)

    async def _close_sockets(self) -> None:
        """Close the registration socket, wait for calls in flight, then close the DRA socket."""
        await self._close(self.registration)
        await self._calls.finish(self._grace)
        self._health.close()
        await self._close(self.endpoint)
        self._registered = False

    # -- slices, health and device monitoring

    def _start_restarting(self, run: Callable[[], Awaitable[None]], what: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._restart(run, what), name=f"{what} of {self.driver.name}")

    async def _restart(self, run: Callable[[], Awaitable[None]], what: str) -> None:
        """Run something; start it again when it fails."""
        while True:
            try:
                await run()
                return
            except InputError as error:
                _log.error("driver %s: %s failed: %s", self.driver.name, what, error)
            except Exception:
                _log.exception("driver %s: %s failed", self.driver.name, what)
            await asyncio.sleep(RESTART_SECONDS)

    async def _stop_status_writer(self) -> None:
        """Flush pending status writes and stop. Statuses of prepared claims stay."""
        task, self._status_task = self._status_task, None
        if task is not None:
            if self._status_timer is not None:
                self._refresh_claim_status()
            await self.status_writer.finish(STATUS_FLUSH_SECONDS)
            await cancel_tasks((task,))

    def _collect_health(self) -> Sequence[DeviceHealth] | None:
        try:
            return list(self.driver.health())
        except Exception:
            _log.exception("driver %s: health() failed", self.driver.name)
            return None


@dataclass(frozen=True, slots=True)
class _Server:
    """gRPC server with the identity (device, inode) of its socket file."""

    server: rpc.RpcServer
    identity: tuple[int, int] | None


def _file_identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        current = os.lstat(path)
        return current.st_dev, current.st_ino
    return None
