"""Node resource scores of a pod, and balanced allocation in floating point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.scores.scorer import Scorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.unit.scheduler.snapshots import pod_info_of

LEAST = SchedulerProfile.default()


def scores(
    kind: type[Scorer], wanting: Any, snapshot: Snapshot, settings: SchedulerProfile = LEAST
) -> dict[str, int]:
    scorer = kind.pre_score(pod_info_of(wanting, snapshot), snapshot, settings)
    assert scorer is not None
    found = scorer.scores(snapshot.alive)
    return {snapshot.node(row).metadata.name: int(found[row]) for row in snapshot.rows()}


def doubles(lines: Sequence[int], used: Sequence[int], wanted: Sequence[int]) -> int:
    """Return balanced allocation as kube-scheduler computes it, in floating point."""

    def balance(amounts: Sequence[int]) -> int:
        shares = [min(a / line, 1.0) for a, line in zip(amounts, lines, strict=True) if line]
        if len(shares) < 2:
            return 100
        mean = sum(shares) / len(shares)
        return int((1 - math.sqrt(sum((s - mean) ** 2 for s in shares) / len(shares))) * 100)

    after = balance([u + w for u, w in zip(used, wanted, strict=True)])
    return 50 + (50 + after - balance(used)) // 2
