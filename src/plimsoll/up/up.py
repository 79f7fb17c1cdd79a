"""Single-machine cluster: API server, scheduler, a node that runs processes, the CPU driver, the dashboard.

`Up` starts and stops the components in order. All run on one event loop in one process and listen on
loopback; each uses the credentials it would have in a real cluster. `run` calls `ready` when the cluster is
usable. A restart with the same data directory resumes everything; containers run in between only if
`leave_running` is set. The data directory is locked.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from plimsoll.api import codec
from plimsoll.api.core import Node
from plimsoll.apiserver.auth.users import SCHEDULER, driver_user, node_user
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client.endpoints import DEVICE_CLASSES, NODES
from plimsoll.client.http import is_loopback
from plimsoll.common.lock_file import RootLock
from plimsoll.common.tasks import run_until
from plimsoll.controllers.bootstrap import ensure_default_class
from plimsoll.drivers.cpu.process.run import CpuDriverProcess
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, PinEnforcement
from plimsoll.drivers.fake.plan import DriverPlan
from plimsoll.drivers.fake.process import FakeDriverProcess, find_plans
from plimsoll.drivers.plugin.plugin_server_group import NodePaths
from plimsoll.errors import ApiError, ConfigError
from plimsoll.node.agent import Agent
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.layout import Layout
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.process.run import NodeProcess
from plimsoll.node.process.settings import NodeSettings
from plimsoll.scheduler.process.configuration import DEFAULT_NAME, NAME, SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.tools.cluster_state.manifests import ParsedObject, read_objects
from plimsoll.tools.device_file_check import require_valid_plan
from plimsoll.up.components import RunningComponents
from plimsoll.up.console import Console
from plimsoll.up.kubelet_certificate import serving_kubelet
from plimsoll.up.local_nodes import MACHINE
from plimsoll.up.manifests import LoadResult, load, restore
from plimsoll.up.manifests.completion import SIMULATED
from plimsoll.up.manifests.restore import is_recorded
from plimsoll.up.ports import API, DASHBOARD, Ports, check_free, listen_error
from plimsoll.up.settings import DATA_DIR, UpSettings
from plimsoll.up.simulated import find_simulated, start_simulated

if TYPE_CHECKING:
    from plimsoll.tools.dashboard import Dashboard

_READY_SECONDS = 60.0
#: Simulated nodes that become ready per second, at least.
_NODES_PER_SECOND = 20
_STOP_SECONDS = 30.0
#: Grace period of containers when the cluster stops.
_GRACE_SECONDS = 5.0
#: Longest path of a Unix socket in bytes.
_SOCKET_PATH = 107


class Up:
    """Cluster of one machine, started and stopped as a whole."""

    def __init__(self, settings: UpSettings, console: Console | None = None) -> None:
        """Create a cluster; progress is written to `console` if it is given."""
        self.settings = replace(settings, data=settings.data.absolute())
        self.server: RunningServer | None = None
        self.scheduler: SchedulerProcess | None = None
        self.nodes: list[NodeProcess] = []
        self.driver: CpuDriverProcess | None = None
        self.devices: FakeDriverProcess | None = None
        self.dashboard: Dashboard | None = None
        self.loaded = LoadResult()
        #: Called when the data directory is locked, before anything is written to it.
        self.on_locked: Callable[[], None] = lambda: None
        self._console = console
        self._ports: Ports | None = None
        #: Whether this machine is a node; in a cluster restored from a dump it is none unless it has a name.
        self.runs_node = True
        self._parts = RunningComponents(ready_seconds=_READY_SECONDS, stop_seconds=_STOP_SECONDS)

    def stop(self) -> None:
        """Request an orderly shutdown; `run` returns when it is complete."""
        self._parts.stopping.set()

    @property
    def problems(self) -> list[str]:
        """Objects of the files that were rejected."""
        return self.loaded.problems

    @property
    def own_nodes(self) -> set[str]:
        """Nodes that this process runs, except those simulated from manifests."""
        return {name for settings in self._node_settings() for name in settings.names}

    async def run(self, ready: Callable[[Up], Awaitable[None] | None] = lambda _: None) -> None:
        """Start everything and wait until `stop` is called or a component fails."""
        self._check()
        found = await asyncio.to_thread(self._read_files)
        await asyncio.to_thread(protect_data_dir, self.settings.data)
        lock = RootLock(self.settings.data / "lock", who="cluster", flag="--data")
        lock.take()
        try:
            self.on_locked()
            self._ports = Ports(self.settings.data / "ports")
            self.server = await self._start_server(self._ports, found)
            try:
                stopping = self._parts.stopping
                started, _ = await run_until(stopping.wait(), self._start_parts(self.server, found))
                if started:
                    result = ready(self)
                    if inspect.isawaitable(result):
                        await run_until(stopping.wait(), result)
                    await self._parts.wait()
            finally:
                await self._shut_down()
                await self.server.stop()
        finally:
            lock.release()

    def lines(self) -> list[str]:
        """Return the lines that explain how to use the cluster."""
        settings = self.settings
        found = []
        if self.dashboard is not None:
            found.append(f"  dashboard    {self.dashboard.url}")
        return [
            "",
            *found,
            f"  kubeconfig   {settings.kubeconfig}",
            f"  log          {settings.log}",
            "",
            f"  export KUBECONFIG={shlex.quote(str(settings.kubeconfig))}",
            *_path_lines(),
            "  plimsoll top nodes",
            f"  plimsoll kubectl {self._data_dir_option()}get nodes",
            "  source <(plimsoll completion bash)   # or zsh, fish",
            "",
            "Press Ctrl-C to stop the cluster; the same command resumes it.",
        ]

    def _data_dir_option(self) -> str:
        """Return the option that names the data directory to other commands, unless it is the default."""
        data = self.settings.data
        return "" if data.resolve() == Path(DATA_DIR).resolve() else f"--data-dir {shlex.quote(str(data))} "

    # -- startup

    def _check(self) -> None:
        self._node_settings()  # invalid names are rejected before anything is created
        drivers = [DRIVER_NAME, *(plan.name for plan in find_plans(self.settings.devices))]
        sockets = [f"plugins_registry/{driver}-reg.sock" for driver in drivers]
        for name in (*sockets, "pod-resources/kubelet.sock"):
            path = self.settings.root / name
            if len(str(path).encode(errors="surrogateescape")) > _SOCKET_PATH:
                raise ConfigError(
                    f"--data-dir: {self.settings.data}: path too long for Unix sockets: {path} has "
                    f"{len(str(path).encode(errors='surrogateescape'))} bytes, at most {_SOCKET_PATH}; "
                    "use a shorter path"
                )

    def _read_files(self) -> list[ParsedObject]:
        """Read the objects to apply; raises before anything is created if a file cannot be read."""
        found = list(read_objects(self.settings.files))
        if self.settings.demo:
            from plimsoll.up.demo_objects import demo_objects  # noqa: PLC0415 - rarely needed

            found = [*demo_objects(), *found]
        return found

    async def _start_server(self, ports: Ports, found: list[ParsedObject]) -> RunningServer:
        settings = self.settings
        self._report("API server")
        port = ports.choose(API, settings.host, settings.port)
        check_free(settings.host, port, "--listen")

        def initialize(context: ApiContext) -> None:
            self.runs_node = bool(settings.name or settings.demo) or self._is_node(context, found)
            self.loaded = restore(context, found, self.own_nodes)

        try:
            server = await start_server(
                ServerSettings(
                    data=settings.data / "server",
                    host=settings.host,
                    port=port,
                    kubelet_own_ca=True,
                    volumes_dir=settings.volumes,
                    gates=self.settings.gates,
                    initialize=initialize,
                )
            )
        except OSError as error:
            raise listen_error(settings.host, port, error, "--listen") from None
        try:
            server.write_kubeconfig(settings.kubeconfig)
            ports.keep(API, server.port)
        except OSError as error:
            await server.stop()
            raise ConfigError(f"{settings.kubeconfig}: not writable: {error.strerror or error}") from None
        except BaseException:
            await server.stop()
            raise
        self._report_done("API server", server.url)
        return server

    def _is_node(self, context: ApiContext, found: list[ParsedObject]) -> bool:
        """Return whether this machine is a node of the stored cluster, or the first node of a new one."""
        stored = [codec.decode(item.raw, Node) for item in context.store.list(NODES.plural).items]
        own = [node for node in stored if node.metadata.name == self.settings.node]
        if own:
            return SIMULATED not in own[0].metadata.annotations
        return not stored and not any(each.kind == "Node" and is_recorded(each.tree) for each in found)

    async def _start_parts(self, server: RunningServer, found: list[ParsedObject]) -> None:
        settings = self.settings
        self._report("scheduler")
        # It schedules all pods, also those that name no scheduler, and writes charges in the form that the
        # drivers use.
        wanted = SchedulerSettings(gates=settings.gates, wire_form="1.37", listen="")
        wanted = wanted.named((DEFAULT_NAME, NAME))
        self.scheduler = SchedulerProcess(server.client(SCHEDULER), wanted)
        self._parts.start("scheduler", self.scheduler.run(), self.scheduler.stop)
        await self._parts.wait_ready(self.scheduler.ready(_READY_SECONDS))
        self._report_done("scheduler", "ready")
        await self._start_nodes(server)
        if settings.driver and self.runs_node:
            await self._start_driver(server)
        if found:
            await self._load(server, found)
        await ensure_default_class(server.client())
        await self._start_simulated(server)
        await self._start_devices(server)
        if settings.dashboard is not None:
            await self._start_dashboard(server, *settings.dashboard)

    async def _start_nodes(self, server: RunningServer) -> None:
        settings = self.settings
        self._report("node")
        for node in self._node_settings():
            many = node.count > 1
            if node.runtime == "process":
                node = replace(
                    node, kubelet_api=serving_kubelet(server, node.names[0], Layout(node.root).pki)
                )
            client = server.client() if many else server.client(node_user(node.names[0]))
            process = NodeProcess(client, node, client_for=lambda name: server.client(node_user(name)))
            self.nodes.append(process)
            self._parts.start(f"node {node.names[0]}", process.run(), process.stop)
        await asyncio.gather(
            *(self._parts.wait_ready(node.ready(_ready_timeout(node))) for node in self.nodes)
        )
        runs = "pods run as processes" if settings.runtime == "process" else "pods are simulated"
        nodes = (
            f"{settings.node}: {runs}" if self.runs_node else "those of the dump (--name adds this machine)"
        )
        self._report_done("node", nodes)
        if settings.nodes:
            names = "sim-0" if settings.nodes == 1 else f"sim-0 to sim-{settings.nodes - 1}"
            self._report_done("simulated", names)

    async def _load(self, server: RunningServer, found: list[ParsedObject]) -> None:
        self._report("manifests")
        started = time.monotonic()

        def tick(done: int, whole: int) -> None:
            if self._console is not None:
                self._console.begin("manifests", f"{done}/{whole}")

        self.loaded.add(await load(server.client(), found, tick))
        took = time.monotonic() - started
        text = f"{self.loaded.new} objects created, {self.loaded.known} unchanged" + (
            f" ({took:.0f} s)" if took > 2 else ""
        )
        if self.loaded.problems:
            text += f", {len(self.loaded.problems)} rejected"
        self._report_done("manifests", text)
        for line in self.loaded.lines():
            if self._console is not None:
                self._console.line(f"    {line}")

    async def _start_simulated(self, server: RunningServer) -> None:
        simulated = await find_simulated(server.client(), self.own_nodes)
        if not simulated:
            return
        self._report("simulated")
        root = self.settings.data / "simulated"
        client_for = lambda name: server.client(node_user(name))  # noqa: E731
        process = start_simulated(
            server.client(), simulated, root, self.settings.gates, client_for, self.settings.stages
        )
        self.nodes.append(process)
        self._parts.start("simulated nodes", process.run(), process.stop)
        await self._parts.wait_ready(process.ready(_ready_timeout(process)))
        names = list(simulated)
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        self._report_done("simulated", ", ".join(names[:4]) + more)

    def _node_settings(self) -> list[NodeSettings]:
        settings = self.settings
        own = NodeSettings(
            name=settings.node,
            root=settings.root,
            runtime=settings.runtime,
            on_unsupported_security=settings.on_unsupported_security,
            stages=settings.stages,
            gates=settings.gates,
            listen="",
        )
        found = [own.checked()] if self.runs_node else []
        if not settings.nodes:
            return found
        simulated = NodeSettings(
            name="sim" if settings.nodes > 1 else "sim-0",
            count=settings.nodes,
            root=settings.data / "simulated",
            runtime="none",
            bare=True,
            machine=parse_machine(MACHINE),
            labels={SIMULATED: "true", **settings.simulated_labels},
            taints=settings.simulated_taints,
            stages=settings.stages,
            gates=settings.gates,
            listen="",
        )
        return [*found, simulated.checked()]

    async def _start_driver(self, server: RunningServer) -> None:
        self._report("driver")
        layout = Layout(self.settings.root)
        await ensure_class(server)
        cpu = self.settings.cpu
        settings = replace(
            cpu,
            node=self.settings.node,
            kubelet_root=layout.root,
            cdi=layout.cdi,
            nri=layout.nri,
            # The node serves NRI, but perhaps not yet.
            pin=replace(cpu.pin, enforcement=PinEnforcement.NRI) if _is_auto(cpu) else cpu.pin,
        )
        self.driver = CpuDriverProcess(
            server.client(driver_user(DRIVER_NAME)), settings, listen=self.settings.driver_listen
        )
        self._parts.start("driver", self.driver.run(), self.driver.stop)
        await self._parts.wait_ready(self.driver.wait_ready(_READY_SECONDS))
        status = f"plimsoll driver cpu status --address {self.driver.address}"
        text = f"{DRIVER_NAME}: the CPUs of {self.settings.node}"
        self._report_done("driver", f"{text} ({status})" if self.driver.address else text)

    async def _start_devices(self, server: RunningServer) -> None:
        settings = self.settings
        plans = find_plans(settings.devices)
        layout = Layout(settings.root)
        here = NodePaths(settings.node, layout.root, layout.cdi)
        if plans:
            names = [name for node in self.nodes for name in node.settings.names]
            own = settings.node if self.runs_node else ""
            places = [here if name == own else NodePaths(name, None) for name in names]
            self.devices = await self._start_fakes(server, plans, places, "all nodes")
        if settings.demo:
            from plimsoll.up.demo_objects import DEVICES, EQUIPPED  # noqa: PLC0415 - rarely needed

            given = {plan.name for plan in plans}
            rest = [plan for plan in find_plans(DEVICES) if plan.name not in given]
            places = [here, *(NodePaths(name, None) for name in EQUIPPED)]
            if rest:
                await self._start_fakes(server, rest, places, f"{settings.node} and {', '.join(EQUIPPED)}")

    async def _start_fakes(
        self, server: RunningServer, plans: Sequence[DriverPlan], places: Sequence[NodePaths], where: str
    ) -> FakeDriverProcess:
        self._report("driver")
        process = FakeDriverProcess(
            server.client(),
            plans,
            places,
            client_for=lambda name: server.client(driver_user(name)),
            control=self.settings.control,
            validate=require_valid_plan,
        )
        self._parts.start("drivers of files", process.run(), process.stop)
        await self._parts.wait_ready(process.wait_ready())
        self._report_done(
            "drivers", f"{', '.join(plan.name for plan in plans)}: simulated devices on {where}"
        )
        return process

    async def _start_dashboard(self, server: RunningServer, host: str, wanted: int | None) -> None:
        from plimsoll.tools.dashboard import Dashboard  # noqa: PLC0415 - large

        assert self._ports is not None
        self._report("dashboard")
        port = self._ports.choose(DASHBOARD, host, wanted)
        check_free(host, port, "--dashboard")
        dashboard = Dashboard(
            server.client(),
            host=host,
            port=port,
            origin=server.url,
            gates=self.settings.gates,
            history=self.settings.history,
        )
        await dashboard.start()
        self.dashboard = dashboard
        self._ports.keep(DASHBOARD, urlsplit(dashboard.url).port or port)
        self._report_done("dashboard", "ready")
        if not is_loopback(host):
            self._report_done("", f"{host}: reachable from other machines, without authentication")

    # -- progress

    def _report(self, what: str) -> None:
        if self._console is not None:
            self._console.begin(what)

    def _report_done(self, what: str, text: str) -> None:
        if self._console is not None:
            self._console.done(what, text)

    # -- shutdown

    async def _shut_down(self) -> None:
        self._parts.stopping.set()
        if self.dashboard is not None:
            await self.dashboard.stop()
        await self._parts.stop()
        if not self.settings.leave_running:
            for node in self.nodes:
                for agent in node.agents.values():
                    if isinstance(agent, Agent) and node.settings.runtime == "process":
                        await _stop_containers(agent)


async def _stop_containers(agent: Agent) -> None:
    """Stop the running containers as in a shutdown: the pods remain and start again with the cluster.

    Does nothing if another process uses the root cgroup.
    """
    own = agent.components
    if await asyncio.to_thread(own.mark.take, own.cgroups.root_directories()):
        return
    try:
        await own.runtime.start(lambda _: None)
        try:
            running = [each for each in own.runtime.containers() if each.phase is ContainerPhase.RUNNING]
            await asyncio.gather(*(own.runtime.stop_container(each.id, _GRACE_SECONDS) for each in running))
        finally:
            await own.runtime.stop()
        await asyncio.to_thread(own.cgroups.tear_down)
    finally:
        own.mark.release()


def _is_auto(cpu: CpuSettings) -> bool:
    return cpu.pin.enforcement is PinEnforcement.AUTO


async def ensure_class(server: RunningServer) -> None:
    """Create the DeviceClass of the CPU driver, unless it exists."""
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


def _ready_timeout(node: NodeProcess) -> float:
    return _READY_SECONDS + node.settings.count / _NODES_PER_SECOND


def _path_lines() -> list[str]:
    """Return the lines that explain how to add the command to PATH."""
    own = Path(sys.executable).parent
    if which("plimsoll") is not None or not (own / "plimsoll").exists():
        return []
    return [f"  export PATH={shlex.quote(str(own))}:$PATH"]


def protect_data_dir(data: Path) -> None:
    """Create the data directory, readable by its owner only, or make an existing one so.

    Pods of root can run as other users, who reach their volumes. Errors are left to those who use it.
    """
    mode = 0o711 if os.geteuid() == 0 else 0o700
    with suppress(OSError):
        if (data / "lock").exists():  # of an earlier run: no other directory is changed
            data.chmod(mode)
        data.mkdir(mode=mode, parents=True, exist_ok=True)
