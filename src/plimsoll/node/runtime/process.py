"""Process runtime: containers as local processes in their cgroups, which outlive the agent.

The lifecycle of a container:

   create           CDI edits -> hooks.create -> cgroup -> record on disk -> hooks.created
   start_container  hooks.starting -> shim -> hooks.started
   exit             exit.json -> cgroup removed -> hooks.stopped -> updates of others
   remove_container hooks.removed -> directory removed

An image is a label here: containers run commands of the machine, on its files and its network, so that the
pod's address is the node's. An image called `pause` does nothing until it is stopped; others can be given a
command in the settings. A process has the credentials of its pod's security context (node/security); nothing
is started without. Guarantees that after kill -9 of the agent at any point the next one finds everything, and
adopts or removes it, and that no external name leads out of its directory.

DIFF: the root file system of a container is the machine's: readOnlyRootFilesystem makes all of it read-only
for the container, its working directory included, except /dev, /proc and what CDI files and hooks mount
(test_a_read_only_root_file_system).

DIFF: there is no image, no root file system and no network of the pod's own (test_images_are_labels).

DIFF: mounts and devices of CDI files and hooks are bind-mounted over existing paths, in a private mount
namespace of the container, and failures are reported in its message; nothing is created on the machine, no
OCI hook is run (test_mounts_and_devices_are_seen_inside_only, test_what_no_process_can_have_is_told).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from plimsoll.common.checkpoint import Finding, Severity
from plimsoll.errors import InputError, StoreError
from plimsoll.ledger.cgroups.containers import ContainerPlan
from plimsoll.node.cgroups.values import CgroupFault, Cgroups
from plimsoll.node.containers import (
    ContainerInfo,
    ContainerPhase,
    ContainerSpec,
    RuntimeFault,
    SandboxInfo,
    SandboxSpec,
)
from plimsoll.node.hooks import NO_HOOKS, RuntimeContainer, RuntimeHooks, RuntimeState
from plimsoll.node.layout import Layout, path_component
from plimsoll.node.resources import LinuxResources, resources_from_plan
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.adoption import look_around
from plimsoll.node.runtime.cgroup_repair import restore_container, restore_pod, set_up_cgroups
from plimsoll.node.runtime.commands import Command, command_of, cpus_in, stop_signal
from plimsoll.node.runtime.container_process import KILLED, Life
from plimsoll.node.runtime.container_spec import CREATE_ERROR, SpecRefusal, make, undo
from plimsoll.node.runtime.exec_spec import (
    ProcessSettings,
    exec_spec,
    has_cpuset,
    record_of,
    shim_spec,
    unmade,
)
from plimsoll.node.runtime.state_dir import Exit, PodRecord, give_folder, remove_tree, save
from plimsoll.protocols.cdi import CdiFolders

__all__ = ["ProcessRuntime", "ProcessSettings"]

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: Maximum number of findings kept, the newest.
_FINDINGS_MAX = 200

RUN_ERROR = "RunContainerError"
SANDBOX_ERROR = "CreatePodSandboxError"
UPDATE_ERROR = "UpdateContainerError"


class ProcessRuntime:
    """Runtime of local processes."""

    name = "process"
    version = "1"
    volume_types: frozenset[str] | None = frozenset()

    def __init__(
        self,
        layout: Layout,
        cgroups: Cgroups,
        cdi: CdiFolders,
        hooks: RuntimeHooks = NO_HOOKS,
        *,
        settings: ProcessSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.layout = layout
        self.hooks = hooks
        self.settings = settings or ProcessSettings()
        #: Problems found at the start and later.
        self.findings: list[Finding] = []
        self._cgroups = cgroups
        self._cdi = cdi
        self._clock = clock
        self._pods: dict[str, PodRecord] = {}
        self._lives: dict[str, Life] = {}
        self._building: set[Path] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed: Callable[[str], None] | None = None
        self._program = shims.SOURCE
        self._thread: ThreadPoolExecutor | None = None

    # -- lifecycle

    async def start(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        # Changes of cgroups are serialized.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cgroups")
        self._program = await asyncio.to_thread(shims.compile_shim, self.layout.root)
        found = await look_around(self.layout, self.settings.adopt_patience)
        self._report(found.findings)
        self._pods = found.pods
        self._lives = {life.state.id: life for life in found.lives}
        await self._call(self._set_up_cgroups)
        await asyncio.gather(*(self._adopt(life) for life in self._lives.values()))

    async def stop(self) -> None:
        self._changed = None
        for life in self._lives.values():
            life.unwatch()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=10)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._lives.clear()
        self._pods.clear()
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    # -- pods

    async def run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        return await self._own(self._run_sandbox(spec))

    async def _run_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        known = self._pods.get(spec.uid)
        if known is not None and known.running:
            return await self._update_sandbox(spec)
        try:
            folder = self.layout.pod(spec.uid)
        except InputError as error:
            return RuntimeFault(SANDBOX_ERROR, str(error))
        faults = await self._call(self._cgroups.make_pod, spec.uid, spec.qos, spec.plan)
        fault = _first(faults, SANDBOX_ERROR)
        record = PodRecord(spec=spec, running=True, created_at=self._clock(), ip=self.settings.ip)
        if fault is None:
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                save(folder / "sandbox.json", record)
            except (OSError, StoreError) as error:
                fault = RuntimeFault(SANDBOX_ERROR, str(error))
        if fault is None:
            self._pods[spec.uid] = record
            fault = await self.hooks.sandbox_run(spec)
        if fault is not None:
            await self._unmake(folder, spec.uid, known)
        return fault

    async def _unmake(self, folder: Path, uid: str, known: PodRecord | None) -> None:
        """Remove a sandbox that could not be created; containers of an earlier one remain known."""
        await self._call(self._cgroups.remove_pod, uid)
        if known is not None:
            self._keep_pod(known)
            return
        self._pods.pop(uid, None)
        await asyncio.to_thread(remove_tree, folder)

    async def update_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        return await self._own(self._update_sandbox(spec))

    async def _update_sandbox(self, spec: SandboxSpec) -> RuntimeFault | None:
        known = self._pods.get(spec.uid)
        if known is None or not known.running:
            return RuntimeFault(UPDATE_ERROR, f"pod {spec.uid!r} has no running sandbox")
        if known.spec == spec:
            return None
        fault = await self.hooks.sandbox_update(spec)
        if fault is not None:
            return fault
        faults = await self._call(self._cgroups.make_pod, spec.uid, spec.qos, spec.plan)
        fault = _first(faults, UPDATE_ERROR)
        if fault is None:
            fault = self._keep_pod(replace(known, spec=spec))
            await self.hooks.sandbox_updated(spec)
        return fault

    async def stop_sandbox(self, uid: str) -> None:
        await self._own(self._stop_sandbox(uid))

    async def _stop_sandbox(self, uid: str) -> None:
        await asyncio.gather(*(self.stop_container(life.state.id, 0) for life in self._of(uid)))
        pod = self._pods.get(uid)
        if pod is not None and pod.running:
            self._keep_pod(replace(pod, running=False))
            await self.hooks.sandbox_stopped(pod.spec)

    async def remove_sandbox(self, uid: str) -> None:
        await self._own(self._remove_sandbox(uid))

    async def _remove_sandbox(self, uid: str) -> None:
        await self._stop_sandbox(uid)
        for life in self._of(uid):
            await self._remove_container(life)
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        gone = await self._call(self._cgroups.remove_pod, uid)
        left = await asyncio.to_thread(remove_tree, self.layout.pod(uid))
        if left or not gone:
            self._find(
                Severity.WARNING, f"pod {uid} was not removed completely: {left or 'its cgroup remains'}"
            )
        await self.hooks.sandbox_removed(pod.spec)

    def _keep_pod(self, record: PodRecord) -> RuntimeFault | None:
        self._pods[record.spec.uid] = record
        path = self.layout.pod(record.spec.uid) / "sandbox.json"
        try:
            save(path, record)
        except StoreError as error:
            return RuntimeFault(UPDATE_ERROR, str(error))
        return None

    # -- containers

    async def create(self, spec: ContainerSpec) -> RuntimeFault | None:
        return await self._own(self._create(spec))

    async def _create(self, spec: ContainerSpec) -> RuntimeFault | None:
        if spec.id in self._lives:
            return None
        pod = self._pods.get(spec.pod)
        if pod is None or not pod.running:
            return RuntimeFault(CREATE_ERROR, f"pod {spec.pod!r} has no running sandbox")
        if spec.credentials is None:
            return RuntimeFault(CREATE_ERROR, f"container {spec.name!r} has no credentials")
        try:
            path_component(spec.id)
            folder = self.layout.container(spec.pod, spec.name) / str(int(spec.attempt))
        except InputError as error:
            return RuntimeFault(CREATE_ERROR, str(error))
        if folder in self._building or any(life.folder == folder for life in self._lives.values()):
            text = f"attempt {spec.attempt} of container {spec.name!r} is taken by another container"
            return RuntimeFault(CREATE_ERROR, text)
        command = command_of(spec, self.settings.images)
        if isinstance(command, RuntimeFault):
            return command
        self._building.add(folder)
        try:
            return await self._create_in(folder, pod, spec, command)
        finally:
            self._building.discard(folder)

    async def _create_in(
        self, folder: Path, pod: PodRecord, spec: ContainerSpec, command: Command
    ) -> RuntimeFault | None:
        wanted = replace(spec, command=command.argv)
        made = await make(pod.spec, wanted, resources_from_plan(spec.plan), self._cdi, self.hooks)
        if isinstance(made, SpecRefusal):
            if made.told:
                await self._undo(pod, Life(folder, record_of(unmade(wanted), command, self._clock())))
            return made.fault
        life = Life(folder, record_of(made, command, self._clock()))
        fault = await self._build(life)
        if fault is not None:
            await self._undo(pod, life)
            return fault
        self._lives[spec.id] = life
        await self._apply_all(made.others)
        await self.hooks.created(pod.spec, life.state)
        return None

    async def _undo(self, pod: PodRecord, life: Life) -> None:
        """Notify hooks, which have already assigned resources, that the container is not created."""
        await self._apply_all(await undo(self.hooks, pod.spec, life.state))

    async def _build(self, life: Life) -> RuntimeFault | None:
        """Create a container's directory and cgroup; on a fault nothing is left of them."""
        record, spec = life.record, life.record.spec
        faults = await self._call(self._cgroups.make_container, spec.pod, spec.id, record.resources)
        fault = _first(faults, CREATE_ERROR)
        if fault is None:
            try:
                await asyncio.to_thread(remove_tree, life.folder)  # of an agent that died in between
                work = life.folder / "work"
                work.mkdir(parents=True, mode=0o700)
                give_folder(work, spec.credentials)
                life.keep(record)
            except (OSError, StoreError) as error:
                fault = RuntimeFault(CREATE_ERROR, str(error))
        if fault is not None:
            await self._call(self._cgroups.remove_container, spec.pod, spec.id)
            await asyncio.to_thread(remove_tree, life.folder)
        return fault

    async def start_container(self, id: str) -> RuntimeFault | None:
        return await self._own(self._start_container(id))

    async def _start_container(self, id: str) -> RuntimeFault | None:
        life = self._lives.get(id)
        if life is None:
            return RuntimeFault(RUN_ERROR, f"unknown container {id!r}")
        async with life.busy:
            if life.state.phase is not ContainerPhase.CREATED:
                return None
            if life.record.spec.credentials is None:
                # Created by an earlier version of the agent, without credentials: it is created again.
                return RuntimeFault(RUN_ERROR, f"container {life.state.name!r} has no credentials")
            pod = self._pods[life.state.pod]
            await self.hooks.starting(pod.spec, life.state)
            problem = await life.launch(
                self._program, self._shim_spec(life, pod), self.settings.start_patience
            )
            if problem:
                await self._end(life)
                return RuntimeFault(RUN_ERROR, f"failed to start container {life.state.name!r}: {problem}")
            self._watch(life)
            await self.hooks.started(pod.spec, life.state)
        return None

    def _shim_spec(self, life: Life, pod: PodRecord) -> dict[str, Any]:
        join = self._cgroups.join_files(life.state.pod, life.state.id)
        return shim_spec(life.record, life.folder, pod.spec.name, join, self.settings)

    def exec_spec(self, id: str) -> dict[str, Any] | None:
        """Return the specification of a command in a running container; None if the container does
        not run.
        """
        life = self._lives.get(id)
        if life is None or life.run is None or life.state.phase is not ContainerPhase.RUNNING:
            return None
        pod = self._pods[life.state.pod]
        join = self._cgroups.join_files(life.state.pod, id)
        return exec_spec(life.record, life.run, life.folder, pod.spec.name, join, self.settings)

    @property
    def exec_program(self) -> Path:
        """The program that executes commands in containers, as a file that Python can run."""
        return shims.confinement_beside(self._program)

    async def update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        return await self._own(self._update(id, plan))

    async def _update(self, id: str, plan: ContainerPlan) -> RuntimeFault | None:
        life = self._lives.get(id)
        if life is None:
            return RuntimeFault(UPDATE_ERROR, f"unknown container {id!r}")
        pod = self._pods[life.state.pod]
        adjusted = await self.hooks.update(pod.spec, life.state, resources_from_plan(plan))
        if isinstance(adjusted, RuntimeFault):
            return adjusted
        fault = await self._apply(id, adjusted.resources, plan)
        await self._apply_all(adjusted.others)
        if fault is None:
            await self.hooks.updated(pod.spec, life.state)
        return fault

    async def apply(self, id: str, resources: LinuxResources) -> RuntimeFault | None:
        """Change the resources of a container; a missing or exited one is no fault."""
        return await self._own(self._apply(id, resources))

    async def _apply(
        self, id: str, resources: LinuxResources, plan: ContainerPlan | None = None
    ) -> RuntimeFault | None:
        life = self._lives.get(id)
        if life is None:
            return None
        async with life.changing:
            return await self._change(life, resources, plan)

    async def _change(
        self, life: Life, resources: LinuxResources, plan: ContainerPlan | None
    ) -> RuntimeFault | None:
        if life.state.phase is ContainerPhase.EXITED:
            return None
        id, old = life.state.id, life.record
        merged = old.resources.merged(resources)
        pod = life.state.pod
        faults = await self._call(self._cgroups.make_container, pod, id, merged)
        fault = _first(faults, UPDATE_ERROR)
        if fault is None and resources.cpus and not has_cpuset(self._cgroups.join_files(pod, id)):
            fault = await self._pin(life, resources.cpus)
        if fault is not None:
            await self._call(self._cgroups.make_container, pod, id, old.resources)
            return fault
        try:
            spec = old.spec if plan is None else replace(old.spec, plan=plan)
            life.keep(replace(life.record, resources=merged, spec=spec))
        except StoreError as error:
            return RuntimeFault(UPDATE_ERROR, str(error))
        if self._changed is not None:
            self._changed(pod)
        return None

    async def _pin(self, life: Life, cpus: str) -> RuntimeFault | None:
        """Pin the current processes themselves, where there is no cpuset."""
        wanted = cpus_in(cpus)
        if wanted is None:
            return RuntimeFault(UPDATE_ERROR, f"{cpus!r} is not a CPU list")
        if life.run is None:
            return None
        pids = await asyncio.to_thread(shims.descendants, life.run.pid)
        problem = await asyncio.to_thread(shims.set_affinity, pids, wanted)
        if problem:  # a machine that simulates a larger one does not have these CPUs
            _log.info("container %s: CPUs %s cannot be set: %s", life.state.id, cpus, problem)
        return None

    async def _apply_all(self, changes: Mapping[str, LinuxResources]) -> None:
        for id, resources in changes.items():
            fault = await self._apply(id, resources)
            if fault is not None:
                self._find(Severity.WARNING, f"container {id} was not changed: {fault.message}")

    async def stop_container(self, id: str, grace: float) -> None:
        life = self._lives.get(id)
        if life is None:
            return
        async with life.busy:
            if life.state.phase is ContainerPhase.CREATED:
                text = "it was stopped before it was started"
                life.lose(Exit(exit_code=KILLED, finished_at=time.time(), error=text))
                await self._own(self._end(life))
        if life.state.phase is ContainerPhase.RUNNING and grace > 0:
            life.signal(stop_signal(life.record.spec.stop_signal))
            await _wait(life.ended, grace)
        while not life.ended.is_set():
            life.kill()
            await asyncio.to_thread(self._cgroups.kill, life.state.pod, id)
            await _wait(life.ended, 1.0)

    async def remove_container(self, id: str) -> None:
        life = self._lives.get(id)
        if life is not None:
            await self.stop_container(id, 0)
            await self._own(self._remove_container(life))

    async def _remove_container(self, life: Life) -> None:
        async with life.busy:
            state = life.state
            if self._lives.pop(state.id, None) is None:
                return
            pod = self._pods.get(state.pod)
            await self._call(self._cgroups.remove_container, state.pod, state.id)
            left = await asyncio.to_thread(remove_tree, life.folder)
            if left:
                self._find(Severity.WARNING, f"container {state.id} was not removed completely: {left}")
            if pod is not None:
                await self.hooks.removed(pod.spec, state)

    # -- exits

    def _watch(self, life: Life) -> None:
        def settle() -> None:
            self._spawn(self._settle(life))

        if not life.watch(settle):
            settle()

    async def _settle(self, life: Life) -> None:
        """Handle the exit of a container."""
        async with life.busy:
            self._report(life.settle(self.layout.quarantine))
            await self._end(life)
        if self._changed is not None:
            self._changed(life.state.pod)

    async def _end(self, life: Life) -> None:
        if life.ended.is_set():
            return
        state = life.state
        try:
            await self._call(self._cgroups.remove_container, state.pod, state.id)
        finally:
            life.close()
        pod = self._pods.get(state.pod)
        if pod is not None:
            await self._apply_all(await self.hooks.stopped(pod.spec, state))

    # -- adoption and repair

    def _set_up_cgroups(self) -> None:
        for problem in set_up_cgroups(self._cgroups, self._pods, self._lives):
            self._find(Severity.WARNING, problem)

    async def restore_cgroups(self) -> tuple[str, ...]:
        """Create removed cgroups of pods and containers again; return what was missing.

        The root cgroup has to exist.
        """
        return await self._own(self._restore_cgroups())

    async def _restore_cgroups(self) -> tuple[str, ...]:
        lost = []
        for uid, pod in list(self._pods.items()):
            # Changes of cgroups are serialized: if the pod is removed now, that follows this.
            known = self._pods.get(uid) is pod and pod.running
            if known and await self._call(restore_pod, self._cgroups, pod):
                lost.append(f"pod {uid}")
        for life in list(self._lives.values()):
            if life.busy.locked():
                continue  # it is being started or has exited; if needed, at the next check
            async with life.busy:
                exited = life.state.phase is ContainerPhase.EXITED
                if not exited and await self._call(restore_container, self._cgroups, life):
                    lost.append(f"container {life.state.id}")
        return tuple(lost)

    async def _adopt(self, life: Life) -> None:
        try:
            self._report(await life.adopt(self.layout.quarantine, self.settings.adopt_patience))
        except (OSError, StoreError) as error:
            self._find(Severity.ERROR, f"container {life.state.id} cannot be adopted: {error}")
        if life.state.phase is ContainerPhase.CREATED:
            await self._call(
                self._cgroups.make_container, life.state.pod, life.state.id, life.record.resources
            )
        if life.state.phase is ContainerPhase.RUNNING:
            self._watch(life)
        elif life.state.phase is ContainerPhase.EXITED:
            await self._end(life)

    # -- queries

    def sandboxes(self) -> Sequence[SandboxInfo]:
        return [pod.state for pod in self._pods.values()]

    def containers(self, pod: str = "") -> Sequence[ContainerInfo]:
        return [life.state for life in (self._of(pod) if pod else self._lives.values())]

    def inventory(self) -> RuntimeState:
        return RuntimeState(
            tuple(pod.spec for pod in self._pods.values() if pod.running),
            tuple(
                RuntimeContainer(life.record.spec, life.state, life.record.resources)
                for life in self._lives.values()
            ),
        )

    # -- internals

    def _of(self, uid: str) -> list[Life]:
        return [life for life in self._lives.values() if life.state.pod == uid]

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        """Complete some work, even if the caller stops waiting."""
        return await asyncio.shield(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _call(self, function: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args))

    def _find(self, severity: Severity, text: str) -> None:
        self._report((Finding(severity, text),))

    def _report(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            _log.warning("%s", finding.what)
        self.findings += findings
        del self.findings[:-_FINDINGS_MAX]


def _first(faults: Sequence[CgroupFault], reason: str) -> RuntimeFault | None:
    """Return the first fault; values that can never be set on this machine are tolerated."""
    fault = next((fault for fault in faults if not fault.absent), None)
    return RuntimeFault(reason, str(fault)) if fault is not None else None


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
