"""Where a pod goes best: scorers, a small module each, and their weighted sum.

`score_nodes` is what scheduling uses. `SCORERS` lists the scorers; `settings.WEIGHTS` has their weights.
"""

from __future__ import annotations

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.schedule.score.affinity import AffinityScorer
from plimsoll.schedule.score.allocation import AllocatedScorer, BalancedScorer
from plimsoll.schedule.score.inter_pod import InterPodScorer
from plimsoll.schedule.score.scorer import Scorer
from plimsoll.schedule.score.spread import SpreadScorer
from plimsoll.schedule.score.taints import TaintsScorer
from plimsoll.schedule.settings import Settings
from plimsoll.schedule.snapshot import Snapshot
from plimsoll.schedule.task import Task

SCORERS: tuple[type[Scorer], ...] = (
    AllocatedScorer,
    BalancedScorer,
    TaintsScorer,
    AffinityScorer,
    SpreadScorer,
    InterPodScorer,
)


def score_nodes(task: Task, snapshot: Snapshot, settings: Settings, feasible: Mask) -> Column:
    """The weighted sum of all scores; only what it says of feasible places matters."""
    total: Column | None = None
    for kind in SCORERS:
        weight = settings.weights[kind.name]
        scorer = kind.read(task, snapshot, settings) if weight else None
        if scorer is None:
            continue
        scores = scorer.scores(feasible)
        if total is None:
            total = scores * weight
        else:
            total += scores if weight == 1 else scores * weight
    return np.zeros(snapshot.size, dtype=np.int64) if total is None else total
