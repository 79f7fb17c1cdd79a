"""START HERE: node agent process, with one or many agents.

A single node watches its own pods and its own Node; many simulated nodes share one watch of all pods and one
of all nodes, and their heartbeats are spread over time. Guarantees that no second agent uses the same
directory; that agents receive pod events in order, after the full list; and that a stop is timely, leaves
containers running and, by default, the Node object in place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from plimsoll.api import codec
from plimsoll.api.core import NodeAddress, Pod
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.client.retries import Backoff
from plimsoll.common.addresses import read_address
from plimsoll.common.health import HealthServer
from plimsoll.common.lock_file import RootLock
from plimsoll.common.structured_log import log_event, set_up_logging
from plimsoll.common.tasks import cancel_tasks, run_until, stop_on_signals
from plimsoll.errors import ConfigError, InputError
from plimsoll.node.machine.machine import Machine
from plimsoll.node.process.agents import AgentLike
from plimsoll.node.process.assembly import make_agent
from plimsoll.node.process.machines import MachineSource
from plimsoll.node.process.metrics import NodeMetrics
from plimsoll.node.process.settings import NodeSettings

LOG = logging.getLogger("plimsoll.node")

#: Maximum number of nodes that register concurrently.
_AT_ONCE = 32
MakeAgent = Callable[[Client, NodeSettings, str, Machine, NodeMetrics], AgentLike]


class NodeProcess:
    """Agents of one process; `run` it on its event loop."""

    def __init__(
        self,
        client: Client,
        settings: NodeSettings,
        *,
        client_for: Callable[[str], Client] | None = None,
        make: MakeAgent = make_agent,
    ) -> None:
        """Create a process; `client_for` returns the client of a node by name (default: `client`)."""
        self.settings = settings.checked()
        self.agents: dict[str, AgentLike] = {}
        self.metrics = NodeMetrics(lambda: self.agents.values())
        self.pages: HealthServer | None = None
        self._client = client
        self._client_for = client_for or (lambda name: client)
        self._make = make
        self._source = MachineSource(self.settings)
        self._locks: list[RootLock] = []
        self._stop = asyncio.Event()
        self._listed = asyncio.Event()
        self._ready = asyncio.Event()
        many = self.settings.count > 1
        name = self.settings.names[0]
        backoff = Backoff(first=settings.intervals.watch_first, most=settings.intervals.watch_max)
        self._pods: Informer[Pod] = Informer(
            client,
            PODS,
            partial(codec.decode, view=Pod),
            fields="" if many else f"spec.nodeName={name}",
            keep="view" if many else "both",
            backoff=backoff,
        )
        self._nodes: Informer[dict[str, Any]] = Informer(
            client,
            NODES,
            codec.decode_tree,
            fields="" if many else f"metadata.name={name}",
            backoff=backoff,
        )

    # -- public interface

    def stop(self) -> None:
        """Request an orderly stop; `run` returns when it is done."""
        self._stop.set()

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until all nodes are registered and their pods are known."""
        async with asyncio.timeout(timeout):
            await self._ready.wait()

    def agent(self, name: str = "") -> AgentLike:
        """Return the agent of a node; by default that of the only node."""
        found = self.agents.get(name or self.settings.names[0])
        if found is None:
            raise InputError(f"{name}: unknown node; nodes: {', '.join(list(self.agents)[:5])}")
        return found

    # -- lifecycle

    async def run(self) -> None:
        """Lock the directories, register and watch, until `stop` or until canceled."""
        machine = await asyncio.to_thread(self._source.read)
        self._lock()
        try:
            self._add_agents(machine)
            await self._open_pages()
            await self._run_with_watchers(self._run_agents())
        finally:
            if self.pages is not None:
                await self.pages.stop()
            for lock in self._locks:
                lock.release()

    async def _run_agents(self) -> None:
        try:
            await self._start_agents()
            await run_until(self._stop.wait(), self._get_ready())
            await self._stop.wait()
        finally:
            await self._stop_agents()

    def _lock(self) -> None:
        if not self.settings.is_bare:
            for name in self.settings.names:
                lock = RootLock(self.settings.layout(name).lock)
                lock.take()
                self._locks.append(lock)

    def _add_agents(self, machine: Machine) -> None:
        for name in self.settings.names:
            self.agents[name] = self._make(self._client_for(name), self.settings, name, machine, self.metrics)
        self._pods.add_handler(_PodHandler(self))
        self._nodes.add_handler(_NodeHandler(self))

    async def _start_agents(self) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def start(agent: AgentLike) -> None:
            async with slots:
                if not self._stop.is_set():
                    await agent.start()
                    await run_until(self._stop.wait(), agent.status_reporter.registered.wait())

        async with asyncio.TaskGroup() as group:
            for agent in self.agents.values():
                group.create_task(start(agent))

    async def _get_ready(self) -> None:
        await self._pods.synced()
        by_node: dict[str, list[Pod]] = {name: [] for name in self.agents}
        for pod in self._pods.items():
            if pod.spec.node_name in by_node:
                by_node[pod.spec.node_name].append(pod)
        for name, agent in self.agents.items():
            agent.pods_listed(by_node[name])
        self._listed.set()
        for agent in self.agents.values():
            await agent.status_reporter.registered.wait()
        log_event(LOG, "ready", nodes=len(self.agents), pods=sum(map(len, by_node.values())))
        self._ready.set()

    async def _stop_agents(self) -> None:
        started = list(self.agents.values())
        try:
            async with asyncio.timeout(self.settings.stop_seconds):
                results = await asyncio.gather(*(agent.stop() for agent in started), return_exceptions=True)
        except TimeoutError:
            LOG.warning("not everything has stopped in %g s", self.settings.stop_seconds)
            return
        for result in results:
            if isinstance(result, BaseException):
                LOG.error("stopping: %s: %s", type(result).__name__, result)
        if self.settings.leave:
            for agent in started:
                await agent.status_reporter.deregister()

    # -- background tasks

    async def _run_with_watchers(self, main_work: Coroutine[Any, Any, None]) -> None:
        watchers = [
            asyncio.create_task(self._pods.run(), name="pods"),
            asyncio.create_task(self._nodes.run(), name="nodes"),
        ]
        if self._source.can_change:
            watchers.append(asyncio.create_task(self._watch_machine(), name="machine"))
        main = asyncio.create_task(main_work, name="story")
        try:
            await asyncio.wait((*watchers, main), return_when=asyncio.FIRST_COMPLETED)
            for task in watchers:
                if task.done() and not main.done():
                    self.stop()
                    await main
                    task.result()  # raises the exception that ended it
            await main
        finally:
            await cancel_tasks([main, *watchers])

    async def _watch_machine(self) -> None:
        """Check periodically whether the machine, or its description file, has changed."""
        problem = ""
        while True:
            await asyncio.sleep(self.settings.timing.check)
            try:
                machine = await asyncio.to_thread(self._source.read)
                problem = ""
            except InputError as error:
                if str(error) != problem:
                    LOG.warning("keeping the last known machine: %s", error)
                problem = str(error)
                continue
            for agent in self.agents.values():
                agent.status_reporter.set_machine(machine)

    # -- HTTP endpoints

    async def _open_pages(self) -> None:
        if not self.settings.listen:
            return
        host, port = read_address(self.settings.listen)
        self.pages = HealthServer(
            live={"ping": lambda: ""},
            ready={"pods": self._missing_pods, "registered": self._missing_nodes},
            metrics=self.metrics.expose,
            pages={
                "/pods": self._describe_pods,
                "/cgroups": self._describe_cgroups,
                "/configz": self._describe_settings,
            },
        )
        await self.pages.start(host, port)
        log_event(LOG, "listening", address=f"{host}:{self.pages.port}")

    def _missing_pods(self) -> str:
        return "" if self._listed.is_set() else str(self._pods.error or "pods are not listed yet")

    def _missing_nodes(self) -> str:
        missing = [
            agent.name for agent in self.agents.values() if not agent.status_reporter.registered.is_set()
        ]
        return f"not registered yet: {', '.join(missing[:5])}" if missing else ""

    def _describe_pods(self) -> dict[str, Any]:
        known = [pod for agent in self.agents.values() for pod in agent.pods()]
        items = []
        for pod in known:
            raw = self._pods.raw(*pod.metadata.key)
            items.append(codec.decode_tree(raw) if raw is not None else codec.to_tree(pod))
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}

    def _describe_cgroups(self) -> dict[str, Any]:
        """Return the cgroup settings by node."""
        return {agent.name: agent.describe_cgroups() for agent in self.agents.values()}

    def _describe_settings(self) -> dict[str, Any]:
        settings = self.settings
        shown = {
            name: value
            for name, value in asdict(replace(settings, machine=None)).items()
            if name not in ("machine", "gates", "form", "kubelet_api")
        }
        gates = {gate.name: on for gate, on in settings.gates}
        return {**shown, "names": settings.names, "featureGates": gates, "form": settings.form.value}


