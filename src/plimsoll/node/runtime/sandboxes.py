"""Pod sandboxes of the process runtime: the cgroup, the directory and the record of each pod."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from plimsoll.common.checkpoint import FindingSeverity
from plimsoll.errors import InputError, StoreError
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.cgroups.values import CgroupFault
from plimsoll.node.containers import RuntimeFault, SandboxSpec
from plimsoll.node.hooks import RuntimeHooks
from plimsoll.node.layout import Layout
from plimsoll.node.runtime.state_dir import PodRecord, remove_tree, save
from plimsoll.node.runtime.tasks import RuntimeTasks

SANDBOX_ERROR = "CreatePodSandboxError"
UPDATE_ERROR = "UpdateContainerError"


class Sandboxes:
    """Sandboxes of one runtime, by pod UID; the runtime stops and removes their containers."""

    def __init__(
        self,
        layout: Layout,
        cgroups: Cgroups,
        hooks: Callable[[], RuntimeHooks],
        tasks: RuntimeTasks,
        *,
        ip: str,
    ) -> None:
        self.records: dict[str, PodRecord] = {}
        self._layout = layout
        self._cgroups = cgroups
        self._hooks = hooks
        self._tasks = tasks
        self._ip = ip

    async def run(self, spec: SandboxSpec) -> RuntimeFault | None:
        """Create a sandbox, or update a running one."""
        known = self.records.get(spec.uid)
        if known is not None and known.running:
            return await self.update(spec)
        try:
            directory = self._layout.pod(spec.uid)
        except InputError as error:
            return RuntimeFault(SANDBOX_ERROR, str(error))
        faults = await self._tasks.call(self._cgroups.make_pod, spec.uid, spec.qos, spec.plan)
        fault = first_fault(faults, SANDBOX_ERROR)
        record = PodRecord(spec=spec, running=True, created_at=time.time(), ip=self._ip)
        if fault is None:
            try:
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                save(directory / "sandbox.json", record)
            except (OSError, StoreError) as error:
                fault = RuntimeFault(SANDBOX_ERROR, str(error))
        if fault is None:
            self.records[spec.uid] = record
            fault = await self._hooks().sandbox_run(spec)
        if fault is not None:
            await self._discard(directory, spec.uid, known)
        return fault

    async def _discard(self, directory: Path, uid: str, known: PodRecord | None) -> None:
        """Remove a sandbox that could not be created; containers of an earlier one remain known."""
        await self._tasks.call(self._cgroups.remove_pod, uid)
        if known is not None:
            self._store(known)
            return
        self.records.pop(uid, None)
        await asyncio.to_thread(remove_tree, directory)

    async def update(self, spec: SandboxSpec) -> RuntimeFault | None:
        """Apply the changed plan of a running sandbox."""
        known = self.records.get(spec.uid)
        if known is None or not known.running:
            return RuntimeFault(UPDATE_ERROR, f"pod {spec.uid!r} has no running sandbox")
        if known.spec == spec:
            return None
        fault = await self._hooks().sandbox_update(spec)
        if fault is not None:
            return fault
        faults = await self._tasks.call(self._cgroups.make_pod, spec.uid, spec.qos, spec.plan)
        fault = first_fault(faults, UPDATE_ERROR)
        if fault is None:
            fault = self._store(replace(known, spec=spec))
            await self._hooks().sandbox_updated(spec)
        return fault

    async def stop(self, uid: str) -> None:
        """Mark a sandbox as stopped, once its containers are."""
        pod = self.records.get(uid)
        if pod is not None and pod.running:
            self._store(replace(pod, running=False))
            await self._hooks().sandbox_stopped(pod.spec)

    async def remove(self, uid: str) -> None:
        """Remove a stopped sandbox without containers."""
        pod = self.records.pop(uid, None)
        if pod is None:
            return
        gone = await self._tasks.call(self._cgroups.remove_pod, uid)
        left = await asyncio.to_thread(remove_tree, self._layout.pod(uid))
        if left or not gone:
            text = f"pod {uid} was not removed completely: {left or 'its cgroup remains'}"
            self._tasks.add_finding(FindingSeverity.WARNING, text)
        await self._hooks().sandbox_removed(pod.spec)

    def _store(self, record: PodRecord) -> RuntimeFault | None:
        self.records[record.spec.uid] = record
        path = self._layout.pod(record.spec.uid) / "sandbox.json"
        try:
            save(path, record)
        except StoreError as error:
            return RuntimeFault(UPDATE_ERROR, str(error))
        return None


def first_fault(faults: Sequence[CgroupFault], reason: str) -> RuntimeFault | None:
    """Return the first fault; values that can never be set on this machine are tolerated."""
    fault = next((fault for fault in faults if not fault.absent), None)
    return RuntimeFault(reason, str(fault)) if fault is not None else None
