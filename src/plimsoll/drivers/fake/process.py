"""START HERE: process that runs simulated drivers on one or many nodes.

`FakeDriverProcess` owns the plugin servers of nodes with sockets, the slices of nodes without, DeviceClasses,
binding conditions, and the control file. A device file that the API would reject is refused at start, with
the position in the file; an invalid control file is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll.api.forms import Form
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import DEVICE_CLASSES
from plimsoll.common.addresses import host_name
from plimsoll.common.config_file import read_document
from plimsoll.common.structured_log import log_event, set_up_logging
from plimsoll.common.tasks import cancel_tasks, stop_on_signals
from plimsoll.drivers.fake.binding_conditions import BindingConditionWriter
from plimsoll.drivers.fake.device_file import find_drivers
from plimsoll.drivers.fake.driver import FakeDriver
from plimsoll.drivers.fake.fault_injection import Control, parse_control
from plimsoll.drivers.fake.plan import BindingPlan, DriverPlan
from plimsoll.drivers.fake.simulated_slices import SimulatedSlices
from plimsoll.drivers.plugin import KUBELET_ROOT
from plimsoll.drivers.plugin.claim_reader import read_claim
from plimsoll.drivers.plugin.plugin_server_group import NodePaths, PluginServerGroup, check_unique_names
from plimsoll.drivers.plugin.wire_form import detect_form
from plimsoll.errors import ApiError, ConfigError, InputError

LOG = logging.getLogger("plimsoll.driver")

#: Checks a plan against the API server's validation before anything is published.
Validate = Callable[[DriverPlan, Form | None], None]

_POLL_SECONDS = 0.2
_READY_SECONDS = 30.0
#: Minimum number of nodes published per second, for the default timeout.
_NODES_PER_SECOND = 20
_MANAGER = "plimsoll-driver-fake"


class FakeDriverProcess:
    """Simulated drivers on some nodes: `run` it, or `start` and `end` it."""

    def __init__(
        self,
        client: Client,
        plans: Sequence[DriverPlan],
        node_paths: Sequence[NodePaths],
        *,
        client_for: Callable[[str], Client] | None = None,
        control: Path | None = None,
        classes: bool = True,
        form: Form | None = None,
        validate: Validate | None = None,
    ) -> None:
        """`client_for` returns the client of a driver by name; the default is `client` for all.

        `form` is the form of node resources; None: the one that the API server supports. `validate` raises
        ConfigError for a plan whose objects the API server would reject.
        """
        check_unique_names([plan.name for plan in plans])
        self.plans = tuple(plans)
        self.node_paths = tuple(node_paths)
        self.drivers: dict[tuple[str, str], FakeDriver] = {}
        self.servers = PluginServerGroup()
        self._client = client
        self._client_for = client_for or (lambda driver: client)
        self._control_file = control
        self._classes = classes
        self._form = form
        self._validate = validate
        self._simulated: dict[str, SimulatedSlices] = {}
        self._stale: set[str] = set()
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._started = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # -- control

    def stop(self) -> None:
        """Request a graceful shutdown; `run` returns when it is complete."""
        self._stop.set()

    def driver(self, name: str = "", node: str = "") -> FakeDriver:
        """Return a driver by name and node; either can be omitted if it is unique."""
        found = [
            driver
            for (own, its_node), driver in self.drivers.items()
            if name in ("", own) and node in ("", its_node)
        ]
        if len(found) != 1:
            known = ", ".join(f"{own} on {its_node}" for own, its_node in list(self.drivers)[:5])
            raise InputError(
                f"driver {name!r} on node {node!r} is ambiguous or unknown; running drivers: {known}"
            )
        return found[0]

    def apply_control(self, control: Control) -> None:
        """Apply a control file to all drivers."""
        for (name, node), driver in self.drivers.items():
            driver.apply_control(control.faults(name, node))

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until all are registered and published; raises ConfigError with what is missing."""
        timeout_seconds = (
            _READY_SECONDS + len(self.node_paths) / _NODES_PER_SECOND if timeout is None else timeout
        )
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._started.wait()
        except TimeoutError:
            raise ConfigError(f"drivers not started after {timeout_seconds:g} s") from None
        await self.servers.wait_ready(timeout_seconds)

    # -- lifecycle

    async def run(self, *, withdraw: bool = False) -> None:
        """Run until `stop` is called or the task is cancelled; `withdraw`: see `end`."""
        await self.start()
        try:
            stopped = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait((stopped, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopped.cancel()
            for task in self._tasks:
                if task.done():
                    task.result()  # raises what ended it
        finally:
            await self.end(withdraw=withdraw)

    async def start(self) -> None:
        """Create drivers and classes, publish and register; see `wait_ready`."""
        form = self._form or await detect_form(self._client)
        for plan in self.plans:
            if self._validate is not None:
                self._validate(plan, form)
        control = await asyncio.to_thread(read_control, self._control_file)
        try:
            for plan in self.plans:
                self._start_plan(plan, form, control)
            if self._classes:
                await ensure_classes(self._client, self.plans)
            await self.servers.start()
            for slices in self._simulated.values():
                await slices.publish()
        except BaseException:
            await self.end()
            raise
        self._started.set()
        self._start_task(self._publish_simulated(), "simulated slices")
        if self._control_file is not None:
            self._start_task(self._watch_control(self._control_file), "control file")

    async def end(self, *, withdraw: bool = False) -> None:
        """Stop everything; with `withdraw` also delete the slices."""
        tasks, self._tasks = self._tasks, []
        await cancel_tasks(tasks)
        await self.servers.stop(withdraw=withdraw)
        if withdraw:
            for slices in self._simulated.values():
                await slices.withdraw()

    # -- internals

    def _start_plan(self, plan: DriverPlan, form: Form | None, control: Control) -> None:
        client = self._client_for(plan.name)
        own: list[FakeDriver] = []
        simulated: list[FakeDriver] = []
        for paths in self.node_paths:
            driver = FakeDriver(plan, paths.node, form=form)
            driver.apply_control(control.faults(plan.name, paths.node))
            self.drivers[plan.name, paths.node] = driver
            own.append(driver)
            if paths.root is None:
                simulated.append(driver)
                driver.on_devices = partial(self._mark_stale, plan.name)
                continue
            server = self.servers.add(driver, client, paths)
            driver.on_devices, driver.on_health = server.publish, server.publish_health
            driver.known = partial(getattr, server, "prepared_claims")
            driver.read_claim = partial(read_claim, client, driver=plan.name)
        if simulated:
            self._simulated[plan.name] = SimulatedSlices(client, simulated)
        if any(device.binding for driver in own[:1] for device in driver.inventory.devices.values()):
            binder = BindingConditionWriter(client, make_binding_finder(own))
            self._start_task(binder.run(), f"conditions of {plan.name}")
        for field in dict.fromkeys(
            field
            for driver in own[:1]
            for device in driver.inventory.devices.values()
            for field in device.dropped_fields
        ):
            LOG.warning("%s: not published, because the API server does not support it: %s", plan.name, field)

    def _mark_stale(self, name: str) -> None:
        self._stale.add(name)
        self._wake.set()

    async def _publish_simulated(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            stale, self._stale = self._stale, set()
            for name in stale:
                try:
                    await self._simulated[name].publish()
                except ApiError as error:
                    LOG.warning("%s: publishing ResourceSlices failed: %s", name, error)
                    await asyncio.sleep(_POLL_SECONDS)
                    self._mark_stale(name)

    async def _watch_control(self, path: Path) -> None:
        problem = ""
        last: Control | None = None
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                control = await asyncio.to_thread(read_control, path)
                problem = ""
            except ConfigError as error:
                if str(error) != problem:
                    LOG.warning("ignoring invalid control file: %s", error)
                problem = str(error)
                continue
            if control != last:
                last = control
                self.apply_control(control)

    def _start_task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))


def read_control(path: Path | None) -> Control:
    """Read a control file; an absent file is empty."""
    if path is None or not path.exists():
        return Control()
    return parse_control(read_document(path, "control file"), str(path))


def make_binding_finder(drivers: Iterable[FakeDriver]) -> Callable[[str, str, str], BindingPlan | None]:
    """Return a function that looks up the binding plan of a device."""
    by_pool = {(driver.name, driver.inventory.pool): driver for driver in drivers}

    def find(driver: str, pool: str, device: str) -> BindingPlan | None:
        found = by_pool.get((driver, pool))
        known = found.inventory.devices.get(device) if found is not None else None
        return known.binding if known is not None else None

    return find


async def ensure_classes(client: Client, plans: Iterable[DriverPlan]) -> None:
    """Create the DeviceClasses of drivers; missing permissions are logged and ignored."""
    for plan in plans:
        for tree in plan.device_classes():
            name = tree["metadata"]["name"]
            try:
                await client.patch(
                    DEVICE_CLASSES, name, tree, type="apply", field_manager=_MANAGER, force=True
                )
            except ApiError as error:
                if error.code != 403:
                    raise
                LOG.warning("DeviceClass %s not created: %s", name, error)


def find_plans(sources: Iterable[str]) -> tuple[DriverPlan, ...]:
    """Read the drivers of several files, by path or built-in name."""
    plans = tuple(plan for source in sources for plan in find_drivers(source))
    check_unique_names([plan.name for plan in plans])
    return plans


def find_node_paths(
    nodes: Sequence[str], root: Path = KUBELET_ROOT, cdi: Path | None = None, *, sockets: bool = True
) -> tuple[NodePaths, ...]:
    """Return the directories of nodes: the root itself for one node, subdirectories by name for several."""
    names = list(dict.fromkeys(nodes)) or [host_name()]
    if not sockets:
        return tuple(NodePaths(name, None) for name in names)
    return tuple(NodePaths(name, root if len(names) == 1 else root / name, cdi) for name in names)


async def serve_fake(
    config: ClientConfig,
    plans: Sequence[DriverPlan],
    node_paths: Sequence[NodePaths],
    *,
    control: Path | None = None,
    classes: bool = True,
    form: Form | None = None,
    validate: Validate | None = None,
    withdraw: bool = False,
    log_format: str = "text",
    verbose: bool = False,
) -> None:
    """Run `plimsoll driver fake` until a signal stops it."""
    set_up_logging(log_format, verbose=verbose)
    async with Client.connect(config) as client:
        process = FakeDriverProcess(
            client, plans, node_paths, control=control, classes=classes, form=form, validate=validate
        )
        stop_on_signals(process.stop)
        names = ",".join(plan.name for plan in plans)
        log_event(
            LOG, "starting", drivers=names, nodes=len(node_paths), server=config.server, pid=os.getpid()
        )
        await process.run(withdraw=withdraw)
    LOG.info("stopped")
