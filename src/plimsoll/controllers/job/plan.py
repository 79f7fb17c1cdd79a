"""Plan of a Job: counts of its pods, whether it has ended, and the pods to create and delete.

As in kube-controller-manager 1.36: a pod carries the finalizer `batch.kubernetes.io/job-tracking` until it is
counted in the status, so that each counts once. `status_plan.py` plans the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import parse_int64
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.endpoints import JOBS, PODS
from plimsoll.controllers.actions import CreateAction, DeleteAction, PatchAction
from plimsoll.controllers.job.backoff import (
    BackoffRecord,
    finished_at,
    record_backoff,
    remaining_backoff,
)
from plimsoll.controllers.job.index_ranges import (
    IndexRanges,
    add_indexes,
    count_indexes,
    first_missing,
    has_index,
    merge_ranges,
    parse_ranges,
)
from plimsoll.controllers.job.policies import (
    FAIL_INDEX,
    find_job_failure,
    is_failed,
    match_failure,
    match_success,
    replaces_only_failed,
)
from plimsoll.controllers.workload_views import JobView, WorkloadCondition
from plimsoll.controllers.workloads import conditions
from plimsoll.controllers.workloads.pod_states import (
    is_active,
    is_ready,
    is_terminating,
    sort_for_deletion,
)
from plimsoll.controllers.workloads.templates import create_pod, delete_pod

TRACKING = "batch.kubernetes.io/job-tracking"
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"
COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
_INDEX = "batch.kubernetes.io/job-completion-index"
_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_INDEX_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
#: Pods that are created or deleted in one pass.
BURST = 500
#: Longest start of the name of a pod with an index.
_LONGEST_NAME = 58


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Counts of a job's pods, and the pods to create and delete.

    `finished` is the condition with which the job is about to end. With `releases`, finalizers are removed
    before the deletions, so that these pods do not count as failed.
    """

    pods: tuple[Pod, ...]
    active: int
    ready: int
    terminating: int
    succeeded: int
    failed: int
    backoff: BackoffRecord
    finished: WorkloadCondition | None = None
    counted_indexes: IndexRanges = ()  #: in the status already
    succeeded_indexes: IndexRanges = ()
    failed_indexes: IndexRanges | None = None
    delayed: frozenset[str] = frozenset()  #: failed pods that stay until their replacement exists
    creates: tuple[CreateAction, ...] = ()
    deletes: tuple[DeleteAction, ...] = ()
    deleted_ready: int = 0
    releases: tuple[PatchAction, ...] = ()
    managed: bool = False  #: whether the number of pods was compared with the spec
    requeue_after: float | None = None


def is_finished_job(job: JobView) -> bool:
    return conditions.has(job.status.conditions, COMPLETE) or conditions.has(job.status.conditions, FAILED)


def has_finalizer(pod: Pod) -> bool:
    return TRACKING in pod.metadata.finalizers


def index_of(pod: Pod) -> int | None:
    """Return the completion index of a pod, or None."""
    index = parse_int64(pod.metadata.annotations.get(_INDEX, ""))
    return index if index is not None and index >= 0 else None


def valid_index(job: JobView, pod: Pod) -> int | None:
    """Return the completion index of a pod if it is one of the job's."""
    index = index_of(pod)
    return index if index is not None and index < (job.spec.completions or 0) else None


def remove_finalizer(pod: Pod) -> PatchAction:
    metadata = pod.metadata
    patch = {"metadata": {"uid": metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]}}
    return PatchAction(PODS, metadata.name, patch, metadata.namespace, type="strategic")


def make_condition(
    type: str, reason: str, message: str, now: float, status: str = "True"
) -> WorkloadCondition:
    time = format_time(now)
    return WorkloadCondition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_probe_time=time,
        last_transition_time=time,
    )


