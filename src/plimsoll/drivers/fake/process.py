"""START HERE: drivers of a file as a process, on one or many nodes.

Owns `FakeDriverProcess`: stations on nodes with sockets, slices of nodes without, DeviceClasses, binding
conditions, and the control file that changes how drivers behave while they run. Promises: a file that the API
would not take is refused at the start, with the place in it; a control file that cannot be used is told of
and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
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
from plimsoll.drivers.fake.binding import Binder
from plimsoll.drivers.fake.device_file import find_drivers
from plimsoll.drivers.fake.driver import FakeDriver
from plimsoll.drivers.fake.fault_injection import Control, parse_control
from plimsoll.drivers.fake.plan import Binding, DriverPlan
from plimsoll.drivers.fake.simulated_slices import BareSlices
from plimsoll.drivers.plugin import KUBELET_ROOT
from plimsoll.drivers.plugin.claim_reader import read_claim
from plimsoll.drivers.plugin.plugin_server_group import NodePaths, PluginServerGroup, check_unique_names
from plimsoll.drivers.plugin.wire_form import detect_form
from plimsoll.errors import ApiError, ConfigError, InputError

LOG = logging.getLogger("plimsoll.driver")

#: Checks a plan against the API server's validation before anything is published.
Validate = Callable[[DriverPlan, Form | None], None]

_LOOK_SECONDS = 0.2
_READY_SECONDS = 30.0
#: Nodes that are published in a second, at least.
_NODES_PER_SECOND = 20
_MANAGER = "plimsoll-driver-fake"


class FakeDriverProcess:
    """Drivers of a file on some nodes; `run` it on the loop it is to live on, or `start` and `end` it."""

    def __init__(
        self,
        client: Client,
        plans: Sequence[DriverPlan],
        places: Sequence[NodePaths],
        *,
        client_for: Callable[[str], Client] | None = None,
        control: Path | None = None,
        classes: bool = True,
        form: Form | None = None,
        validate: Validate | None = None,
    ) -> None:
        """`client_for` gives the client that a driver uses, by its name; else all use `client`.

        `form` is how node resources are written; None: as the API server knows them. `validate` raises
        ConfigError for a plan whose objects the API server would refuse.
        """
        check_unique_names([plan.name for plan in plans])
        self.plans = tuple(plans)
        self.places = tuple(places)
        self.drivers: dict[tuple[str, str], FakeDriver] = {}
        self.stations = PluginServerGroup()
        self._client = client
        self._client_for = client_for or (lambda driver: client)
        self._control_file = control
        self._classes = classes
        self._form = form
        self._validate = validate
        self._bare: dict[str, BareSlices] = {}
        self._stale: set[str] = set()
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._started = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # -- from outside

    def stop(self) -> None:
        """Ask for an orderly end; `run` returns when it is reached."""
        self._stop.set()

    def driver(self, name: str = "", node: str = "") -> FakeDriver:
        """The driver of a name on a node; either can be left out where there is one only."""
        found = [
            driver
            for (own, place), driver in self.drivers.items()
            if name in ("", own) and node in ("", place)
        ]
        if len(found) != 1:
            known = ", ".join(f"{own} on {place}" for own, place in list(self.drivers)[:5])
            raise InputError(f"driver {name!r} on node {node!r}: say which of {known}")
        return found[0]

    def follow(self, control: Control) -> None:
        """Have all drivers behave as they are told, and otherwise as their file says."""
        for (name, node), driver in self.drivers.items():
            driver.follow(control.conduct(name, node))

    async def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until all are registered and published; ConfigError says what is missing."""
        patience = _READY_SECONDS + len(self.places) / _NODES_PER_SECOND if timeout is None else timeout
        try:
            async with asyncio.timeout(patience):
                await self._started.wait()
        except TimeoutError:
            raise ConfigError(f"drivers have not started after {patience:g} s") from None
        await self.stations.wait_ready(patience)

    # -- the story

    async def run(self, *, withdraw: bool = False) -> None:
        """Start, and go on until `stop` is called or this is cancelled; `withdraw`: see `end`."""
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
        """Make drivers and classes, publish and register; see `wait_ready`."""
        form = self._form or await detect_form(self._client)
        for plan in self.plans:
            if self._validate is not None:
                self._validate(plan, form)
        orders = await asyncio.to_thread(read_control, self._control_file)
        try:
            for plan in self.plans:
                self._start_plan(plan, form, orders)
            if self._classes:
                await ensure_classes(self._client, self.plans)
            await self.stations.start()
            for slices in self._bare.values():
                await slices.publish()
        except BaseException:
            await self.end()
            raise
        self._started.set()
        self._keep(self._publish_bare(), "slices of nodes without sockets")
        if self._control_file is not None:
            self._keep(self._watch_control(self._control_file), "control file")

    async def end(self, *, withdraw: bool = False) -> None:
        """End all that was started; with `withdraw` slices go too."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.stations.stop(withdraw=withdraw)
        if withdraw:
            for slices in self._bare.values():
                await slices.withdraw()

    # -- inside

    def _start_plan(self, plan: DriverPlan, form: Form | None, orders: Control) -> None:
        client = self._client_for(plan.name)
        own: list[FakeDriver] = []
        bare: list[FakeDriver] = []
        for place in self.places:
            driver = FakeDriver(plan, place.node, form=form)
            driver.follow(orders.conduct(plan.name, place.node))
            self.drivers[plan.name, place.node] = driver
            own.append(driver)
            if place.root is None:
                bare.append(driver)
                driver.on_devices = partial(self._again, plan.name)
                continue
            station = self.stations.add(driver, client, place)
            driver.on_devices, driver.on_health = station.publish, station.publish_health
            driver.known = partial(getattr, station, "prepared_claims")
            driver.look_up = partial(read_claim, client, driver=plan.name)
        if bare:
            self._bare[plan.name] = BareSlices(client, bare)
        if any(device.binding for driver in own[:1] for device in driver.arrangement.devices.values()):
            binder = Binder(client, finder(own))
            self._keep(binder.run(), f"conditions of {plan.name}")
        for loss in dict.fromkeys(
            loss
            for driver in own[:1]
            for device in driver.arrangement.devices.values()
            for loss in device.losses
        ):
            LOG.warning("%s: not published, this API server has no place for it: %s", plan.name, loss)

    def _again(self, name: str) -> None:
        self._stale.add(name)
        self._wake.set()

    async def _publish_bare(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            stale, self._stale = self._stale, set()
            for name in stale:
                try:
                    await self._bare[name].publish()
                except ApiError as error:
                    LOG.warning("%s: slices are not up to date: %s", name, error)
                    await asyncio.sleep(_LOOK_SECONDS)
                    self._again(name)

    async def _watch_control(self, path: Path) -> None:
        problem = ""
        last: Control | None = None
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                control = await asyncio.to_thread(read_control, path)
                problem = ""
            except ConfigError as error:
                if str(error) != problem:
                    LOG.warning("drivers go on as they were: %s", error)
                problem = str(error)
                continue
            if control != last:
                last = control
                self.follow(control)

    def _keep(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))


def read_control(path: Path | None) -> Control:
    """The orders of a control file; none if it is not there."""
    if path is None or not path.exists():
        return Control()
    return parse_control(read_document(path, "control file"), str(path))


def finder(drivers: Iterable[FakeDriver]) -> Callable[[str, str, str], Binding | None]:
    """What becomes of the conditions of a device, wherever it is."""
    by_pool = {(driver.name, driver.arrangement.pool): driver for driver in drivers}

    def find(driver: str, pool: str, device: str) -> Binding | None:
        found = by_pool.get((driver, pool))
        known = found.arrangement.devices.get(device) if found is not None else None
        return known.binding if known is not None else None

    return find


async def ensure_classes(client: Client, plans: Iterable[DriverPlan]) -> None:
    """Have the DeviceClasses of drivers; whoever may not write them is told and does without."""
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
                LOG.warning("the DeviceClass %s is not made: %s", name, error)


def find_plans(sources: Iterable[str]) -> tuple[DriverPlan, ...]:
    """The drivers of several files, by path or ready-made name."""
    plans = tuple(plan for source in sources for plan in find_drivers(source))
    check_unique_names([plan.name for plan in plans])
    return plans


def find_places(
    nodes: Sequence[str], root: Path = KUBELET_ROOT, cdi: Path | None = None, *, sockets: bool = True
) -> tuple[NodePaths, ...]:
    """Where nodes have their sockets: one at the root itself, several in folders of their names below it."""
    names = list(dict.fromkeys(nodes)) or [host_name()]
    if not sockets:
        return tuple(NodePaths(name, None) for name in names)
    return tuple(NodePaths(name, root if len(names) == 1 else root / name, cdi) for name in names)


async def serve_fake(
    config: ClientConfig,
    plans: Sequence[DriverPlan],
    places: Sequence[NodePaths],
    *,
    control: Path | None = None,
    classes: bool = True,
    form: Form | None = None,
    validate: Validate | None = None,
    withdraw: bool = False,
    log_format: str = "text",
    verbose: bool = False,
) -> None:
    """The process behind `plimsoll driver fake`: runs until a signal asks it to stop."""
    set_up_logging(log_format, verbose=verbose)
    async with Client.connect(config) as client:
        process = FakeDriverProcess(
            client, plans, places, control=control, classes=classes, form=form, validate=validate
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, process.stop)
        names = ",".join(plan.name for plan in plans)
        log_event(LOG, "starting", drivers=names, nodes=len(places), server=config.server, pid=os.getpid())
        await process.run(withdraw=withdraw)
    LOG.info("stopped")
