"""Status of a Deployment: counters, availability, progress and its deadline."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.controllers.deployment.replica_sets import max_unavailable
from plimsoll.controllers.workload_views import (
    DeploymentStatusView,
    DeploymentView,
    ReplicaSetView,
    WorkloadCondition,
)
from plimsoll.controllers.workloads import conditions

AVAILABLE, PROGRESSING, REPLICA_FAILURE = "Available", "Progressing", "ReplicaFailure"
#: Reasons of the condition Progressing.
CREATED, FOUND, CREATE_ERROR = "NewReplicaSetCreated", "FoundNewReplicaSet", "ReplicaSetCreateError"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"
UPDATED, COMPLETE, TIMED_OUT = "ReplicaSetUpdated", "NewReplicaSetAvailable", "ProgressDeadlineExceeded"
_NO_DEADLINE = 2**31 - 1


def has_deadline(deployment: DeploymentView) -> bool:
    return deployment.spec.progress_deadline_seconds not in (None, _NO_DEADLINE)


def make_condition(type: str, status: str, reason: str, message: str, now: float) -> WorkloadCondition:
    time = format_time(now)
    return WorkloadCondition(
        type=type,
        status=status,
        reason=reason,
        message=message,
        last_update_time=time,
        last_transition_time=time,
    )


def count_status(
    deployment: DeploymentView, sets: Sequence[ReplicaSetView], new: ReplicaSetView | None, now: float
) -> DeploymentStatusView:
    """Return the counters and the condition Available."""
    replicas = sum(each.status.replicas for each in sets)
    available = sum(each.status.available_replicas for each in sets)
    if available >= deployment.replicas - max_unavailable(deployment):
        text = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        text = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    return replace(
        deployment.status,
        observed_generation=deployment.metadata.generation,
        replicas=replicas,
        updated_replicas=0 if new is None else new.status.replicas,
        ready_replicas=sum(each.status.ready_replicas for each in sets),
        available_replicas=available,
        unavailable_replicas=max(0, replicas - available),
        terminating_replicas=sum(each.status.terminating_replicas or 0 for each in sets),
        conditions=conditions.updated(deployment.status.conditions, make_condition(AVAILABLE, *text, now)),
    )


def is_complete(deployment: DeploymentView, status: DeploymentStatusView) -> bool:
    """Return whether all pods are of the current template and available, and no other pods are left."""
    wanted = deployment.replicas
    return (
        status.updated_replicas == wanted
        and status.replicas == wanted
        and status.available_replicas == wanted
        and status.observed_generation >= deployment.metadata.generation
    )


def roll_out_status(
    deployment: DeploymentView, sets: Sequence[ReplicaSetView], new: ReplicaSetView | None, now: float
) -> DeploymentStatusView:
    """Return the status of a rollout, with the conditions Progressing and ReplicaFailure."""
    status = count_status(deployment, sets, new, now)
    found = status.conditions
    progress = conditions.find(found, PROGRESSING)
    if not has_deadline(deployment):
        found = conditions.without(found, PROGRESSING)
    elif not (
        status.replicas == status.updated_replicas and progress is not None and progress.reason == COMPLETE
    ):
        subject = f'Deployment "{deployment.metadata.name}"'
        if new is not None:
            subject = f'ReplicaSet "{new.metadata.name}"'
        if is_complete(deployment, status):
            message = f"{subject} has successfully progressed."
            found = conditions.updated(found, make_condition(PROGRESSING, "True", COMPLETE, message, now))
        elif _has_progressed(deployment.status, status):
            condition = make_condition(PROGRESSING, "True", UPDATED, f"{subject} is progressing.", now)
            if progress is not None and progress.status == "True":
                condition = replace(condition, last_transition_time=progress.last_transition_time)
            found = (*conditions.without(found, PROGRESSING), condition)
        elif _has_timed_out(deployment, progress, now):
            message = f"{subject} has timed out progressing."
            found = conditions.updated(found, make_condition(PROGRESSING, "False", TIMED_OUT, message, now))
    failure = _find_failure(sets, new)
    if failure is None:
        found = conditions.without(found, REPLICA_FAILURE)
    else:
        found = conditions.updated(found, replace(failure, last_update_time=failure.last_transition_time))
    return replace(status, conditions=found)


def _has_progressed(old: DeploymentStatusView, new: DeploymentStatusView) -> bool:
    return (
        new.updated_replicas > old.updated_replicas
        or new.replicas - new.updated_replicas < old.replicas - old.updated_replicas
        or new.ready_replicas > old.ready_replicas
        or new.available_replicas > old.available_replicas
    )


def _has_timed_out(deployment: DeploymentView, progress: WorkloadCondition | None, now: float) -> bool:
    if progress is None or progress.reason == COMPLETE:
        return False
    if progress.reason == TIMED_OUT:
        return True
    since = parse_time(progress.last_update_time) or 0.0
    return since + (deployment.spec.progress_deadline_seconds or 0) < now


def seconds_to_deadline(deployment: DeploymentView, status: DeploymentStatusView, now: float) -> float | None:
    """Return after how many seconds to check the progress deadline, or None if there is nothing to check."""
    progress = conditions.find(status.conditions, PROGRESSING)
    if not has_deadline(deployment) or progress is None:
        return None
    if is_complete(deployment, status) or progress.reason in (TIMED_OUT, COMPLETE):
        return None
    since = parse_time(progress.last_update_time) or 0.0
    return max(0.0, since + (deployment.spec.progress_deadline_seconds or 0) - now) + 1.0


def _find_failure(sets: Sequence[ReplicaSetView], new: ReplicaSetView | None) -> WorkloadCondition | None:
    """Return the failure of the newest ReplicaSet, or else of any."""
    for each in (*((new,) if new is not None else ()), *sets):
        failure = conditions.find(each.status.conditions, REPLICA_FAILURE)
        if failure is not None:
            return failure
    return None
