"""A driver at its place: on a node, in touch with the API server and with the kubelet or node agent.

`PluginServer` owns all parts of the framework. It guarantees: sockets are there from `start` to `stop`, and
are made anew when somebody takes them or their folder away; claims are answered before the first slice is
published; neither the node nor the API server needs to be there for it to start, and nothing of what they say
ends it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from plimsoll.client import Client
from plimsoll.common.checkpoint import Finding
from plimsoll.drivers.plugin.calls import Call, CallCounters, Calls
from plimsoll.drivers.plugin.claim_status_writer import SETTLE_SECONDS, ReportCounters, Reporter
from plimsoll.drivers.plugin.driver import DeviceHealth, DeviceReport, Driver, Refusal
from plimsoll.drivers.plugin.metadata import MetadataFiles
from plimsoll.drivers.plugin.prepared_claim_store import PreparedClaim, PreparedClaimStore
from plimsoll.drivers.plugin.services import (
    DRA_VERSIONS,
    HEALTH_SECONDS,
    HEALTH_VERSIONS,
    HealthStreams,
    handle_claims,
    handle_registration,
)
from plimsoll.drivers.plugin.slice_publisher import PublishCounters, Publisher
from plimsoll.errors import ConfigError, InputError
from plimsoll.protocols import rpc
from plimsoll.protocols.cdi import CdiFault
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

_log = logging.getLogger("plimsoll.driver")

KUBELET_ROOT = Path("/var/lib/kubelet")
CDI_FOLDER = Path("/var/run/cdi")
#: How often the sockets are looked for.
LOOK_SECONDS = 1.0
#: How long calls under way may take when the driver ends; a node waits for 45 seconds.
GRACE_SECONDS = 30.0
#: How long the status of claims may still be written when the driver ends.
REPORT_SECONDS = 1.0
#: What failed, and should not have, begins again after this.
AGAIN_SECONDS = 5.0

_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME_LONGEST = 63
_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,63}")


@dataclass
class PluginServerMetrics:
    """Everything that is counted."""

    calls: CallCounters
    slices: PublishCounters
    reports: ReportCounters
    registrations: int = 0
    rejections: int = 0
    sockets_made: int = 0


class PluginServer:
    """A driver on a node.

    `root` is the root folder of the kubelet or node agent, `cdi` the folder for CDI files. `instance` is for
    rolling updates: two processes of one driver, each with sockets of its own that carry this text. With
    `publish=False` slices are somebody else's business.
    """

    def __init__(
        self,
        driver: Driver,
        client: Client,
        node: str,
        *,
        root: Path = KUBELET_ROOT,
        cdi: Path = CDI_FOLDER,
        publish: bool = True,
        instance: str = "",
        look: float = LOOK_SECONDS,
        health_every: float = HEALTH_SECONDS,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """ConfigError if names or folders cannot be used."""
        if not _NAME.fullmatch(driver.name) or len(driver.name) > _NAME_LONGEST:
            raise ConfigError(
                f"driver name {driver.name!r}:"
                " write a DNS name of at most 63 characters, such as gpu.example.com"
            )
        if instance and not _INSTANCE.fullmatch(instance):
            raise ConfigError(f"instance {instance!r}: at most 63 letters, digits, '.', '_' and '-'")
        suffix = f"-{instance}" if instance else ""
        self.driver = driver
        self.node = node
        self.folder = root.absolute() / "plugins" / driver.name
        #: The sockets: for claims and health, and the one at which nodes find the driver.
        self.endpoint = rpc.check_path(self.folder / f"dra{suffix}.sock")
        registry = root.absolute() / "plugins_registry"
        self.registration = rpc.check_path(registry / f"{driver.name}{suffix}-reg.sock")
        #: What was wrong with the record of a former run.
        self.findings: tuple[Finding, ...] = ()
        self._hands = PreparedClaimStore(driver.name, self.folder, cdi)
        self._metadata = MetadataFiles(driver.name, self.folder, cdi)
        lock = self.folder / "serialize.lock" if instance else None
        self._calls = Calls(driver, client, self._hands, self._metadata, lock=lock)
        self._client = client
        self._publisher = Publisher(client, driver.name, node)
        self._publish = publish
        self._health = HealthStreams(self._report_health, every=health_every)
        self._tells_health = type(driver).health is not Driver.health
        self._look = look
        self._grace = grace
        self._reporter = Reporter(client, driver.name, settle=0.0)
        self._reporting: asyncio.Task[None] | None = None
        self._report_soon: asyncio.TimerHandle | None = None
        self._tells_claims = False
        self._calls.counters.observers.append(self._report_call)
        self.metrics = PluginServerMetrics(
            self._calls.counters, self._publisher.counters, self._reporter.counters
        )
        self._registered = False
        self._registration_error = ""
        self._pools_error = ""
        self._heard = asyncio.Event()
        self._stopping = asyncio.Event()
        self._servers: dict[Path, _Server] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # -- looking

    @property
    def registered(self) -> bool:
        """Whether the node has taken the driver, as far as it said."""
        return self._registered

    @property
    def registration_error(self) -> str:
        """Why the node, or the machine, refuses the driver."""
        return self._registration_error

    @property
    def published(self) -> bool:
        """Whether all slices are as the driver wants them."""
        return self._publish and self._publisher.published and not self._pools_error

    @property
    def publish_errors(self) -> tuple[str, ...]:
        """Why slices are not as the driver wants them."""
        own = (self._pools_error,) if self._pools_error else ()
        return own + (self._publisher.problems if self._publish else ())

    @property
    def reported(self) -> bool:
        """Whether all claims tell what the driver wants of its devices, as far as that can be had."""
        return self._report_soon is None and self._reporter.in_line

    @property
    def report_errors(self) -> tuple[str, ...]:
        """Why claims do not tell what the driver wants; it works all the same."""
        return self._reporter.problems

    @property
    def watched(self) -> bool:
        """Whether a node listens to the driver's health now: a node that is there does."""
        return self._health.open > 0

    @property
    def handed(self) -> Mapping[str, PreparedClaim]:
        """Prepared claims by UID, for drivers that return `InjectedDevice`; those of former runs included."""
        return self._hands.claims

    # -- telling

    def publish(self) -> None:
        """Tell it that `Driver.pools` has changed."""
        if not self._publish:
            return
        try:
            pools = self.driver.pools()
            faults = () if pools is None else self._publisher.want(pools)
        except Exception as error:
            self._pools_error = f"pools(): {type(error).__name__}: {error}"
            _log.exception("driver %s: it cannot say what to publish", self.driver.name)
            return
        self._pools_error = ""
        for fault in faults:
            _log.error("driver %s: %s", self.driver.name, fault)

    def tell_health(self) -> None:
        """Tell it that `Driver.health` has changed."""
        self._health.tell()

    def report(self) -> None:
        """Tell it that `Driver.reports` has changed; it is asked in a moment, once for many changes."""
        if self._reporting is not None and self._report_soon is None:
            loop = asyncio.get_running_loop()
            self._report_soon = loop.call_later(SETTLE_SECONDS, self._ask_reports)

    def _ask_reports(self) -> None:
        if self._report_soon is not None:
            self._report_soon.cancel()
            self._report_soon = None
        handed = [
            DeviceReport(claim.ref, device.pool, device.device, device.share_id, device.data)
            for claim in self._hands.claims.values()
            for device in claim.devices
            if device.data is not None
        ]
        try:
            own = self.driver.reports()
            self._tells_claims = own is not None
            self._reporter.want([*handed, *(own or ())])
        except Exception:
            _log.exception("driver %s: it cannot say what claims should tell", self.driver.name)

    def _report_call(self, call: Call) -> None:
        """A claim was made ready or released: what claims tell may be something else now."""
        if call.refusal is not None:
            return
        if call.method == "unprepare" and self._tells_claims:
            self._reporter.clear(call.ref)  # also what a former run told
        self.report()

    async def update_metadata(
        self, ref: ClaimRef, request: str, devices: Sequence[PreparedDevice]
    ) -> Refusal | None:
        """Tell containers something else about the devices of a request that was made ready."""
        return await asyncio.to_thread(self._metadata.update, ref, request, devices)

    async def restore_metadata(self, uids: Callable[[], Container[str]]) -> list[CdiFault]:
        """Write the CDI files again by which containers of these claims read about their devices."""
        return await self._calls.restore(uids)

    async def release(self, ref: ClaimRef) -> Refusal | None:
        """Release a claim as if the node had asked for it."""
        return (await self._calls.unprepare([ref]))[ref.uid]

    # -- life

    async def start(self) -> None:
        """Serve, register and begin to publish; ConfigError if the sockets cannot be had."""
        self._stopping.clear()
        self._health.reopen()
        self._publisher = Publisher(
            self._client, self.driver.name, self.node, counters=self._publisher.counters
        )
        try:
            self.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.folder}: {error.strerror}") from None
        self.findings = await asyncio.to_thread(self._hands.open)
        for finding in self.findings:
            _log.error("driver %s: %s", self.driver.name, finding.what)
        # Claims first: nobody may find the driver before it can answer.
        try:
            await self._serve(self.endpoint)
            await self._serve(self.registration)
        except BaseException:
            await self._close_sockets()
            raise
        self._tasks.append(asyncio.create_task(self._watch_sockets(), name=f"sockets of {self.driver.name}"))
        if type(self.driver).watch is not Driver.watch:
            self._tasks.append(asyncio.create_task(self._watch_devices(), name=f"of {self.driver.name}"))
        self._ask_reports()
        self._reporting = asyncio.create_task(self._report_forever(), name=f"of {self.driver.name}")
        if self._publish:
            self.publish()
            self._tasks.append(asyncio.create_task(self._publish_forever(), name=f"of {self.driver.name}"))

    async def run(self) -> None:
        """Start, and go on until `stop` is called or this is cancelled."""
        await self.start()
        try:
            await self._stopping.wait()
        finally:
            await self.stop()

    async def stop(self, *, withdraw: bool = False) -> None:
        """End in good order: leave the node, finish calls, and with `withdraw` take the slices along."""
        self._stopping.set()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._close_sockets()
        await self._end_reporting()
        if withdraw and self._publish:
            problem = await self._publisher.withdraw()
            if problem:
                _log.warning("driver %s: its slices stay: %s", self.driver.name, problem)

    async def wait_registered(self, timeout: float = 30.0) -> str:
        """Wait for the node to take the driver; why it has not, after so many seconds."""
        try:
            async with asyncio.timeout(timeout):
                while not self._registered:
                    self._heard.clear()
                    await self._heard.wait()
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
            if self._tells_health:
                handlers += self._health.handlers()
        else:
            handlers = [handle_registration(self._info, self._notified)]
        try:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{path.parent}: {error.strerror}") from None
        server = await rpc.serve(path, handlers, aside=True)
        self._servers[path] = _Server(server, _identity(path))
        self.metrics.sockets_made += 1

    def _info(self) -> Mapping[str, Any]:
        versions = [*DRA_VERSIONS, *(HEALTH_VERSIONS if self._tells_health else ())]
        return {
            "type": "DRAPlugin",
            "name": self.driver.name,
            "endpoint": str(self.endpoint),
            "supported_versions": versions,
        }

    def _notified(self, registered: bool, error: str) -> None:
        self._registered = registered
        self._registration_error = "" if registered else error
        if registered:
            self.metrics.registrations += 1
            _log.info("driver %s is registered", self.driver.name)
        else:
            self.metrics.rejections += 1
            _log.error("driver %s is not registered: %s", self.driver.name, error)
        self._heard.set()

    async def _watch_sockets(self) -> None:
        """Make sockets anew that somebody took away: a node that starts afresh may wipe its folders.

        DIFF: the Go helper serves on in vain until somebody starts it again
        (test_sockets_are_made_anew_when_their_folders_are_wiped).
        """
        told = ""
        while True:
            await asyncio.sleep(self._look)
            try:
                for path in (self.endpoint, self.registration):
                    found = self._servers.get(path)
                    if found is None or found.identity != _identity(path):
                        await self._remake(path)
                told = ""
            except InputError as error:
                self._registered, self._registration_error = False, str(error)
                if told != str(error):
                    told = str(error)
                    _log.error("driver %s: %s", self.driver.name, error)

    async def _remake(self, path: Path) -> None:
        if rpc.answers(path):
            raise ConfigError(f"{path}: somebody else serves on this socket")
        _log.warning("driver %s: %s is gone; making it anew", self.driver.name, path)
        await self._close(path)
        await self._serve(path)
        if path == self.endpoint and self.registration in self._servers:
            # The node is connected to a socket that is no more: it has to find the driver again.
            await self._close(self.registration)
            await self._serve(self.registration)
        self._registered = False

    async def _close(self, path: Path) -> None:
        """Stop serving; the socket goes, unless it is another one by now."""
        found = self._servers.pop(path, None)
        if found is None:
            return
        if found.identity == _identity(path):
            path.unlink(missing_ok=True)
        if path == self.endpoint:
            self._health.tell()
        await found.server.stop(1.0)

    async def _close_sockets(self) -> None:
        """Leave: first nobody finds the driver, then calls under way end, then nobody reaches it."""
        await self._close(self.registration)
        await self._calls.finish(self._grace)
        self._health.close()
        await self._close(self.endpoint)
        self._registered = False

    # -- slices, health and the driver's own work

    async def _watch_devices(self) -> None:
        while True:
            try:
                await self.driver.watch(self)
                return
            except Exception:
                _log.exception("driver %s: watching its devices failed", self.driver.name)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _publish_forever(self) -> None:
        """Publishing ends for nothing but a bug, and then it begins again."""
        while True:
            try:
                await self._publisher.run()
            except InputError as error:
                _log.error("driver %s: publishing: %s", self.driver.name, error)
            except Exception:
                _log.exception("driver %s: publishing failed", self.driver.name)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _report_forever(self) -> None:
        while True:
            try:
                await self._reporter.run()
            except Exception:
                _log.exception("driver %s: writing the status of claims failed", self.driver.name)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _end_reporting(self) -> None:
        """What claims tell stays; of those just released it goes."""
        task, self._reporting = self._reporting, None
        if task is not None:
            if self._report_soon is not None:
                self._ask_reports()
            await self._reporter.finish(REPORT_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _report_health(self) -> Sequence[DeviceHealth] | None:
        try:
            return list(self.driver.health())
        except Exception:
            _log.exception("driver %s: it cannot say how its devices are", self.driver.name)
            return None


@dataclass(frozen=True, slots=True)
class _Server:
    """A server, and which file its socket is."""

    server: grpc.aio.Server
    identity: tuple[int, int] | None


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.lstat(path)
        return found.st_dev, found.st_ino
    return None
