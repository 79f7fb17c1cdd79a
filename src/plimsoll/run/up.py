"""A whole cluster on this machine: API server, scheduler, a node that runs processes, and the CPU driver.

Owns `Up`: which parts there are, where their files are, and the order in which they come and go. Everything
is on one loop of one process and listens on loopback; each part is the user it would be in a real cluster.
Promises: the cluster is usable when `ready` returns; whoever ends it finds everything again when it is
started again over the same folder, and meanwhile nothing runs on, unless that is asked for.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from plimsoll.api.gates import Gates
from plimsoll.cluster.client.endpoints import DEVICE_CLASSES
from plimsoll.cluster.server.security.users import SCHEDULER, driver_user, node_user
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, Enforcement
from plimsoll.errors import ApiError, ConfigError
from plimsoll.node.agent import Agent
from plimsoll.node.containers import Phase
from plimsoll.node.layout import Layout
from plimsoll.node.machine.file import parse_machine
from plimsoll.run.driver.fake import FakeDriverProcess, find_plans
from plimsoll.run.driver.process import CpuDriverProcess
from plimsoll.run.driver.stations import Place
from plimsoll.run.node.local import MACHINE
from plimsoll.run.node.process import NodeProcess
from plimsoll.run.node.settings import NodeSettings, host_name
from plimsoll.run.scheduler.logs import set_up_logging
from plimsoll.run.scheduler.process import SchedulerProcess
from plimsoll.run.scheduler.settings import DEFAULT_NAME, NAME, SchedulerSettings
from plimsoll.run.server import RunningServer, ServerSettings, start_server

_READY_SECONDS = 60.0
_STOP_SECONDS = 30.0
#: How long containers have to end when all ends.
_GRACE_SECONDS = 5.0
#: A unix socket's path has no more bytes.
_SOCKET_PATH = 107


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """What is run, and where its files are."""

    data: Path = Path("plimsoll-data")
    host: str = "127.0.0.1"
    port: int = 6443
    name: str = ""  #: of the node; "": the host's name
    runtime: Literal["process", "none"] = "process"
    nodes: int = 0  #: simulated ones beside it
    driver: bool = True
    driver_listen: str = "127.0.0.1:0"  #: its health and metrics; "" for none
    devices: tuple[str, ...] = ()  #: files of devices that all nodes have; see docs/drivers.md
    #: How CPUs are handed out; node and folders are filled in.
    cpu: CpuSettings = field(default_factory=lambda: CpuSettings(node=""))
    leave_running: bool = False
    gates: Gates = field(default_factory=Gates.all_on)
    log_format: str = "text"
    verbose: bool = False

    @property
    def root(self) -> Path:
        """The node's folder, with the sockets for drivers and monitoring agents."""
        return self.data / "node"

    @property
    def kubeconfig(self) -> Path:
        return self.data / "kubeconfig"

    @property
    def control(self) -> Path:
        """A file, if there is one, that says how the drivers of `devices` behave."""
        return self.data / "control.yaml"

    @property
    def node(self) -> str:
        return self.name or host_name()


