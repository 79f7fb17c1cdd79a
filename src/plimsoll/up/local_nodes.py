"""Nodes of a cluster inside a Python process.

Implements `LocalCluster(nodes=...)`. Each agent has its own user with the permissions of a node; a node that
is stopped and started again keeps its directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from plimsoll.api.gates import Gates
from plimsoll.apiserver.auth.users import node_user
from plimsoll.apiserver.process import RunningServer
from plimsoll.client.endpoints import PODS
from plimsoll.common.tasks import at_most, cancel_tasks
from plimsoll.drivers.plugin.plugin_server_group import NodePaths
from plimsoll.errors import ApiError, InputError
from plimsoll.node.agent import Agent
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.process.agents import AgentLike
from plimsoll.node.process.run import NodeProcess
from plimsoll.node.process.settings import ROOT, NodeSettings
from plimsoll.up.kubelet_certificate import serving_kubelet

#: Nodes of a cluster: their number, names or settings.
Nodes = int | NodeSettings | Sequence[str | NodeSettings]
MACHINE = {"capacity": {"cpu": 8, "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": 110}}
_MOST_WITH_SOCKETS = 100
_READY_SECONDS = 30.0
#: Nodes that become ready per second, at least.
_NODES_PER_SECOND = 20


def node_settings(wanted: Nodes, gates: Gates) -> tuple[NodeSettings, ...]:
    """Return the settings of nodes; names and numbers create simulated nodes of one size."""
    if isinstance(wanted, NodeSettings):
        return (wanted.checked(),)
    plain = NodeSettings(runtime="none", gates=gates, machine=parse_machine(MACHINE), listen="")
    if isinstance(wanted, int):
        if wanted > _MOST_WITH_SOCKETS:
            return (replace(plain, name="node", count=wanted).checked(),)
        wanted = [f"node-{place}" for place in range(wanted)]
    found = [each if isinstance(each, NodeSettings) else replace(plain, name=each) for each in wanted]
    names = [name for settings in found for name in settings.names]
    if len(set(names)) < len(names):
        raise InputError("nodes: duplicate name; names must be unique")
    return tuple(settings.checked() for settings in found)


class LocalNodes:
    """Nodes of one cluster; those whose pods are processes serve the kubelet API on loopback."""

    def __init__(self, wanted: Nodes, gates: Gates) -> None:
        self._settings = node_settings(wanted, gates)
        self._running: list[_Running] = []

    async def start(self, server: RunningServer, directory: Path) -> None:
        """Start all nodes; they are ready when this returns."""
        for settings in self._settings:
            own = directory / "nodes" / settings.names[0] if settings.root == ROOT else settings.root
            settings = replace(settings, root=own)
            if settings.runtime != "none" and not settings.kubelet_api.listen and settings.count == 1:
                name = settings.names[0]
                kubelet = serving_kubelet(server, name, settings.layout(name).pki)
                settings = replace(settings, kubelet_api=kubelet)
            self._running.append(_Running(server, settings))
        await asyncio.gather(*(running.begin() for running in self._running))

    async def stop(self) -> None:
        """Stop all nodes and their processes."""
        await asyncio.gather(*(running.finish() for running in self._running))
        self._running = []

    def agent(self, name: str = "") -> AgentLike:
        """Return the agent of a node, or the only one."""
        names = [each for running in self._running for each in running.process.settings.names]
        if not name and len(names) == 1:
            name = names[0]
        return self._of(name).process.agent(name)

    def root(self, name: str) -> Path:
        return self._of(name).process.settings.layout(name).root

    def list_node_paths(self) -> list[NodePaths]:
        """Return the socket directories of the nodes, for drivers."""
        found = []
        for running in self._running:
            settings = running.process.settings
            for name in settings.names:
                layout = settings.layout(name)
                cdi = settings.cdi[-1] if settings.cdi else layout.cdi
                found.append(NodePaths(name, None) if settings.is_bare else NodePaths(name, layout.root, cdi))
        return found

    async def begin(self, name: str) -> None:
        await self._of(name).begin()

    async def end(self, name: str) -> None:
        await self._of(name).end()

    def _of(self, name: str) -> _Running:
        for running in self._running:
            if name in running.process.settings.names:
                return running
        raise InputError(f"{name!r}: the cluster has no such node")


class _Running:
    """Node process that can be stopped and started again."""

    def __init__(self, server: RunningServer, settings: NodeSettings) -> None:
        self._server = server
        self._settings = settings
        self._task: asyncio.Task[None] | None = None
        self.process = self._make()

    def _make(self) -> NodeProcess:
        server, names = self._server, self._settings.names
        # A node may read only its own pods; one watch for many nodes needs more permissions.
        client = server.client() if len(names) > 1 else server.client(node_user(names[0]))
        return NodeProcess(client, self._settings, client_for=lambda name: server.client(node_user(name)))

    async def begin(self) -> None:
        if self._task is not None:
            return
        self.process = self._make()
        self._task = asyncio.create_task(self.process.run(), name=f"nodes {self._settings.names[0]}")
        timeout = _READY_SECONDS + self._settings.count / _NODES_PER_SECOND
        ready = asyncio.create_task(self.process.ready(timeout))
        await asyncio.wait((self._task, ready), return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            ready.cancel()
            self._task.result()
        await ready

    async def finish(self) -> None:
        """Stop, with all processes and cgroups, which would outlive the agent."""
        agents = [agent for agent in self.process.agents.values() if isinstance(agent, Agent)]
        if self._settings.runtime == "process" and self._task is not None:
            await self._end_pods(agents)
        await self.end()
        if self._settings.runtime == "process":
            for agent in agents:
                await asyncio.to_thread(agent.components.cgroups.tear_down)

    async def _end_pods(self, agents: Sequence[Agent]) -> None:
        client = self._server.client()
        for agent in agents:
            for pod in agent.pods():
                with suppress(ApiError):
                    await client.delete(PODS, pod.metadata.name, pod.metadata.namespace, grace=0)
        async with at_most(_READY_SECONDS):
            while any(agent.components.runtime.sandboxes() for agent in agents):
                await asyncio.sleep(0.02)

    async def end(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        self.process.stop()
        await asyncio.wait((task,), timeout=_READY_SECONDS)
        await cancel_tasks((task,))
