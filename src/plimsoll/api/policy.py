"""PodDisruptionBudgets as the scheduler reads them (`policy/v1`).

Owns the typed view of the kind: whom a budget covers and how many more of them may go.
"""

from __future__ import annotations

from plimsoll.api.meta import Condition, Int, LabelSelector, ObjectMeta, Wire


class PodDisruptionBudgetSpec(Wire, frozen=True):
    """Whom it covers; what it wants of them is worked out by others, see the status."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    observed_generation: Int = 0
    #: Pods that are about to go: name -> when that was decided.
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
