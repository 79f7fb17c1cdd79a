"""Job controller: watches, backoff records, execution of plans, and finalizers of orphaned pods.

DIFF: pods that end are counted at once; upstream collects the changes of a second
(test_pods_of_a_job_are_counted_at_once).
"""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.kept import is_kept
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.client.endpoints import JOBS
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.job.backoff import BackoffRecord
from plimsoll.controllers.job.plan import (
    TRACKING,
    JobPlan,
    has_finalizer,
    is_finished_job,
    plan_job,
    remove_finalizer,
)
from plimsoll.controllers.job.status_plan import COMPONENT, plan_counting, plan_tracking
from plimsoll.controllers.pod_utils import ObjectName
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.workload_views import JobStatusView, JobView
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.controllers.workloads.pod_control import PodWrites, revision_number
from plimsoll.controllers.workloads.pod_owner import PodOwnerController
from plimsoll.controllers.workloads.templates import patch_status

#: Value of `managedBy` for this controller.
_OWN_NAME = "kubernetes.io/job-controller"
#: Marks the key of a pod without a job; no name contains a slash.
_ORPHAN = "pod/"


class JobController(PodOwnerController[JobView]):
    """Controller around `plan_job` and the plans of the status."""

    name = "job-controller"
    endpoint = JOBS
    component = COMPONENT
    finalizer = TRACKING

    def __init__(self, context: ControllerContext) -> None:
        self._backoff: dict[str, BackoffRecord] = {}
        self._written: dict[str, int] = {}  # job -> revision of the last status that was written
        self._tracked: ObjectIndex[Pod, ObjectName] = ObjectIndex(_tracked_by)
        super().__init__(context)
        self._dependents.add_handler(self._tracked)

    def _on_owner(self, old: JobView | None, new: JobView | None) -> None:
        super()._on_owner(old, new)
        if old is not None and new is None:
            self._backoff.pop(old.metadata.uid, None)
            self._written.pop(old.metadata.uid, None)

    def _on_dependent(self, old: Pod | None, new: Pod | None) -> None:
        super()._on_dependent(old, new)
        if new is not None and has_finalizer(new) and controller_of(new.metadata) is None:
            self.queue.add(ObjectName(new.metadata.namespace, _ORPHAN + new.metadata.name))

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        if key.name.startswith(_ORPHAN):
            return await self._release_orphan(key)
        job = self._owners.get(*key)
        if job is not None and is_kept(job.metadata):
            return EMPTY_PLAN
        if job is not None and (job.spec.managed_by or _OWN_NAME) != _OWN_NAME:
            return EMPTY_PLAN
        await self._release_left(key, job)
        if job is None or is_finished_job(job):
            return EMPTY_PLAN
        if revision_number(job.metadata.resource_version) < self._written.get(job.metadata.uid, 0):
            return EMPTY_PLAN  # the key is added again when the cache has the status
        selector = self.selector_of(job)
        if isinstance(selector, SelectorProblem) or selector.nothing:
            return EMPTY_PLAN  # refused by current API servers
        pods = await self.claim_pods(job, selector)
        now = self._context.clock.now()
        plan = plan_job(job, pods, self._backoff.get(job.metadata.uid, BackoffRecord()), now)
        return await self._execute(job, plan, now)

    async def _execute(self, job: JobView, plan: JobPlan, now: float) -> ActionPlan:
        reference, uid = self.reference(job), job.metadata.uid
        error = await self._pod_control.remove_finalizers(uid, plan.releases)
        deleted = PodWrites(error=error)
        if error is None:
            deleted = await self._pod_control.delete(reference, plan.deletes)
        created = await self._pod_control.create(reference, plan.creates)
        error = deleted.error or created.error
        tracking = plan_tracking(job, plan, created.done, deleted.done, error is not None, now)
        job = await self._write_status(job, tracking.status)
        self._backoff[uid] = plan.backoff
        await self._context.executor.execute(tracking.events)
        removals = [remove_finalizer(pod) for pod in tracking.released]
        failure = await self._pod_control.remove_finalizers(uid, removals)
        removed = () if failure is not None else [pod.metadata.uid for pod in tracking.released]
        status, events = plan_counting(job, plan, tracking, removed)
        await self._write_status(job, status)
        await self._context.executor.execute(events)
        error = error or failure
        if error is not None:
            return ActionPlan(error=error.message)
        return ActionPlan(requeue_after=0.0 if tracking.limited else plan.requeue_after)

    async def _write_status(self, job: JobView, status: JobStatusView) -> JobView:
        """Write the status if it differs; return the job as it is then."""
        patch = patch_status(JOBS, job.metadata, job.status, status)
        if patch is None:
            return job
        metadata = job.metadata
        tree = await self._context.client.patch(
            JOBS, metadata.name, patch.patch, metadata.namespace, subresource="status"
        )
        revision = str(tree["metadata"]["resourceVersion"])
        self._written[metadata.uid] = revision_number(revision)
        return replace(job, metadata=replace(metadata, resource_version=revision), status=status)

    # -- finalizers

    async def _release_left(self, key: ObjectName, job: JobView | None) -> None:
        """Remove the finalizers of pods whose job has ended or is gone."""
        left = [
            pod
            for pod in self._tracked.find(key)
            if job is None or is_finished_job(job) or _owner_uid(pod) != job.metadata.uid
        ]
        if left and job is None and await self._context.find_raw(JOBS, key.name, key.namespace) is not None:
            return  # created just now
        error = await self._pod_control.remove_finalizers(
            job.metadata.uid if job is not None else "", [remove_finalizer(pod) for pod in left]
        )
        if error is not None:
            raise error

    async def _release_orphan(self, key: ObjectName) -> ActionPlan:
        pod = self._dependents.get(key.namespace, key.name.removeprefix(_ORPHAN))
        if pod is None or not has_finalizer(pod) or controller_of(pod.metadata) is not None:
            return EMPTY_PLAN
        selected = (self.selector_of(job) for job in self._owner_index.find(key.namespace))
        for selector in selected:
            if not isinstance(selector, SelectorProblem) and selector.matches(pod.metadata.labels):
                return EMPTY_PLAN  # to be adopted
        await self._context.executor.execute((remove_finalizer(pod),))
        return EMPTY_PLAN


def _tracked_by(pod: Pod) -> tuple[ObjectName, ...]:
    """Return the job of a pod that still has the finalizer."""
    owner = controller_of(pod.metadata)
    if owner is None or owner.kind != JOBS.kind or not has_finalizer(pod) or is_kept(pod.metadata):
        return ()
    return (ObjectName(pod.metadata.namespace, owner.name),)


def _owner_uid(pod: Pod) -> str:
    owner = controller_of(pod.metadata)
    return "" if owner is None else owner.uid
