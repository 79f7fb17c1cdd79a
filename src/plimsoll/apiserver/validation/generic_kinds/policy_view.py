"""Views of PodDisruptionBudget, HorizontalPodAutoscaler, LimitRange and RuntimeClass, for validation.

They have the fields that a default, a rule or a stored form depends on; all other fields are preserved
unchanged.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import ResourceList
from plimsoll.api.meta import Int32, IntOrString, LabelSelector, ObjectMeta, Wire
from plimsoll.api.quantity import Quantity


class FullPodDisruptionBudgetSpec(Wire, frozen=True):
    min_available: IntOrString | None = None  #: a number or a percentage
    max_unavailable: IntOrString | None = None  #: a number or a percentage
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class FullPodDisruptionBudget(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FullPodDisruptionBudgetSpec = FullPodDisruptionBudgetSpec()


class MetricTarget(Wire, frozen=True):
    value: Quantity | None = None
    average_value: Quantity | None = None


class MetricSource(Wire, frozen=True):
    target: MetricTarget = MetricTarget()


class MetricSpec(Wire, frozen=True):
    """A metric of any type; each has a target."""

    object: MetricSource | None = None
    pods: MetricSource | None = None
    resource: MetricSource | None = None
    container_resource: MetricSource | None = None
    external: MetricSource | None = None


class ScalingRules(Wire, frozen=True):
    stabilization_window_seconds: Int32 | None = None
    select_policy: str | None = None
    policies: tuple[Any, ...] = ()
    tolerance: Quantity | None = None


class ScalingBehavior(Wire, frozen=True):
    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


class HorizontalPodAutoscalerSpec(Wire, frozen=True):
    min_replicas: Int32 | None = None
    max_replicas: Int32 = 0
    metrics: tuple[MetricSpec, ...] = ()
    behavior: ScalingBehavior | None = None


class HorizontalPodAutoscaler(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()


class LimitRangeItem(Wire, frozen=True):
    type: str = ""
    max: ResourceList = {}
    min: ResourceList = {}
    default: ResourceList = {}
    default_request: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}


class LimitRangeSpec(Wire, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class RuntimeClassOverhead(Wire, frozen=True):
    pod_fixed: ResourceList = {}


class RuntimeClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    overhead: RuntimeClassOverhead | None = None
