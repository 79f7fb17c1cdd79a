"""Status of a Job: in two steps, so that no pod is counted twice or lost.

`plan_tracking` adds pods that have ended to `uncountedTerminatedPods`, with the condition that the job is
about to end with. Then their finalizers are removed, and `plan_counting` moves them to the counters and ends
the job. A controller that stops in between continues from the status.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import JOBS
from plimsoll.client.event_recorder import NORMAL, WARNING, EventRecord
from plimsoll.controllers.job.index_ranges import (
    add_indexes,
    count_indexes,
    format_ranges,
    has_index,
)
from plimsoll.controllers.job.plan import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    JobPlan,
    has_finalizer,
    index_of,
    make_condition,
    valid_index,
)
from plimsoll.controllers.job.policies import is_failed, match_failure
from plimsoll.controllers.workload_views import JobStatusView, JobView, UncountedPodsView, WorkloadCondition
from plimsoll.controllers.workloads import conditions

COMPONENT = "job-controller"
#: Pods that are tracked in the status at a time.
MAX_UNCOUNTED = 500


@dataclass(frozen=True, slots=True)
class TrackingPlan:
    """Status to write first, the pods to remove the finalizer from, and the condition to end the job with."""

    status: JobStatusView
    released: tuple[Pod, ...] = ()
    finished: WorkloadCondition | None = None
    events: tuple[EventRecord, ...] = ()
    limited: bool = False  #: whether more pods are to be counted than fit into one pass


def plan_tracking(
    job: JobView, plan: JobPlan, created: int, deleted: int, error: bool, now: float
) -> TrackingPlan:
    """Plan the status after `created` and `deleted` pods were written, with or without an error."""
    active = plan.active + created - deleted
    terminating = plan.terminating + deleted
    finished = plan.finished
    events: list[EventRecord] = []
    status = replace(
        job.status,
        active=active,
        ready=max(0, plan.ready - (plan.deleted_ready if deleted else 0)),
        terminating=terminating,
    )
    if status.start_time is None and not job.spec.suspend:
        status = replace(status, start_time=format_time(now))
    if finished is not None and (error or deleted != plan.active):
        finished = None  # not before all pods are deleted
    if plan.finished is None:
        if _has_completed(job, plan, active):
            text = "Reached expected number of succeeded pods"
            finished = make_condition(SUCCESS_CRITERIA_MET, "CompletionsReached", text, now)
        elif plan.managed:
            status, event = _update_suspension(job, status, now)
            events.extend(event)
    status, released, limited = _track(job, plan, status, finished)
    if finished is not None:
        if not conditions.has(status.conditions, finished.type):
            status = replace(status, conditions=(*status.conditions, finished))
        end = FAILED if finished.type == FAILURE_TARGET else COMPLETE
        finished = make_condition(end, finished.reason, finished.message, now)
    return TrackingPlan(status, tuple(released), finished, tuple(events), limited)


def plan_counting(
    job: JobView, plan: JobPlan, tracking: TrackingPlan, removed: Collection[str]
) -> tuple[JobStatusView, tuple[EventRecord, ...]]:
    """Plan the final status after the finalizers of the pods `removed` (UIDs) were removed."""
    remaining = {pod.metadata.uid for pod in plan.pods if has_finalizer(pod)} - set(removed)
    status = _count(tracking.status, remaining)
    finished = tracking.finished
    if finished is None or tracking.limited or status.uncounted_terminated_pods is not None:
        return status, ()
    if status.terminating:
        return status, ()
    status = replace(status, conditions=(*conditions.without(status.conditions, finished.type), finished))
    events: list[EventRecord] = []
    if finished.type == COMPLETE:
        status = replace(status, completion_time=finished.last_transition_time)
        if job.spec.completions is not None and status.succeeded > job.spec.completions:
            text = "Too many succeeded pods running after completion count reached"
            events.append(_event(job, "TooManySucceededPods", text, WARNING))
        events.append(_event(job, "Completed", "Job completed"))
    else:
        events.append(_event(job, finished.reason, finished.message, WARNING))
    return status, tuple(events)


def _has_completed(job: JobView, plan: JobPlan, active: int) -> bool:
    if active:
        return False
    if job.spec.completions is None:
        return plan.succeeded > 0
    return plan.succeeded >= job.spec.completions


def _update_suspension(
    job: JobView, status: JobStatusView, now: float
) -> tuple[JobStatusView, tuple[EventRecord, ...]]:
    """Set the condition Suspended; the time of a job starts anew when it is resumed."""
    old = conditions.find(status.conditions, SUSPENDED)
    is_marked = old is not None and old.status == "True"
    if job.spec.suspend == is_marked:
        return status, ()
    if job.spec.suspend:
        word, start, condition = (
            "suspended",
            None,
            make_condition(SUSPENDED, "JobSuspended", "Job suspended", now),
        )
    else:
        word, start = "resumed", format_time(now)
        condition = make_condition(SUSPENDED, "JobResumed", "Job resumed", now, status="False")
    found = tuple(condition if each.type == SUSPENDED else each for each in status.conditions)
    if old is None:
        found = (*found, condition)
    event = _event(job, word.capitalize(), f"Job {word}")
    return replace(status, conditions=found, start_time=start), (event,)


def _track(
    job: JobView, plan: JobPlan, status: JobStatusView, finished: WorkloadCondition | None
) -> tuple[JobStatusView, list[Pod], bool]:
    """Add pods that have ended to the status; return it with the pods that lose their finalizer."""
    uncounted = status.uncounted_terminated_pods or UncountedPodsView()
    with_finalizer = {pod.metadata.uid for pod in plan.pods if has_finalizer(pod)}
    status = _count(status, with_finalizer)
    known_succeeded, known_failed = set(uncounted.succeeded), set(uncounted.failed)
    uncounted = status.uncounted_terminated_pods or UncountedPodsView()
    succeeded, failed, new_indexes = list(uncounted.succeeded), list(uncounted.failed), set[int]()
    released: list[Pod] = []
    limited = False
    ends_in_failure = finished is not None and finished.type != SUCCESS_CRITERIA_MET
    dying = {action.uid for action in plan.deletes} if plan.releases else set()
    for pod in sorted(plan.pods, key=lambda pod: (index_of(pod) is None, index_of(pod) or 0)):
        uid = pod.metadata.uid
        if not has_finalizer(pod) or uid in dying:
            continue
        has_failed = is_failed(pod, job)
        if not _may_release(job, plan, pod, finished, has_failed):
            continue
        released.append(pod)
        index = valid_index(job, pod)
        if pod.status.phase == "Succeeded" and uid not in known_failed:
            if job.is_indexed:
                if index is not None and not has_index(plan.counted_indexes, index):
                    new_indexes.add(index)
            elif uid not in known_succeeded:
                succeeded.append(uid)
        elif (
            (has_failed or ends_in_failure)
            and uid not in known_failed
            and (not job.is_indexed or index is not None)
            and match_failure(job, pod).counts
        ):
            failed.append(uid)
        if len(new_indexes) + len(succeeded) + len(failed) >= MAX_UNCOUNTED:
            limited = True
            break
    if job.is_indexed:
        done = add_indexes(plan.counted_indexes, new_indexes)
        status = replace(status, succeeded=count_indexes(done), completed_indexes=format_ranges(done))
        if plan.failed_indexes is not None:
            status = replace(status, failed_indexes=format_ranges(plan.failed_indexes))
    pending = UncountedPodsView(succeeded=tuple(succeeded), failed=tuple(failed))
    has_pending = bool(succeeded or failed)
    return replace(status, uncounted_terminated_pods=pending if has_pending else None), released, limited


def _may_release(
    job: JobView, plan: JobPlan, pod: Pod, finished: WorkloadCondition | None, has_failed: bool
) -> bool:
    if job.metadata.deletion_timestamp is not None or finished is not None:
        return True
    if pod.status.phase == "Succeeded":
        return True
    return has_failed and pod.metadata.uid not in plan.delayed


def _count(status: JobStatusView, with_finalizer: Collection[str]) -> JobStatusView:
    """Move pods without a finalizer from the uncounted ones to the counters."""
    uncounted = status.uncounted_terminated_pods
    if uncounted is None:
        return status
    succeeded = tuple(uid for uid in uncounted.succeeded if uid in with_finalizer)
    failed = tuple(uid for uid in uncounted.failed if uid in with_finalizer)
    kept = UncountedPodsView(succeeded=succeeded, failed=failed) if succeeded or failed else None
    return replace(
        status,
        succeeded=status.succeeded + len(uncounted.succeeded) - len(succeeded),
        failed=status.failed + len(uncounted.failed) - len(failed),
        uncounted_terminated_pods=kept,
    )


def _event(job: JobView, reason: str, message: str, type: str = NORMAL) -> EventRecord:
    regarding = ObjectReference.to(job.metadata, JOBS.kind, JOBS.api_version)
    return EventRecord(regarding, reason, message, COMPONENT, type)