def plan_job(job: JobView, pods: Sequence[Pod], backoff: BackoffRecord, now: float) -> JobPlan:
    """Plan for a job that has not ended, from its pods; `backoff` is the record of the last plan."""
    status = job.status
    uncounted = status.uncounted_terminated_pods
    known_succeeded = frozenset(uncounted.succeeded) if uncounted is not None else frozenset()
    known_failed = frozenset(uncounted.failed) if uncounted is not None else frozenset()
    tracked = [pod for pod in pods if has_finalizer(pod) and (not job.is_indexed or _has_index(job, pod))]
    new_succeeded = [
        pod for pod in tracked if pod.status.phase == "Succeeded" and pod.metadata.uid not in known_succeeded
    ]
    new_failed = [pod for pod in tracked if is_failed(pod, job) and pod.metadata.uid not in known_failed]
    active = [pod for pod in pods if is_active(pod)]
    draft = _Draft(
        job=job,
        pods=tuple(pods),
        active=active,
        terminating=sum(map(is_terminating, pods)),
        succeeded=status.succeeded + len(new_succeeded) + len(known_succeeded),
        failed=status.failed + sum(match_failure(job, pod).counts for pod in new_failed) + len(known_failed),
        backoff=record_backoff(backoff, new_succeeded, new_failed),
        now=now,
    )
    draft.check_failure()
    if job.is_indexed:
        draft.check_indexes(tracked)
    if draft.finished is not None:
        draft.deletes = active
    elif job.metadata.deletion_timestamp is None:
        draft.manage()
    return JobPlan(
        pods=draft.pods,
        active=len(active),
        ready=sum(map(is_ready, active)),
        terminating=draft.terminating,
        succeeded=draft.succeeded,
        failed=draft.failed,
        backoff=draft.backoff,
        finished=draft.finished,
        counted_indexes=draft.counted_indexes,
        succeeded_indexes=draft.succeeded_indexes,
        failed_indexes=draft.failed_indexes,
        delayed=frozenset(pod.metadata.uid for pod in draft.delayed.values()),
        creates=tuple(draft.creates),
        deletes=tuple(delete_pod(pod.metadata) for pod in draft.deletes),
        deleted_ready=sum(map(is_ready, draft.deletes)),
        releases=tuple(
            remove_finalizer(pod) for pod in draft.deletes if draft.managed and has_finalizer(pod)
        ),
        managed=draft.managed,
        requeue_after=draft.requeue_after,
    )


def _has_index(job: JobView, pod: Pod) -> bool:
    return valid_index(job, pod) is not None


