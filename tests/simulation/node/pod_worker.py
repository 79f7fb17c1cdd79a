"""Worker of one pod on a simulated kubelet, from its admission to its deletion.

Claims are prepared and released by the steps of the node agent. Guarantees that containers run only after the
claims are prepared, that claims are released only after the containers have stopped, that a terminal phase is
reported only after that, and that the pod is deleted from the API last.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from plimsoll.common.tasks import at_most
from plimsoll.node.containers import RuntimeFault
from plimsoll.node.pods import steps
from plimsoll.node.pods.backoff import StepFailure, record_failure
from plimsoll.node.pods.status import reported_status
from tests.simulation.node.admission import Rejection
from tests.simulation.node.pod_statuses import (
    Tree,
    admitted_status,
    ended_status,
    rejected_status,
    running_status,
)

if TYPE_CHECKING:
    from tests.simulation.node.kubelet_process import KubeletPod, KubeletProcess

#: Most time for the start of containers, and for their end (seconds).
_START_SECONDS, _STOP_SECONDS = 1.0, 3.0


class SimulatedPodWorker:
    """Lifecycle of a pod."""

    def __init__(self, kubelet: KubeletProcess, pod: KubeletPod, rejection: Rejection | None) -> None:
        self.pod = pod
        self.uid = pod.uid
        self.removed = False
        self._kubelet = kubelet
        self._node = kubelet.node
        self._rejection = rejection
        self._wake = asyncio.Event()
        self._waits_for: frozenset[str] = frozenset()
        self._status: Tree = reported_status(pod.view)

    # -- events

    def update(self, pod: KubeletPod) -> None:
        self.pod = pod
        self._kubelet.writer.observe(pod.view)
        self._wake.set()

    def mark_removed(self) -> None:
        self.removed = True
        self._wake.set()

    def claims_released(self, uids: frozenset[str]) -> None:
        """End the wait for devices that other claims have released."""
        if self._waits_for & uids:
            self._waits_for = frozenset()
            self._wake.set()

    @property
    def terminating(self) -> bool:
        return self.removed or self.pod.is_deleted or self.pod.is_terminal

    # -- lifecycle

    async def run(self) -> None:
        if self._rejection is not None:
            self._report(rejected_status(self._status, self._kubelet.now(), self._rejection))
            await self._release()
        else:
            phase = await self._run_admitted()
            await self._release()
            self._kubelet.kubelet.admitted.pop(self.uid, None)
            if not self.removed and not self.pod.is_terminal:
                self._report(ended_status(self._status, self._kubelet.now(), phase))
        await self._delete()

    async def _run_admitted(self) -> str:
        """Run the containers to their end; return the phase of the pod then."""
        phase = self._node.ended.get(self.uid, "")
        if phase:
            return phase
        phase = "Failed"
        if self.uid in self._node.containers or await self._start():
            if not self.terminating:
                self._report(running_status(self._status, self._kubelet.now()))
            phase = await self._await_end()
            await asyncio.sleep(self._random() * _STOP_SECONDS if self.terminating else 0)
            self._node.stop_containers(self.uid, self._kubelet.process.name, phase)
        return phase

    async def _start(self) -> bool:
        """Prepare the claims and start the containers; return whether they run."""
        if not self.terminating:
            self._report(admitted_status(self._status, self._kubelet.now()))
        failure: StepFailure | None = None
        while not self.terminating:
            fault = await steps.prepare_claims(self.pod.view, self._kubelet.deps)
            if fault is None:
                await asyncio.sleep(self._random() * _START_SECONDS)
                claims = self._kubelet.cache.claims_of_pod(self.uid)
                if self.terminating or not all(claim.ready for claim in claims):
                    continue
                self._node.start_containers(self.uid, self.pod.tree, self._kubelet.process.name)
                return True
            failure = self._record(failure, fault)
            await self._sleep(failure, fault.waits_for)
        return False

    async def _await_end(self) -> str:
        """Wait until the pod is terminated or its containers end by themselves; return the phase then."""
        running, loop = self._node.containers[self.uid], self._kubelet.process.loop
        while not self.terminating:
            if running.ends_at is not None and loop.now >= running.ends_at:
                return running.phase
            self._wake.clear()
            async with at_most(None if running.ends_at is None else running.ends_at - loop.now + 0.001):
                await self._wake.wait()
        return "Failed"

    async def _release(self) -> None:
        """Unprepare the claims, however often that fails."""
        failure: StepFailure | None = None
        while (fault := await steps.release_claims(self.pod.view, self._kubelet.deps)) is not None:
            failure = self._record(failure, fault)
            await asyncio.sleep(failure.delay(self._kubelet.deps.timing))

    async def _delete(self) -> None:
        """Delete the pod from the API once it is to be deleted."""
        while not self.removed and not self.pod.is_deleted:
            self._wake.clear()
            await self._wake.wait()
        if not self.removed:
            await self._kubelet.writer.wait_until_written(self.uid)
            gone = await self._kubelet.writer.delete(self.pod.view)
            while not gone and not self.removed:
                self._wake.clear()
                await self._wake.wait()

    # -- parts

    def _report(self, status: Tree) -> None:
        self._status = status
        self._kubelet.writer.put(self.pod.view, status)

    def _record(self, failure: StepFailure | None, fault: RuntimeFault) -> StepFailure:
        name = self.pod.view.metadata.full_name
        self._node.history.note(self._kubelet.process.name, "fails:", f"pod {name}: {fault.message}")
        return record_failure(failure, fault.reason, fault.message, 0.0, fault.waits_for)

    async def _sleep(self, failure: StepFailure, waits_for: frozenset[str]) -> None:
        """Wait for the back-off, or until the pod terminates or the claims it waits for are released."""
        self._waits_for = waits_for
        async with at_most(failure.delay(self._kubelet.deps.timing)):
            while not self.terminating and self._waits_for == waits_for:
                self._wake.clear()
                await self._wake.wait()
        self._waits_for = frozenset()

    def _random(self) -> float:
        return self._kubelet.process.loop.dice.random()
