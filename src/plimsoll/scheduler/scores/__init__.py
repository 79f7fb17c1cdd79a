"""Scoring: one module per scorer, and their weighted sum.

`score_nodes` is the entry point. `SCORERS` lists the scorers; `SchedulerProfile.weights` has their weights.
"""

from __future__ import annotations

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.inter_pod_affinity import InterPodScorer
from plimsoll.scheduler.scores.node_affinity import AffinityScorer
from plimsoll.scheduler.scores.node_resources import AllocatedScorer, BalancedScorer
from plimsoll.scheduler.scores.pod_topology_spread import SpreadScorer
from plimsoll.scheduler.scores.scorer import Scorer
from plimsoll.scheduler.scores.taint_toleration import TaintsScorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot

SCORERS: tuple[type[Scorer], ...] = (
    AllocatedScorer,
    BalancedScorer,
    TaintsScorer,
    AffinityScorer,
    SpreadScorer,
    InterPodScorer,
)


def score_nodes(pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile, feasible: Mask) -> Column:
    """Return the weighted sum of all scores; only valid for feasible nodes."""
    total: Column | None = None
    for kind in SCORERS:
        weight = settings.weights[kind.name]
        scorer = kind.read(pod_info, snapshot, settings) if weight else None
        if scorer is None:
            continue
        scores = scorer.scores(feasible)
        if total is None:
            total = scores * weight
        else:
            total += scores if weight == 1 else scores * weight
    return np.zeros(snapshot.size, dtype=np.int64) if total is None else total