@dataclass
class _Draft:
    """Plan of a job while it is made."""

    job: JobView
    pods: tuple[Pod, ...]
    active: list[Pod]
    terminating: int
    succeeded: int
    failed: int
    backoff: BackoffRecord
    now: float
    finished: WorkloadCondition | None = None
    counted_indexes: IndexRanges = ()
    succeeded_indexes: IndexRanges = ()
    failed_indexes: IndexRanges | None = None
    managed: bool = False
    requeue_after: float | None = None

    def __post_init__(self) -> None:
        self.delayed: dict[int, Pod] = {}
        self.creates: list[CreateAction] = []
        self.deletes: list[Pod] = []

    def fail(self, reason: str, message: str) -> None:
        self.finished = make_condition(FAILURE_TARGET, reason, message, self.now)

    def wait(self, seconds: float) -> None:
        known = self.requeue_after
        self.requeue_after = seconds if known is None else min(known, seconds)

    def check_failure(self) -> None:
        """Determine whether the job has ended already or has failed as a whole."""
        job, spec, found = self.job, self.job.spec, self.job.status.conditions
        if conditions.has(found, SUCCESS_CRITERIA_MET):
            self.finished = conditions.find(found, SUCCESS_CRITERIA_MET)
            return
        if conditions.has(found, FAILURE_TARGET):
            self.finished = conditions.find(found, FAILURE_TARGET)
            return
        message = find_job_failure(job, self.pods)
        if message:
            self.fail("PodFailurePolicy", message)
            return
        limit = 6 if spec.backoff_limit is None else spec.backoff_limit
        if self.failed > limit or _exceeds_restarts(job, self.pods, limit):
            self.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
            return
        started = parse_time(job.status.start_time)
        if spec.active_deadline_seconds is not None and not spec.suspend:
            left = spec.active_deadline_seconds - (0.0 if started is None else self.now - started)
            if left <= 0 and started is not None:
                self.fail("DeadlineExceeded", "Job was active longer than specified deadline")
            else:
                self.wait(max(left, 0.0))

    def check_indexes(self, tracked: Iterable[Pod]) -> None:
        """Determine the indexes that have succeeded and failed, and whether they decide about the job."""
        job, spec = self.job, self.job.spec
        completions = spec.completions or 0
        self.counted_indexes = parse_ranges(job.status.completed_indexes, completions)
        done = {
            index
            for pod in tracked
            if pod.status.phase == "Succeeded" and (index := valid_index(job, pod)) is not None
        }
        self.succeeded_indexes = add_indexes(self.counted_indexes, done)
        self.succeeded = count_indexes(self.succeeded_indexes)
        if spec.backoff_limit_per_index is not None:
            known = parse_ranges(job.status.failed_indexes or "", completions)
            lost = {
                index
                for pod in tracked
                if _fails_index(job, pod) and (index := valid_index(job, pod)) is not None
            }
            self.failed_indexes = add_indexes(known, lost)
            failures = count_indexes(self.failed_indexes)
            if self.finished is None:
                if spec.max_failed_indexes is not None and failures > spec.max_failed_indexes:
                    text = "Job has exceeded the specified maximal number of failed indexes"
                    self.fail("MaxFailedIndexesExceeded", text)
                elif failures and failures + self.succeeded >= completions:
                    self.fail("FailedIndexes", "Job has failed indexes")
            self._find_delayed(tracked)
        if self.finished is None and (message := match_success(job, self.succeeded_indexes)):
            self.finished = make_condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", message, self.now)

    def _find_delayed(self, tracked: Iterable[Pod]) -> None:
        """Find the last failed pod of each index without another pod: its replacement counts its failures."""
        assert self.failed_indexes is not None
        running = {index_of(pod) for pod in self.active}
        ended = merge_ranges(self.succeeded_indexes, self.failed_indexes)
        for pod in tracked:
            index = valid_index(self.job, pod)
            if index is None or not is_failed(pod, self.job):
                continue
            if index in running or has_index(ended, index):
                continue
            other = self.delayed.get(index)
            if other is None or (_failures_of(other), finished_at(other)) <= (
                _failures_of(pod),
                finished_at(pod),
            ):
                self.delayed[index] = pod

    def manage(self) -> None:
        """Compare the number of active pods with the spec."""
        job, spec = self.job, self.job.spec
        self.managed = True
        if spec.suspend:
            self.deletes = list(self.active)
            return
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        if spec.completions is None:
            wanted = len(self.active) if self.succeeded else parallelism
        else:
            wanted = max(0, min(spec.completions - self.succeeded, parallelism))
        self.deletes = self._choose_surplus(max(0, len(self.active) - wanted))[:BURST]
        if self.deletes:
            return
        missing = wanted - len(self.active) - (self.terminating if replaces_only_failed(job) else 0)
        if missing <= 0:
            return
        if spec.backoff_limit_per_index is None:
            delay = remaining_backoff(self.backoff, self.now)
            if delay > 0:
                self.wait(delay)
                return
        self._create(min(missing, BURST))

    def _choose_surplus(self, least: int) -> list[Pod]:
        """Return the pods to delete: those without an index of their own, then as many as are too many."""
        chosen: list[Pod] = []
        left = self.active
        if self.job.is_indexed:
            by_index: dict[int | None, list[Pod]] = {}
            for pod in self.active:
                by_index.setdefault(valid_index(self.job, pod), []).append(pod)
            chosen = by_index.pop(None, [])
            left = []
            for same in by_index.values():
                ordered = sort_for_deletion(same, {}, self.now)
                chosen += ordered[:-1]
                left.append(ordered[-1])
        if len(chosen) < least:
            chosen += sort_for_deletion(left, {}, self.now)[: least - len(chosen)]
        return chosen

    def _create(self, count: int) -> None:
        job = self.job
        if not job.is_indexed:
            self.creates = [create_pod(job.metadata, JOBS, job.spec.template, finalizers=(TRACKING,))] * count
            return
        taken = add_indexes(
            self.succeeded_indexes, (index for pod in self.active if (index := index_of(pod)) is not None)
        )
        if replaces_only_failed(job):
            ending = (index_of(pod) for pod in self.pods if is_terminating(pod))
            taken = add_indexes(taken, (index for index in ending if index is not None))
        if self.failed_indexes is not None:
            taken = merge_ranges(taken, self.failed_indexes)
        indexes = first_missing(taken, count, job.spec.completions or 0)
        if job.spec.backoff_limit_per_index is not None:
            delays = {index: self._index_delay(index) for index in indexes}
            indexes = [index for index in indexes if not delays[index]]
            if not indexes and delays:
                self.wait(min(delays.values()))
        template = _with_index_variable(job.spec.template)
        self.creates = [self._create_indexed(template, index) for index in indexes]

    def _index_delay(self, index: int) -> float:
        last = self.delayed.get(index)
        if last is None:
            return 0.0
        return remaining_backoff(BackoffRecord(_failures_of(last) + 1, finished_at(last)), self.now)

    def _create_indexed(self, template: dict[str, Any], index: int) -> CreateAction:
        job = self.job
        annotations = {_INDEX: str(index)}
        if job.spec.backoff_limit_per_index is not None:
            counted, ignored = _count_failures(job, self.delayed.get(index))
            annotations[_INDEX_FAILURES] = str(counted)
            if ignored:
                annotations[_INDEX_IGNORED] = str(ignored)
        create = create_pod(
            job.metadata,
            JOBS,
            template,
            labels={_INDEX: str(index)},
            annotations=annotations,
            finalizers=(TRACKING,),
            spec={"hostname": f"{job.metadata.name}-{index}"},
        )
        suffix = f"-{index}-"
        prefix = job.metadata.name[: _LONGEST_NAME - len(suffix)] + suffix
        tree = {**create.tree, "metadata": {**create.tree["metadata"], "generateName": prefix}}
        return CreateAction(PODS, tree, create.namespace)