class Up:
    """The parts of one cluster; `run` it on the loop it is to live on."""

    def __init__(self, settings: UpSettings) -> None:
        self.settings = replace(settings, data=settings.data.absolute())
        self.server: RunningServer | None = None
        self.scheduler: SchedulerProcess | None = None
        self.nodes: list[NodeProcess] = []
        self.driver: CpuDriverProcess | None = None
        self.devices: FakeDriverProcess | None = None
        self._tasks: list[tuple[asyncio.Task[None], Callable[[], None]]] = []
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Ask for an orderly end; `run` returns when it is reached."""
        self._stop.set()

    async def run(self, ready: Callable[[Up], None] = lambda _: None) -> None:
        """Start everything, tell, and wait; until `stop`, or until a part fails."""
        self._check()
        self.server = await self._start_server()
        try:
            if await self._or_stopped(self._start_parts(self.server)):
                ready(self)
                await self._wait()
        finally:
            await self._end()
            await self.server.stop()

    def lines(self) -> list[str]:
        """How the cluster is used, for people."""
        settings = self.settings
        assert self.server is not None
        found = [
            f"API server   {self.server.url}",
            f"kubeconfig   {settings.kubeconfig}",
            f"node         {settings.node} (runtime {settings.runtime}), sockets in {settings.root}",
        ]
        if settings.nodes:
            found.append(f"simulated    sim-0 to sim-{settings.nodes - 1}")
        if self.driver is not None:
            found.append(f"driver       {DRIVER_NAME}: class {DRIVER_NAME}, node {settings.node}")
            if self.driver.address:
                found.append(f"             plimsoll driver cpu status --address {self.driver.address}")
        for plan in self.devices.plans if self.devices is not None else ():
            classes = ", ".join(each.name for each in plan.classes) or "none"
            found.append(f"driver       {plan.name}: class {classes}, all nodes")
        return [
            *found,
            "",
            f"  export KUBECONFIG={settings.kubeconfig}",
            "  kubectl get nodes,resourceslices,deviceclasses",
            "",
            "Ctrl-C ends it; the same command brings it back as it was.",
        ]

    # -- beginning

    def _check(self) -> None:
        self._node_settings()  # names are refused before anything is made
        drivers = [DRIVER_NAME, *(plan.name for plan in find_plans(self.settings.devices))]
        sockets = [f"plugins_registry/{driver}-reg.sock" for driver in drivers]
        for name in (*sockets, "pod-resources/kubelet.sock"):
            path = self.settings.root / name
            if len(str(path).encode()) > _SOCKET_PATH:
                raise ConfigError(
                    f"--data: {self.settings.data}: too long for sockets below it: {path} has "
                    f"{len(str(path).encode())} bytes, {_SOCKET_PATH} are possible; give a shorter folder"
                )

    async def _start_server(self) -> RunningServer:
        settings = self.settings
        try:
            server = await start_server(
                ServerSettings(
                    data=settings.data / "server",
                    host=settings.host,
                    port=settings.port,
                    gates=settings.gates,
                )
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}; "
                "give another address with --listen"
            ) from None
        server.write_kubeconfig(settings.kubeconfig)
        return server

    async def _start_parts(self, server: RunningServer) -> None:
        settings = self.settings
        # Its scheduler is everybody's: pods that name none are its own, too.
        wanted = SchedulerSettings(gates=settings.gates, listen="").named((DEFAULT_NAME, NAME))
        self.scheduler = SchedulerProcess(server.client(SCHEDULER), wanted)
        self._begin("scheduler", self.scheduler.run(), self.scheduler.stop)
        await self._usable(self.scheduler.ready(_READY_SECONDS))
        for node in self._node_settings():
            many = node.count > 1
            client = server.client() if many else server.client(node_user(node.names[0]))
            process = NodeProcess(client, node, client_for=lambda name: server.client(node_user(name)))
            self.nodes.append(process)
            self._begin(f"node {node.names[0]}", process.run(), process.stop)
        await asyncio.gather(*(self._usable(node.ready(_READY_SECONDS)) for node in self.nodes))
        if settings.driver:
            await self._start_driver(server)
        if settings.devices:
            await self._start_devices(server)

    def _node_settings(self) -> list[NodeSettings]:
        settings = self.settings
        own = NodeSettings(
            name=settings.node, root=settings.root, runtime=settings.runtime, gates=settings.gates, listen=""
        )
        if not settings.nodes:
            return [own.checked()]
        simulated = NodeSettings(
            name="sim" if settings.nodes > 1 else "sim-0",
            count=settings.nodes,
            root=settings.data / "simulated",
            runtime="none",
            bare=True,
            machine=parse_machine(MACHINE),
            gates=settings.gates,
            listen="",
        )
        return [own.checked(), simulated.checked()]

    async def _start_driver(self, server: RunningServer) -> None:
        layout = Layout(self.settings.root)
        await ensure_class(server)
        cpu = self.settings.cpu
        settings = replace(
            cpu,
            node=self.settings.node,
            kubelet_root=layout.root,
            cdi=layout.cdi,
            nri=layout.nri,
            # The node has NRI, if not at once.
            pin=replace(cpu.pin, enforcement=Enforcement.NRI) if _is_auto(cpu) else cpu.pin,
        )
        self.driver = CpuDriverProcess(
            server.client(driver_user(DRIVER_NAME)), settings, listen=self.settings.driver_listen
        )
        self._begin("driver", self.driver.run(), self.driver.stop)
        await self._usable(self.driver.ready(_READY_SECONDS))

    async def _start_devices(self, server: RunningServer) -> None:
        layout = Layout(self.settings.root)
        simulated = [name for node in self.nodes[1:] for name in node.settings.names]
        self.devices = FakeDriverProcess(
            server.client(),
            find_plans(self.settings.devices),
            [Place(self.settings.node, layout.root, layout.cdi), *(Place(name, None) for name in simulated)],
            client_for=lambda name: server.client(driver_user(name)),
            control=self.settings.control,
        )
        self._begin("drivers of files", self.devices.run(), self.devices.stop)
        await self._usable(self.devices.ready())

    def _begin(self, name: str, work: Coroutine[Any, Any, None], stop: Callable[[], None]) -> None:
        self._tasks.append((asyncio.create_task(work, name=name), stop))

    async def _usable(self, ready: Coroutine[Any, Any, None]) -> None:
        """Wait for a part to be ready, or for any part to fail."""
        waiting = asyncio.ensure_future(ready)
        try:
            await asyncio.wait(
                (waiting, *(task for task, _ in self._tasks)), return_when=asyncio.FIRST_COMPLETED
            )
            self._raise_failure()
            await waiting
        except TimeoutError:
            raise ConfigError(f"not everything is ready after {_READY_SECONDS:g} s; see the log") from None
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    # -- being there, and the end

    async def _wait(self) -> None:
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                (stopped, *(task for task, _ in self._tasks)), return_when=asyncio.FIRST_COMPLETED
            )
            self._raise_failure()
        finally:
            stopped.cancel()
            await asyncio.gather(stopped, return_exceptions=True)

    def _raise_failure(self) -> None:
        for task, _ in self._tasks:
            if task.done():
                task.result()
                if not self._stop.is_set():
                    raise ConfigError(f"the {task.get_name()} has ended by itself; see the log")

    async def _or_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            return task.done()
        finally:
            for each in (task, stopped):
                each.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    async def _end(self) -> None:
        """The last that came goes first: drivers before their nodes, nodes before the scheduler."""
        self._stop.set()
        for task, stop in reversed(self._tasks):
            stop()
            await asyncio.wait((task,), timeout=_STOP_SECONDS)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._tasks.clear()
        if not self.settings.leave_running:
            for node in self.nodes:
                for agent in node.agents.values():
                    if isinstance(agent, Agent) and node.settings.runtime == "process":
                        await _end_containers(agent)


async def _end_containers(agent: Agent) -> None:
    """End what runs, as when a machine is shut down: pods stay, and are begun again with the cluster."""
    runtime = agent.equipment.runtime
    await runtime.start(lambda _: None)
    try:
        running = [each for each in runtime.containers() if each.phase is Phase.RUNNING]
        await asyncio.gather(*(runtime.stop_container(each.id, _GRACE_SECONDS) for each in running))
    finally:
        await runtime.stop()
    await asyncio.to_thread(agent.equipment.cgroups.tear_down)


def _is_auto(cpu: CpuSettings) -> bool:
    return cpu.pin.enforcement is Enforcement.AUTO


async def ensure_class(server: RunningServer) -> None:
    """Have the class by which claims find the driver's devices; one that is there stays as it is."""
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER_NAME},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER_NAME}"'}}]},
    }
    try:
        await server.client().create(DEVICE_CLASSES, tree)
    except ApiError as error:
        if error.code != 409:
            raise


async def serve_up(settings: UpSettings, tell: Callable[[str], None]) -> None:
    """The process behind `plimsoll up`: runs until a signal asks it to stop."""
    set_up_logging(settings.log_format, verbose=settings.verbose)
    up = Up(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, up.stop)

    def ready(cluster: Up) -> None:
        for line in cluster.lines():
            tell(line)

    with suppress(asyncio.CancelledError):
        await up.run(ready)
    tell("stopped")
