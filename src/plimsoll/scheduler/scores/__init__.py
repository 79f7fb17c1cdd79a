"""Scorers: one module per kube-scheduler plugin. `score_nodes` computes their weighted sum.

`SchedulerProfile.weights` has the weights.
"""

from __future__ import annotations

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.image_locality import ImageLocalityScorer
from plimsoll.scheduler.scores.inter_pod_affinity import InterPodAffinityScorer
from plimsoll.scheduler.scores.node_affinity import NodeAffinityScorer
from plimsoll.scheduler.scores.node_resources import BalancedAllocationScorer, NodeResourcesFitScorer
from plimsoll.scheduler.scores.pod_topology_spread import PodTopologySpreadScorer
from plimsoll.scheduler.scores.scorer import Scorer
from plimsoll.scheduler.scores.taint_toleration import TaintTolerationScorer
from plimsoll.scheduler.scores.volume_binding import VolumeBindingScorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot

SCORERS: tuple[type[Scorer], ...] = (
    NodeResourcesFitScorer,
    BalancedAllocationScorer,
    TaintTolerationScorer,
    NodeAffinityScorer,
    PodTopologySpreadScorer,
    InterPodAffinityScorer,
    ImageLocalityScorer,
    VolumeBindingScorer,
)


def score_nodes(
    pod_info: PodInfo,
    snapshot: Snapshot,
    settings: SchedulerProfile,
    feasible: Mask,
    observer: CycleObserver | None = None,
) -> Column:
    """Return the weighted sum of all scores, valid for feasible nodes only."""
    total: Column | None = None
    for kind in SCORERS:
        weight = settings.weights[kind.name]
        scorer = kind.pre_score(pod_info, snapshot, settings) if weight else None
        if scorer is None:
            continue
        scores = scorer.scores(feasible)
        if observer is not None:
            observer.on_score(kind.name, weight, scores)
        if total is None:
            total = scores * weight
        else:
            total += scores if weight == 1 else scores * weight
    return np.zeros(snapshot.size, dtype=np.int64) if total is None else total