def _exceeds_restarts(job: JobView, pods: Iterable[Pod], limit: int) -> bool:
    """Return whether containers that restart in place have failed too often."""
    template = (job.spec.template or {}).get("spec") or {}
    if template.get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in ("Running", "Pending")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
    return restarts > 0 if not limit else restarts >= limit


def _fails_index(job: JobView, pod: Pod) -> bool:
    """Return whether the failure of a pod is the last one that its index may have."""
    if not is_failed(pod, job):
        return False
    match = match_failure(job, pod)
    if match.action == FAIL_INDEX:
        return True
    return match.counts and _read_count(pod, _INDEX_FAILURES) >= (job.spec.backoff_limit_per_index or 0)


def _read_count(pod: Pod, annotation: str) -> int:
    count = parse_int64(pod.metadata.annotations.get(annotation, "0"))
    return count if count is not None and 0 <= count < 2**31 else 0


def _failures_of(pod: Pod) -> int:
    """Return how often an index had failed when a pod was created, ignored failures included."""
    return _read_count(pod, _INDEX_FAILURES) + _read_count(pod, _INDEX_IGNORED)


def _count_failures(job: JobView, replaced: Pod | None) -> tuple[int, int]:
    """Return the counted and the ignored failures of an index whose last pod is replaced."""
    if replaced is None:
        return 0, 0
    counted, ignored = _read_count(replaced, _INDEX_FAILURES), _read_count(replaced, _INDEX_IGNORED)
    return (counted + 1, ignored) if match_failure(job, replaced).counts else (counted, ignored + 1)


def _with_index_variable(template: dict[str, Any]) -> dict[str, Any]:
    """Return a template whose containers have the variable JOB_COMPLETION_INDEX."""
    name, path = "JOB_COMPLETION_INDEX", f"metadata.labels['{_INDEX}']"
    variable = {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    spec = dict(template.get("spec") or {})
    for field in ("initContainers", "containers"):
        if containers := spec.get(field):
            spec[field] = [
                container
                if any(item.get("name") == name for item in container.get("env") or ())
                else {**container, "env": [*(container.get("env") or ()), variable]}
                for container in containers
            ]
    return {**template, "spec": spec}
