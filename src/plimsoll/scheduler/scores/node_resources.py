"""Scores by free resources: NodeResourcesFit (its three strategies) and NodeResourcesBalancedAllocation.

Select the formula for a pod. Scores are cached, and updated for nodes whose ledger changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.ledger.requests import NON_ZERO_CPU, NON_ZERO_MEMORY, pod_requests
from plimsoll.ledger.units import CPU, MEMORY, STANDARD_RESOURCES, to_units
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile, Scoring, Strategy
from plimsoll.scheduler.scores.device_columns import count_devices
from plimsoll.scheduler.scores.formulas import (
    Allocated,
    Balanced,
    Formula,
    RequestedToCapacityRatio,
    WeightedResource,
    tabulate_shape,
)
from plimsoll.scheduler.scores.kube_balanced import KubeBalanced
from plimsoll.scheduler.scores.scorer import Scorer
from plimsoll.scheduler.snapshot.node_query_cache import NodeQueryCache
from plimsoll.scheduler.snapshot.snapshot import Snapshot

_NON_ZERO = {CPU: NON_ZERO_CPU, MEMORY: NON_ZERO_MEMORY}


def non_zero_demand(pod_info: PodInfo, *, skip_pod_level: bool = False) -> Mapping[str, int]:
    """Return the demand of a pod; containers without CPU or memory requests count with small defaults."""
    spec = pod_info.pod.spec
    if skip_pod_level and spec.resources is not None:
        options = replace(pod_info.options, count_claims=False, non_missing=_NON_ZERO, skip_pod_level=True)
        return to_units(pod_requests(pod_info.pod, options, ()))
    for container in (*spec.containers, *spec.init_containers):
        requests = container.resources.requests
        if CPU not in requests or MEMORY not in requests:
            options = replace(pod_info.options, count_claims=False, non_missing=_NON_ZERO)
            return to_units(pod_requests(pod_info.pod, options, ()))
    return pod_info.requests


class _FormulaScorer(Scorer):
    """Scorer by a formula; its scores do not depend on other nodes."""

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile, formula: Formula
    ) -> None:
        super().__init__(pod_info, snapshot, settings)
        self.formula = formula

    def scores(self, feasible: Mask) -> Column:
        served = [part.name for part in self.formula.parts if part.name in self.pod_info.extended_classes]
        if served:
            columns = count_devices(self.pod_info, self.snapshot, feasible, served)
            rows = np.flatnonzero(feasible)
            scores = np.zeros(self.snapshot.size, dtype=np.int64)
            scores[rows] = self.formula.evaluate(columns, rows)
            return scores
        return self.snapshot.index(NodeQueryCache).column(self.formula, self.snapshot)


class NodeResourcesFitScorer(_FormulaScorer):
    """Strategy of the profile; containers without requests count with default requests."""

    name = "NodeResourcesFit"

    @classmethod
    def pre_score(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        demand = non_zero_demand(pod_info, skip_pod_level=settings.scoring is Scoring.STOCK)
        parts = tuple(
            WeightedResource(name, demand.get(name, 0), weight)
            for name, weight in settings.resources.items()
            if weight and (demand.get(name, 0) or name in STANDARD_RESOURCES)
        )
        if not parts:
            return None
        formula: Formula
        if settings.strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO:
            formula = RequestedToCapacityRatio(parts, tabulate_shape(settings.shape))
        else:
            formula = Allocated(parts, settings.strategy is Strategy.MOST_ALLOCATED)
        return cls(pod_info, snapshot, settings, formula)


class BalancedAllocationScorer(_FormulaScorer):
    """Balanced allocation; skipped for pods that request none of the resources."""

    name = "NodeResourcesBalancedAllocation"

    @classmethod
    def pre_score(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        demand = pod_info.requests
        parts = tuple(
            WeightedResource(name, demand.get(name, 0))
            for name in settings.balanced
            if demand.get(name, 0) or name in STANDARD_RESOURCES
        )
        if len(parts) < 2 or not any(part.demand for part in parts):
            return None
        formula = KubeBalanced if settings.scoring is Scoring.STOCK else Balanced
        return cls(pod_info, snapshot, settings, formula(parts))
