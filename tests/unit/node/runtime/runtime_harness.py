"""Directories, cgroups, recording hooks and pods for tests of runtimes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plimsoll.ledger.containers import ContainerRole
from plimsoll.node.cgroup_plans.containers import ContainerPlan, RuntimeResources
from plimsoll.node.cgroup_plans.pods import PodPlan, SandboxPlan
from plimsoll.node.cgroups import Cgroups, open_cgroups
from plimsoll.node.containers import ContainerInfo, ContainerPhase, ContainerSpec, RuntimeFault, SandboxSpec
from plimsoll.node.hooks import NO_HOOKS, AdjustedContainer, RuntimeHooks
from plimsoll.node.layout import Layout
from plimsoll.node.resources import LinuxResources
from plimsoll.node.runtime import ProcessRuntime, ProcessSettings
from plimsoll.node.security.context import SecurityRequest
from plimsoll.node.security.credentials import compute_credentials
from plimsoll.node.security.rights import read_rights
from plimsoll.protocols.cdi import CdiCache
from tests.directories import short_directory
from tests.waiting import DEADLINE, until

#: What a container gets that asks for nothing.
PLAIN = compute_credentials(SecurityRequest(), read_rights()).credentials


def a_pod(uid: str = "pod-1", **changes: Any) -> SandboxSpec:
    fields: dict[str, Any] = {
        "uid": uid,
        "name": f"name-{uid}",
        "namespace": "default",
        "qos": "Burstable",
        "plan": PodPlan(cpu_shares=102),
        "sandbox": SandboxPlan(resources=RuntimeResources()),
        **changes,
    }
    return SandboxSpec(**fields)


def a_plan(name: str = "main", role: ContainerRole = ContainerRole.REGULAR, **changes: Any) -> ContainerPlan:
    return ContainerPlan(name=name, role=role, oom_score_adj=changes.pop("oom_score_adj", 900), **changes)


def a_container(
    *command: str,
    id: str = "c1",
    pod: str = "pod-1",
    name: str = "",
    role: ContainerRole = ContainerRole.REGULAR,
    **changes: Any,
) -> ContainerSpec:
    name = name or id
    plan = changes.pop("plan", None) or a_plan(name, role)
    changes.setdefault("credentials", PLAIN)
    return ContainerSpec(id=id, pod=pod, name=name, command=command, plan=plan, **changes)


def shell(text: str, **changes: Any) -> ContainerSpec:
    return a_container("/bin/sh", "-c", text, **changes)


class RecordingHooks(RuntimeHooks):
    """Runtime hooks that record their calls, and respond as scripted."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.seen_env: dict[str, Mapping[str, str]] = {}
        self.adjust: Callable[[ContainerSpec, LinuxResources], AdjustedContainer | RuntimeFault] = (
            lambda container, resources: AdjustedContainer(resources=resources)
        )
        self.refuse_sandbox: RuntimeFault | None = None

    async def sandbox_run(self, pod: SandboxSpec) -> RuntimeFault | None:
        self.calls.append(f"sandbox_run {pod.uid}")
        return self.refuse_sandbox

    async def sandbox_update(self, pod: SandboxSpec) -> RuntimeFault | None:
        self.calls.append(f"sandbox_update {pod.uid}")
        return self.refuse_sandbox

    async def sandbox_updated(self, pod: SandboxSpec) -> None:
        self.calls.append(f"sandbox_updated {pod.uid}")

    async def sandbox_stopped(self, pod: SandboxSpec) -> None:
        self.calls.append(f"sandbox_stopped {pod.uid}")

    async def sandbox_removed(self, pod: SandboxSpec) -> None:
        self.calls.append(f"sandbox_removed {pod.uid}")

    async def create(
        self, pod: SandboxSpec, container: ContainerSpec, resources: LinuxResources
    ) -> AdjustedContainer | RuntimeFault:
        self.calls.append(f"create {container.id}")
        self.seen_env[container.id] = container.env
        return self.adjust(container, resources)

    async def created(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        self._record("created", container)

    async def starting(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        self._record("starting", container)

    async def started(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        self._record("started", container)

    async def update(
        self, pod: SandboxSpec, container: ContainerInfo, resources: LinuxResources
    ) -> AdjustedContainer | RuntimeFault:
        self._record("update", container)
        return AdjustedContainer(resources=resources)

    async def updated(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        self._record("updated", container)

    async def stopped(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        self._record("stopped", container)

    async def removed(self, pod: SandboxSpec, container: ContainerInfo) -> None:
        self._record("removed", container)

    def _record(self, what: str, container: ContainerInfo) -> None:
        self.calls.append(f"{what} {container.id} {container.phase}")


class RuntimeHarness:
    """Directory of one agent, and the runtimes that use it."""

    def __init__(self, root: Path, cgroups: Cgroups | None = None) -> None:
        self.layout = Layout(root)
        self.cdi = CdiCache([self.layout.cdi])
        self.cgroups = cgroups or open_cgroups("plimsoll-test", want="plan")
        self.cgroups.set_up()
        self.changed: list[str] = []
        self.woken = asyncio.Event()

    @contextlib.asynccontextmanager
    async def runtime(self, hooks: RuntimeHooks = NO_HOOKS, **settings: Any) -> AsyncIterator[ProcessRuntime]:
        settings.setdefault("adopt_timeout", DEADLINE)
        runtime = ProcessRuntime(
            self.layout, self.cgroups, self.cdi, hooks, settings=ProcessSettings(**settings)
        )
        await runtime.start(self._on_change)
        try:
            yield runtime
        finally:
            await runtime.stop()

    def _on_change(self, uid: str) -> None:
        self.changed.append(uid)
        self.woken.set()


@contextlib.asynccontextmanager
async def runtime_harness(cgroups: Cgroups | None = None) -> AsyncIterator[RuntimeHarness]:
    """Yield a harness and kill all remaining processes at the end."""
    with short_directory() as root:
        harness = RuntimeHarness(root, cgroups)
        try:
            yield harness
        finally:
            async with harness.runtime() as runtime:
                for sandbox in runtime.sandboxes():
                    await runtime.remove_sandbox(sandbox.uid)


def state(runtime: ProcessRuntime, id: str = "c1") -> ContainerInfo:
    return next(found for found in runtime.containers() if found.id == id)


async def run(runtime: ProcessRuntime, spec: ContainerSpec) -> ContainerInfo:
    """Create and start a container, and its pod sandbox if there is none."""
    assert await runtime.run_sandbox(a_pod(spec.pod)) is None
    assert await runtime.create(spec) is None
    assert await runtime.start_container(spec.id) is None
    return state(runtime, spec.id)


async def ended(runtime: ProcessRuntime, id: str = "c1") -> ContainerInfo:
    await until(lambda: state(runtime, id).phase is ContainerPhase.EXITED)
    return state(runtime, id)


def lines(state: ContainerInfo) -> list[str]:
    """Return a container's output without timestamps and tags."""
    path = Path(state.log)
    if not path.exists():
        return []
    return [line.split(" ", 3)[3] for line in path.read_text().splitlines()]


def alive(pid: int) -> bool:
    """Return whether a process is alive; a zombie is not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def kernel_cgroups(name: str) -> Cgroups | None:
    """Return usable cgroups of this machine, if there are any."""
    if os.getuid() != 0:
        return None
    cgroups = open_cgroups(f"plimsoll-test-{os.getpid()}-{name}")
    faults = cgroups.set_up()
    if cgroups.version == 0 or any(not fault.absent for fault in faults):
        return None
    return cgroups


def with_attempt(spec: ContainerSpec, attempt: int) -> ContainerSpec:
    return replace(spec, id=f"{spec.name}-{attempt}", attempt=attempt)
