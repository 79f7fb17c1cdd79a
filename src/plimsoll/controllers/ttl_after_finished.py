"""TTL after finished: deletes Jobs `ttlSecondsAfterFinished` after they have ended."""

from __future__ import annotations

from plimsoll.api import codec
from plimsoll.api.kept import is_kept
from plimsoll.api.timestamps import parse_time
from plimsoll.client.endpoints import JOBS
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, DeleteAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import ObjectName, object_name
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.controllers.workload_views import JobView


def plan_expiry(job: JobView, now: float) -> ActionPlan:
    """Plan the deletion of a job that has expired; of one that has ended, when to check again."""
    ttl = job.spec.ttl_seconds_after_finished
    if ttl is None or job.metadata.deletion_timestamp is not None or is_kept(job.metadata):
        return EMPTY_PLAN
    ended = next(
        (
            parse_time(each.last_transition_time)
            for each in job.status.conditions
            if each.type in ("Complete", "Failed") and each.status == "True"
        ),
        None,
    )
    if ended is None:
        return EMPTY_PLAN
    if ended + ttl > now:
        return ActionPlan(requeue_after=ended + ttl - now)
    metadata = job.metadata
    delete = DeleteAction(
        JOBS,
        metadata.name,
        metadata.namespace,
        uid=metadata.uid,
        revision=metadata.resource_version,
        propagation="Foreground",
    )
    return ActionPlan((delete,))


class TTLAfterFinishedController:
    """Controller around `plan_expiry`; the live object decides."""

    name = "ttl-after-finished-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        self._jobs = context.informers.get(JOBS)
        self._jobs.add_handler(CallbackHandler(self._on_job))

    def _on_job(self, old: JobView | None, new: JobView | None) -> None:
        if new is not None and new.spec.ttl_seconds_after_finished is not None:
            self.queue.add(object_name(new.metadata))

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        job: JobView | None = self._jobs.get(*key)
        now = self._context.clock.now()
        if job is None or not (plan := plan_expiry(job, now)):
            return EMPTY_PLAN if job is None else plan
        raw = await self._context.find_raw(JOBS, key.name, key.namespace)
        if raw is None:
            return EMPTY_PLAN
        plan = plan_expiry(codec.decode(raw, JobView), now)
        await self._context.executor.execute(plan.actions)
        return plan
