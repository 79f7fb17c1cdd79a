"""In-place resize of one pod: checked, applied step by step, and reported.

The allocated resources may differ from the spec (then the resize is checked), and the resources containers
run with may differ from the allocated ones (then they are applied). Guarantees that only accepted resizes are
applied, and that an accepted resize which was not applied when an agent died is applied by the next one.
`admission.resize` plans the steps; `dependencies.Resizer` decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import Pod, ResourceRequirements
from plimsoll.api.meta import Condition
from plimsoll.node.admission.allocation import PodAllocation
from plimsoll.node.admission.resize import (
    ResizeDecision,
    ResizeOutcome,
    ResizePlan,
    ResizeStep,
    format_resize_event,
    in_progress_condition,
    is_resized,
    pending_condition,
    plan_resize,
)
from plimsoll.node.cgroup_planner import PodCgroupPlans
from plimsoll.node.cgroup_plans import ContainerPlan
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.pods.dependencies import Resizer, WorkerDependencies
from plimsoll.node.pods.steps import sandbox_spec
from plimsoll.node.pods.writer import WARNING


class PodResize:
    """Progress of a pod's resize."""

    def __init__(self, pod: Pod, deps: WorkerDependencies) -> None:
        self.conditions: tuple[Condition, ...] = ()
        #: Containers to restart, whatever their restart policy.
        self.restarting: set[str] = set()
        #: Time of the next check or attempt to apply an accepted resize.
        self.retry_at: float | None = None
        self._parts = deps
        self._due = True
        #: Last step, to be applied after the restarts.
        self._rest: ResizeStep | None = None
        self._decision: ResizeDecision | None = None
        self._deferred_since: float | None = None
        self._applied = _applied(pod)

    @property
    def actual(self) -> dict[str, ResourceRequirements]:
        """Resources containers run with, where they are known to differ from the allocated ones."""
        return dict(self._applied.containers)

    @property
    def deferred_since(self) -> float | None:
        """Time since which the resize is deferred until other pods release resources; None if it is not."""
        return self._deferred_since

    def invalidate(self) -> None:
        """Require a new check because something it depends on may have changed."""
        self._due = True

    def drop_stopped(self, pod: Pod, states: Sequence[ContainerInfo]) -> None:
        """Drop the applied resources of containers that do not run; they start with the allocated ones."""
        running = _running(states)
        kept = {name: own for name, own in self._applied.containers.items() if name in running}
        self._applied = PodAllocation(kept, self._applied.pod_level)

    def needs_work(self, pod: Pod, states: Sequence[ContainerInfo], now: float) -> bool:
        """Return whether there is a resize to check or to apply now."""
        resizer = self._parts.resizer
        if resizer is None:
            return False
        is_due = self._due or (self.retry_at is not None and self.retry_at <= now)
        if self._rest is not None and not self.restarting and (is_due or self.retry_at is None):
            return True
        if not is_due:
            return False
        allocated = resizer.allocated(pod)
        if is_resized(pod, allocated) or is_resized(allocated, self._applied.apply_to(allocated)):
            return True
        self.conditions, self._due, self.retry_at = (), False, None
        return False

    async def sync(self, pod: Pod, states: Sequence[ContainerInfo]) -> tuple[ContainerInfo, ...]:
        """Check and apply; return the containers to be restarted."""
        resizer = self._parts.resizer
        assert resizer is not None
        self._due, self.retry_at = False, None
        if self._rest is not None and not self.restarting:
            error = await self._apply(resizer.allocated(pod), ResizePlan((self._rest,)), states)
            if error:
                self._fail(pod, error)
            else:
                self._rest, self._due = None, True
            return ()
        before = self._applied.apply_to(resizer.allocated(pod))
        if is_resized(pod, resizer.allocated(pod)) and not await self._check_resize(pod, resizer):
            return ()
        allocated = resizer.allocated(pod)
        self._applied = PodAllocation.from_spec(before)
        self.conditions = (in_progress_condition(pod),)
        plan = self._plan(allocated, before, states)
        error = plan if isinstance(plan, str) else await self._apply(allocated, plan, states)
        if error:
            self._fail(pod, error)
            return ()
        assert isinstance(plan, ResizePlan)
        self._applied = PodAllocation({}, allocated.spec.resources)
        self.conditions = ()
        self._parts.events.emit(pod, "ResizeCompleted", format_resize_event(allocated, "completed"))
        self.restarting |= set(plan.restart)
        self._rest = plan.rest
        running = _running(states)
        return tuple(running[name] for name in plan.restart if name in running)

    async def _check_resize(self, pod: Pod, resizer: Resizer) -> bool:
        decision = await resizer.check(pod)
        if decision is None or decision.accepted:
            self._decision = self._deferred_since = None
            self._parts.events.emit(pod, "ResizeStarted", format_resize_event(pod, "started"))
            return True
        if decision != self._decision:
            text = format_resize_event(pod, decision.outcome.value, decision.message)
            self._parts.events.emit(pod, f"Resize{decision.outcome.value}", text, type=WARNING)
        self._decision = decision
        if decision.outcome is not ResizeOutcome.DEFERRED:
            self._deferred_since = None
        elif self._deferred_since is None:
            self._deferred_since = self._parts.clock()
        self.conditions = (pending_condition(pod, decision),)
        if decision.outcome is ResizeOutcome.DEFERRED:
            self.retry_at = self._parts.clock() + self._parts.timing.retry_max
        return False

    def _plan(self, allocated: Pod, before: Pod, states: Sequence[ContainerInfo]) -> ResizePlan | str:
        plans = self._parts.plans
        was = PodAllocation.from_spec(before)
        usage = self._parts.usage(allocated.metadata.uid)
        return plan_resize(allocated, was, plans.plan(before), plans.plan(allocated), _running(states), usage)

    async def _apply(self, allocated: Pod, plan: ResizePlan, states: Sequence[ContainerInfo]) -> str:
        running = _running(states)
        plans = self._parts.plans.plan(allocated)
        for step in plan.steps:
            if isinstance(step.plan, ContainerPlan):
                fault = await self._parts.runtime.update(running[step.container].id, step.plan)
            else:
                pod_level = PodCgroupPlans(plans.qos, step.plan, plans.sandbox, plans.containers)
                fault = await self._parts.runtime.update_sandbox(sandbox_spec(allocated, pod_level))
            if fault is not None:
                return fault.message
        return ""

    def _fail(self, pod: Pod, error: str) -> None:
        self.conditions = (in_progress_condition(pod, error),)
        self._parts.events.emit(pod, "ResizeError", format_resize_event(pod, "error", error), type=WARNING)
        self.retry_at = self._parts.clock() + self._parts.timing.retry_max


def _running(states: Sequence[ContainerInfo]) -> dict[str, ContainerInfo]:
    return {state.name: state for state in states if state.phase is ContainerPhase.RUNNING}


def _applied(pod: Pod) -> PodAllocation:
    """Return the resources that containers ran with when their status was last reported."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    reported = {s.name: s.resources for s in statuses if s.resources is not None and "running" in s.state}
    return PodAllocation(reported, None)
