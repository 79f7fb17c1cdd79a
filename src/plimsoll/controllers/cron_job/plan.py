"""Plan of a CronJob: whether a Job is due, which Jobs to delete, and the status.

As in kube-controller-manager: of the times that were missed only the last one is made up for, within
`startingDeadlineSeconds`; more than 100 missed times are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.endpoints import CRON_JOBS, JOBS
from plimsoll.client.event_recorder import NORMAL, WARNING, EventRecord
from plimsoll.common.cron import find_zone
from plimsoll.controllers.actions import Action, CreateAction, DeleteAction
from plimsoll.controllers.cron_job.schedule import CronSchedule, parse_schedule
from plimsoll.controllers.workload_views import ActiveJobView, CronJobStatusView, CronJobView, JobView
from plimsoll.controllers.workloads import conditions
from plimsoll.controllers.workloads.ownership import controller_reference

COMPONENT = "cronjob-controller"
_SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: Missed times beyond which a warning is reported.
_MANY_MISSED = 100
#: Delay in seconds so that a Job is never started too early.
_DELAY = 0.1


@dataclass
class CronJobPlan:
    """Actions for a CronJob: deletions and events, a Job to create, the status, and the next time."""

    status: CronJobStatusView
    actions: list[Action] = field(default_factory=list)
    create: CreateAction | None = None
    due: float | None = None  #: scheduled time of the Job to create
    requeue_after: float | None = None


def end_of(job: JobView) -> str:
    """Return the condition with which a job has ended, or ""."""
    ended = (type for type in ("Complete", "Failed") if conditions.has(job.status.conditions, type))
    return next(ended, "")


def plan_cron_job(
    cron_job: CronJobView, jobs: Sequence[JobView], gone: Sequence[str], now: float
) -> CronJobPlan:
    """Plan for a CronJob from its Jobs; `gone` are the UIDs of active ones that no longer exist."""
    plan = CronJobPlan(cron_job.status)
    _delete_history(cron_job, jobs, plan)
    _update_active(cron_job, jobs, gone, plan)
    if cron_job.metadata.deletion_timestamp is not None or cron_job.spec.suspend:
        return plan
    spec = cron_job.spec
    if find_zone(spec.time_zone or "") is None:
        plan.actions.append(
            _event(cron_job, "UnknownTimeZone", f"invalid timeZone: {spec.time_zone!r}", WARNING)
        )
        return plan
    schedule = parse_schedule(spec.schedule, spec.time_zone or "")
    if schedule is None:
        text = f"unparseable schedule: {spec.schedule}"
        plan.actions.append(_event(cron_job, "UnparseableSchedule", text, WARNING))
        return plan
    due, upcoming, missed = find_due(cron_job, schedule, now)
    if upcoming is not None:
        plan.requeue_after = max(0.0, upcoming - now) + _DELAY
    if missed > _MANY_MISSED:
        text = (
            f"too many missed start times: {missed}. "
            "Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        )
        plan.actions.append(_event(cron_job, "TooManyMissedTimes", text, WARNING))
    if due is not None:
        _start(cron_job, schedule, due, now, plan)
    return plan


def find_due(
    cron_job: CronJobView, schedule: CronSchedule, now: float
) -> tuple[float | None, float | None, int]:
    """Return the last time that has passed since the last Job, the next one, and how many have passed."""
    last = parse_time(cron_job.status.last_schedule_time)
    earliest = last if last is not None else parse_time(cron_job.metadata.creation_timestamp) or now
    deadline = cron_job.spec.starting_deadline_seconds
    if deadline is not None:
        earliest = max(earliest, now - deadline)
    due: float | None = None
    missed = 0
    upcoming = schedule.next_after(earliest)
    if upcoming is not None and upcoming <= now:
        # Not one by one: a schedule of every minute misses half a million times in a year.
        period = (schedule.next_after(upcoming) or now) - upcoming
        skipped = int((now - upcoming) / period) - 2 * _MANY_MISSED if period > 0 else 0
        if skipped > 0:
            later = upcoming + skipped * period
            later = later if schedule.cron.every else schedule.next_after(later) or now + 1
            if later <= now:
                missed, upcoming = skipped, later
    while upcoming is not None and upcoming <= now:
        due = upcoming
        missed += 1
        upcoming = schedule.next_after(upcoming)
    return due, upcoming, missed


def name_at(cron_job: CronJobView, due: float) -> str:
    """Return the name of the Job for a time: one time never starts two."""
    return f"{cron_job.metadata.name}-{int(due) // 60}"


def _start(cron_job: CronJobView, schedule: CronSchedule, due: float, now: float, plan: CronJobPlan) -> None:
    spec = cron_job.spec
    deadline = spec.starting_deadline_seconds
    if deadline is not None and due + deadline < now:
        text = f"Missed scheduled time to start a job: {format_time(due)}"
        plan.actions.append(_event(cron_job, "MissSchedule", text, WARNING))
        return
    name = name_at(cron_job, due)
    if any(each.name == name for each in plan.status.active):
        return
    if parse_time(plan.status.last_schedule_time) == due:
        return
    if spec.concurrency_policy == "Forbid" and plan.status.active:
        text = "Not starting job because prior execution is running and concurrency policy is Forbid"
        plan.actions.append(_event(cron_job, "JobAlreadyActive", text))
        return
    if spec.concurrency_policy == "Replace":
        for each in plan.status.active:
            plan.actions.append(_delete(each.namespace or cron_job.metadata.namespace, each.name, each.uid))
            plan.actions.append(_event(cron_job, "SuccessfulDelete", f"Deleted job {each.name}"))
        plan.status = replace(plan.status, active=())
    plan.create, plan.due = make_job(cron_job, schedule, due), due


def make_job(cron_job: CronJobView, schedule: CronSchedule, due: float) -> CreateAction:
    """Build the Job for a time."""
    template = cron_job.spec.job_template or {}
    source = template.get("metadata") or {}
    local = datetime.fromtimestamp(int(due), schedule.zone).isoformat()
    annotations = {**(source.get("annotations") or {}), _SCHEDULED_AT: local.replace("+00:00", "Z")}
    metadata: dict[str, Any] = {
        "name": name_at(cron_job, due),
        "annotations": annotations,
        "ownerReferences": [controller_reference(cron_job.metadata, CRON_JOBS)],
    }
    if source.get("labels"):
        metadata["labels"] = source["labels"]
    tree = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": metadata,
        "spec": template.get("spec") or {},
    }
    return CreateAction(JOBS, tree, cron_job.metadata.namespace)


def add_started(status: CronJobStatusView, job: JobView, due: str) -> CronJobStatusView:
    """Add a Job that was created to the status."""
    metadata = job.metadata
    active = ActiveJobView(
        api_version=JOBS.api_version,
        kind=JOBS.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
    return replace(status, active=(*status.active, active), last_schedule_time=due)


def _update_active(
    cron_job: CronJobView, jobs: Sequence[JobView], gone: Sequence[str], plan: CronJobPlan
) -> None:
    """Remove Jobs that have ended or are gone from the active ones; record the last success."""
    active = {each.uid: each for each in cron_job.status.active}
    last = parse_time(cron_job.status.last_successful_time)
    for job in jobs:
        uid, end = job.metadata.uid, end_of(job)
        if uid in active and end:
            text = f"Saw completed job: {job.metadata.name}, condition: {end}"
            plan.actions.append(_event(cron_job, "SawCompletedJob", text))
            del active[uid]
        elif uid not in active and not end:
            text = f"Saw a job that the controller did not create or forgot: {job.metadata.name}"
            plan.actions.append(_event(cron_job, "UnexpectedJob", text, WARNING))
        if end == "Complete":
            completed = parse_time(job.status.completion_time)
            if completed is not None and (last is None or completed > last):
                last = completed
    for uid in gone:
        if uid in active:
            text = f"Active job went missing: {active.pop(uid).name}"
            plan.actions.append(_event(cron_job, "MissingJob", text))
    plan.status = replace(
        plan.status,
        active=tuple(active.values()),
        last_successful_time=None if last is None else format_time(last),
    )


def _delete_history(cron_job: CronJobView, jobs: Sequence[JobView], plan: CronJobPlan) -> None:
    """Delete the oldest Jobs that have ended, beyond the limits."""
    spec = cron_job.spec
    limits = (("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit))
    for end, limit in limits:
        if limit is None:
            continue
        ended = [job for job in jobs if end_of(job) == end and job.metadata.deletion_timestamp is None]
        ended.sort(key=lambda job: (job.status.start_time or "~", job.metadata.name))
        for job in ended[: max(0, len(ended) - limit)]:
            metadata = job.metadata
            plan.actions.append(_delete(metadata.namespace, metadata.name, metadata.uid))
            plan.actions.append(_event(cron_job, "SuccessfulDelete", f"Deleted job {metadata.name}"))


def _delete(namespace: str, name: str, uid: str) -> DeleteAction:
    return DeleteAction(JOBS, name, namespace, uid=uid, propagation="Background")


def _event(cron_job: CronJobView, reason: str, message: str, type: str = NORMAL) -> EventRecord:
    regarding = ObjectReference.to(cron_job.metadata, CRON_JOBS.kind, CRON_JOBS.api_version)
    return EventRecord(regarding, reason, message, COMPONENT, type)
