"""Stopping of a pod's containers: one background task per stop, with the preStop hook first.

Guarantees that a preStop hook runs once, and that further stops of the same container can only
shorten its deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from plimsoll.api.core import Pod
from plimsoll.common.tasks import start_task
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.pods.lifecycle_hooks import pre_stop_of, run_hook
from plimsoll.node.pods.pod_actions import format_pod
from plimsoll.node.pods.pod_state import StopContainer
from plimsoll.node.pods.writer import LOG, WARNING


class ContainerStopper:
    """Stops in progress of one pod's containers; `changed` is called when one has ended."""

    def __init__(self, pod: Callable[[], Pod], deps: WorkerDependencies, changed: Callable[[], None]) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._pod = pod
        self._deps = deps
        self._changed = changed
        self._deadlines: dict[str, float] = {}

    @property
    def deadlines(self) -> Mapping[str, float]:
        """Container ID -> time at which it will be killed."""
        return self._deadlines

    def stop(self, action: StopContainer, now: float) -> None:
        """Start to stop a container; returns at once. The grace period begins when it was planned: `now`."""
        first = action.id not in self._deadlines
        deadline = now + action.grace
        self._deadlines[action.id] = deadline
        if first:
            self._deps.events.emit(self._pod(), "Killing", action.message, container=action.name)
        work = self._stop_container(action, deadline, first=first)
        start_task(self.tasks, work, f"stop of {action.name}")

    async def _stop_container(self, action: StopContainer, deadline: float, *, first: bool) -> None:
        deps = self._deps
        try:
            # DIFF: a kubelet runs the preStop hooks of sidecars at once, while the containers they serve
            # still run: test_the_stop_hook_of_a_sidecar_runs_after_the_main_containers.
            hook = pre_stop_of(self._pod(), action.name) if first else None
            if hook is not None:
                container, handler = hook
                result = await run_hook(handler, container, action.id, self._pod(), deps, action.grace)
                if not result.ok:
                    deps.events.emit(
                        self._pod(),
                        "FailedPreStopHook",
                        "PreStopHook failed",
                        type=WARNING,
                        container=action.name,
                    )
            # At most the whole grace period: the wall clock may have been set back.
            left = min(deadline - deps.clock(), action.grace)
            grace = max(left, min(action.grace, deps.timing.grace_min))
            await deps.runtime.stop_container(action.id, grace)
            if self._is_running(action.id):
                LOG.warning("pod %s: container %s does not terminate", format_pod(self._pod()), action.name)
                await asyncio.sleep(deps.timing.retry_first)
        except Exception:
            LOG.exception("pod %s: container %s cannot be stopped", format_pod(self._pod()), action.name)
            await asyncio.sleep(deps.timing.retry_first)
        finally:
            if self._deadlines.get(action.id) == deadline:
                del self._deadlines[action.id]
            # The task itself still counts among the stops until its callback has run.
            asyncio.get_running_loop().call_soon(self._changed)

    def _is_running(self, id: str) -> bool:
        states = self._deps.runtime.containers(self._pod().metadata.uid)
        return any(state.id == id and state.phase is ContainerPhase.RUNNING for state in states)
