"""CRI runtimes with a server of their own, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.client.endpoints import Endpoint
from plimsoll.errors import ApiError
from plimsoll.node.cgroup_planner import CgroupPlanner
from plimsoll.node.cgroup_plans.settings import CgroupSettings
from plimsoll.node.cgroups import Cgroups, plan_cgroups
from plimsoll.node.containers import ContainerSpec
from plimsoll.node.layout import Layout
from plimsoll.node.pods.steps import sandbox_spec
from plimsoll.node.runtime.cri.runtime import CriRuntime
from plimsoll.node.runtime.cri.settings import CriSettings, CriTiming
from tests import build
from tests.directories import short_directory

from .cri_server import CriServer

IMAGE = "busybox:1.36"
FAST = CriTiming(connect=5.0, relist=0.05, relist_with_events=0.2, status=0.05, log_check=0.02)


def app(name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, **fields}


def a_pod(*containers: dict[str, Any], name: str = "web", **spec: Any) -> Pod:
    return build.pod(name, *(containers or (app(),)), uid=f"uid-{name}", **spec)


@dataclass
class Node:
    """Node of a runtime: its pods, objects of the API, and what the runtime reports."""

    directory: Path
    server: CriServer
    pods: dict[str, Pod] = field(default_factory=dict)
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    cgroups: Cgroups = field(default_factory=lambda: plan_cgroups("plimsoll"))
    planner: CgroupPlanner = field(
        default_factory=lambda: CgroupPlanner(CgroupSettings(memory_capacity=1 << 34))
    )

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "") -> dict[str, Any]:
        found = self.objects.get((endpoint.kind, name))
        if found is None:
            raise ApiError(404, "NotFound", f"{endpoint.kind} {name} not found")
        return found

    def runtime(self, owner: str = "node-1", **settings: Any) -> CriRuntime:
        (self.directory / "resolv.conf").write_text("nameserver 192.0.2.53\nsearch example.com\n")
        fields = {
            "endpoint": f"unix://{self.server.path}",
            "pod_logs": self.directory / "logs",
            "resolv_conf": self.directory / "resolv.conf",
            "timing": FAST,
            **settings,
        }
        if not self.cgroups.version:
            self.cgroups.set_up()
        return CriRuntime(
            CriSettings(**fields),
            Layout(self.directory / "node"),
            self.cgroups,
            owner=owner,
            objects=self,
            find_pod=self.pods.get,
            plan=self.planner.plan,
            node_ip=lambda: "192.0.2.1",
            emit=lambda pod, reason, message, type, container: self.events.append((reason, message)),
            set_ready=self.problems.append,
        )

    async def run_pod(self, runtime: CriRuntime, pod: Pod) -> None:
        """Create the sandbox of a pod."""
        self.pods[pod.metadata.uid] = pod
        fault = await runtime.run_sandbox(sandbox_spec(pod, self.planner.plan(pod)))
        assert fault is None, fault

    def spec(self, pod: Pod, name: str = "main", **fields: Any) -> ContainerSpec:
        plan = self.planner.plan(pod).containers[name]
        spec = ContainerSpec(id=f"own-{name}", pod=pod.metadata.uid, name=name, plan=plan)
        return replace(spec, **fields)


@asynccontextmanager
async def a_node(**server: Any) -> AsyncIterator[Node]:
    with short_directory() as directory:
        runtime = CriServer(directory / "cri.sock", **server)
        runtime.add_image(IMAGE)
        await runtime.start()
        try:
            yield Node(directory, runtime)
        finally:
            await runtime.stop()


@asynccontextmanager
async def running(node: Node, **settings: Any) -> AsyncIterator[CriRuntime]:
    runtime = node.runtime(**settings)
    try:
        await runtime.start(node.changed.append)
        yield runtime
    finally:
        await runtime.stop()
