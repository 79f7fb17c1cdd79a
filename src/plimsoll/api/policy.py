"""Typed views of `policy/v1`: PodDisruptionBudget."""

from __future__ import annotations

from plimsoll.api.meta import Condition, Int, IntOrString, LabelSelector, ObjectMeta, Wire


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """Pods covered by a budget; the disruption controller evaluates the rest into the status."""

    selector: LabelSelector | None = None
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    observed_generation: Int = 0
    #: Pods being evicted: name -> time of the eviction.
    disrupted_pods: dict[str, str | None] = {}
    disruptions_allowed: Int = 0
    current_healthy: Int = 0
    desired_healthy: Int = 0
    expected_pods: Int = 0
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
