"""Pod failure policies and success policies of Jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from plimsoll.api.core import ContainerStatus, Pod
from plimsoll.api.meta import Condition
from plimsoll.controllers.job.index_ranges import IndexRanges, count_common, count_indexes, parse_ranges
from plimsoll.controllers.workload_views import (
    ExitCodesView,
    JobView,
    PodConditionPatternView,
    PodFailureRuleView,
)

IGNORE, FAIL_JOB, FAIL_INDEX = "Ignore", "FailJob", "FailIndex"


class FailureMatch(NamedTuple):
    """Rule of a pod failure policy that a pod matches; by default the failure counts."""

    action: str = ""
    message: str = ""  #: why the job fails

    @property
    def counts(self) -> bool:
        return self.action != IGNORE


def replaces_only_failed(job: JobView) -> bool:
    """Return whether a pod is replaced only when it has failed, not as soon as it is deleted."""
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def is_failed(pod: Pod, job: JobView) -> bool:
    """Return whether a pod counts as failed; a deleted one may never reach the phase Failed."""
    if pod.status.phase == "Failed":
        return True
    if replaces_only_failed(job):
        return False
    return pod.metadata.deletion_timestamp is not None and pod.status.phase != "Succeeded"


def match_failure(job: JobView, pod: Pod) -> FailureMatch:
    """Return the first rule of the pod failure policy that a failed pod matches."""
    policy = job.spec.pod_failure_policy
    for index, rule in enumerate(policy.rules if policy is not None else ()):
        cause = _find_cause(rule, pod)
        if cause:
            end = f"matching {rule.action} rule at index {index}"
            return FailureMatch(rule.action, f"{cause} {end}" if rule.action == FAIL_JOB else "")
    return FailureMatch()


def _find_cause(rule: PodFailureRuleView, pod: Pod) -> str:
    name = pod.metadata.full_name
    if rule.on_exit_codes is not None:
        statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
        found = _match_exit_codes(rule.on_exit_codes, statuses)
        return (
            "" if found is None else f"Container {found[0]} for pod {name} failed with exit code {found[1]}"
        )
    condition = _match_conditions(rule.on_pod_conditions, pod.status.conditions)
    return "" if condition is None else f"Pod {name} has condition {condition.type}"


def _match_exit_codes(wanted: ExitCodesView, statuses: Iterable[ContainerStatus]) -> tuple[str, int] | None:
    for status in statuses:
        ended: Any = status.state.get("terminated")
        code = ended.get("exitCode", 0) if isinstance(ended, dict) else 0
        if code and wanted.container_name in (None, status.name):
            is_listed = code in wanted.values
            if is_listed == (wanted.operator == "In"):
                return status.name, code
    return None


def _match_conditions(
    patterns: tuple[PodConditionPatternView, ...], conditions: tuple[Condition, ...]
) -> Condition | None:
    wanted = {(pattern.type, pattern.status) for pattern in patterns}
    return next((each for each in conditions if (each.type, each.status) in wanted), None)


def find_job_failure(job: JobView, pods: Iterable[Pod]) -> str:
    """Return why the pod failure policy fails the job, or ""."""
    if job.spec.pod_failure_policy is None:
        return ""
    return next(
        (text for pod in pods if is_failed(pod, job) and (text := match_failure(job, pod).message)), ""
    )


def match_success(job: JobView, succeeded: IndexRanges) -> str:
    """Return the message of the first rule of the success policy that is met, or ""."""
    policy = job.spec.success_policy
    if policy is None or not succeeded:
        return ""
    for index, rule in enumerate(policy.rules):
        enough = rule.succeeded_count
        if rule.succeeded_indexes is not None:
            required = parse_ranges(rule.succeeded_indexes, job.spec.completions or 0)
            common = count_common(required, succeeded)
            is_met = bool(required) and (
                common == count_indexes(required) or (enough is not None and common >= enough)
            )
        else:
            is_met = enough is not None and count_indexes(succeeded) >= enough
        if is_met:
            return f"Matched rules at index {index}"
    return ""
