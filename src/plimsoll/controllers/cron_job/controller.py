"""CronJob controller: watches, creation of Jobs, and the status."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.label_selection import MATCH_NOTHING, CompiledLabelSelector
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import CRON_JOBS, JOBS
from plimsoll.client.event_recorder import WARNING
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, CreateAction
from plimsoll.controllers.cron_job.plan import (
    COMPONENT,
    add_started,
    end_of,
    plan_cron_job,
)
from plimsoll.controllers.pod_utils import ObjectName
from plimsoll.controllers.workload_views import CronJobStatusView, CronJobView, JobView
from plimsoll.controllers.workloads.ownership import is_controlled_by
from plimsoll.controllers.workloads.pod_owner import OwnerController
from plimsoll.controllers.workloads.templates import patch_status
from plimsoll.errors import ApiError


class CronJobController(OwnerController[CronJobView, JobView]):
    """Controller around `plan_cron_job`; Jobs are never adopted."""

    name = "cronjob-controller"
    endpoint = CRON_JOBS
    dependents = JOBS
    component = COMPONENT

    def compile_selector(self, owner: CronJobView) -> CompiledLabelSelector:
        return MATCH_NOTHING

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        cron_job = self.find_owner(key)
        if cron_job is None:
            return EMPTY_PLAN
        jobs = self._index.find(cron_job.metadata.uid)
        known = {job.metadata.uid for job in jobs}
        gone = [
            each.uid
            for each in cron_job.status.active
            if each.uid not in known and await self._is_gone(key.namespace, each.name, each.uid)
        ]
        now = self._context.clock.now()
        plan = plan_cron_job(cron_job, jobs, gone, now)
        await self._context.executor.execute(plan.actions)
        status = plan.status
        if plan.create is not None and plan.due is not None:
            cron_job = await self._write_status(cron_job, status)
            started = await self._create(cron_job, plan.create)
            if started is not None:
                due = format_time(plan.due)
                status = add_started(status, started, due) if not end_of(started) else status
                status = replace(status, last_schedule_time=due)
        await self._write_status(cron_job, status)
        return ActionPlan(requeue_after=plan.requeue_after)

    async def _write_status(self, cron_job: CronJobView, status: CronJobStatusView) -> CronJobView:
        """Write the status if it differs; return the CronJob as it is then."""
        metadata = cron_job.metadata
        patch = patch_status(CRON_JOBS, metadata, cron_job.status, status)
        if patch is None:
            return cron_job
        tree = await self._context.client.patch(
            CRON_JOBS, metadata.name, patch.patch, metadata.namespace, subresource="status"
        )
        revision = str(tree["metadata"]["resourceVersion"])
        return replace(cron_job, metadata=replace(metadata, resource_version=revision), status=status)

    async def _create(self, cron_job: CronJobView, action: CreateAction) -> JobView | None:
        """Create a Job, or return the one that was created before; None if its name is taken."""
        name = str(action.tree["metadata"]["name"])
        try:
            tree = await self._context.client.create(JOBS, action.tree, action.namespace)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                if "because it is being terminated" not in error.message:
                    text = f"Error creating job: {error.message}"
                    await self.report(cron_job, "FailedCreate", text, WARNING)
                raise
            raw = await self._context.find_raw(JOBS, name, action.namespace)
            found = None if raw is None else codec.decode(raw, JobView)
            owned = found is not None and is_controlled_by(found.metadata, cron_job.metadata)
            return found if owned else None
        await self.report(cron_job, "SuccessfulCreate", f"Created job {name}")
        return codec.convert_fast(tree, JobView)

    async def _is_gone(self, namespace: str, name: str, uid: str) -> bool:
        raw = await self._context.find_raw(JOBS, name, namespace)
        return raw is None or codec.decode(raw, JobView).metadata.uid != uid
