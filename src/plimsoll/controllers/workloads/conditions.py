"""Conditions of workloads: a condition changes its transition time only with its status."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from plimsoll.controllers.workload_views import WorkloadCondition


def find(conditions: Iterable[WorkloadCondition], type: str) -> WorkloadCondition | None:
    return next((condition for condition in conditions if condition.type == type), None)


def has(conditions: Iterable[WorkloadCondition], type: str) -> bool:
    """Return whether a condition is true."""
    condition = find(conditions, type)
    return condition is not None and condition.status == "True"


def without(conditions: Iterable[WorkloadCondition], type: str) -> tuple[WorkloadCondition, ...]:
    return tuple(condition for condition in conditions if condition.type != type)


def updated(
    conditions: tuple[WorkloadCondition, ...], condition: WorkloadCondition
) -> tuple[WorkloadCondition, ...]:
    """Set a condition; one of the same status and reason is left as it is."""
    old = find(conditions, condition.type)
    if old is not None and (old.status, old.reason) == (condition.status, condition.reason):
        return conditions
    if old is not None and old.status == condition.status:
        condition = replace(condition, last_transition_time=old.last_transition_time)
    return (*without(conditions, condition.type), condition)