class _PodHandler(EventHandler[Pod]):
    """Dispatches pod events to the agents; nothing is dispatched before the full list."""

    def __init__(self, process: NodeProcess) -> None:
        self._process = process

    def on_added(self, new: Pod) -> None:
        agent = self._of(new)
        if agent is not None:
            agent.pod_added(new)

    def on_changed(self, old: Pod, new: Pod) -> None:
        before, agent = self._of(old), self._of(new)
        if before is agent and old.metadata.uid == new.metadata.uid:
            if agent is not None:
                agent.pod_changed(old, new)
            return
        if before is not None:
            before.pod_removed(old)
        if agent is not None:
            agent.pod_added(new)

    def on_removed(self, old: Pod) -> None:
        agent = self._of(old)
        if agent is not None:
            agent.pod_removed(old)

    def _of(self, pod: Pod) -> AgentLike | None:
        process = self._process
        return process.agents.get(pod.spec.node_name) if process._listed.is_set() else None


class _NodeHandler(EventHandler[dict[str, Any]]):
    """Dispatches changes of Nodes to their agents."""

    def __init__(self, process: NodeProcess) -> None:
        self._process = process

    def on_added(self, new: dict[str, Any]) -> None:
        self._notify(new, new)

    def on_changed(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        self._notify(new, new)

    def on_removed(self, old: dict[str, Any]) -> None:
        self._notify(old, None)

    def _notify(self, of: Mapping[str, Any], tree: Mapping[str, Any] | None) -> None:
        metadata = of.get("metadata")
        meta = metadata if isinstance(metadata, Mapping) else {}
        agent = self._process.agents.get(str(meta.get("name")))
        if agent is None or (tree is None and meta.get("uid") != agent.status_reporter.uid):
            return  # another node, or the deletion of one that was already replaced
        agent.status_reporter.on_node_event(tree)


async def serve_node(config: ClientConfig, settings: NodeSettings) -> None:
    """Run the process of `plimsoll node` until a signal stops it."""
    set_up_logging(settings.log_format, verbose=settings.verbose)
    if not settings.addresses and settings.count == 1:
        settings = replace(settings, addresses=own_addresses(config.server))
    if settings.kubelet_api.client_ca is None and config.authority is not None:
        authority = config.authority
        api = replace(settings.kubelet_api, client_ca=authority.file, client_ca_data=authority.data or b"")
        settings = replace(settings, kubelet_api=api)
    async with Client.connect(config) as client:
        process = NodeProcess(client, settings)
        stop_on_signals(process.stop)
        log_event(LOG, "starting", server=config.server, pid=os.getpid(), nodes=len(settings.names))
        try:
            await process.run()
        except ExceptionGroup as group:
            raise _first_error(group) from None
    LOG.info("stopped")


def own_addresses(server: str) -> tuple[NodeAddress, ...]:
    """Return the address of this machine on the route to an API server; none if there is no route."""
    parts = urlsplit(server)
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM)
        for family, kind, _, _, address in found:
            with socket.socket(family, kind) as route:
                route.connect(address)  # nothing is sent
                return (NodeAddress(type="InternalIP", address=str(route.getsockname()[0])),)
    except OSError as error:
        LOG.debug("cannot determine the node's own address: %s", error)
    return ()


def _first_error(group: ExceptionGroup[Exception]) -> Exception:
    """Return the exception to report of several: configuration errors first."""
    known, rest = group.split(ConfigError)
    found: BaseException | None = known or rest
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, Exception) else group
