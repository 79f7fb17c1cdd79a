"""Score of the volumes of a pod (gate StorageCapacityScoring): how much of them, or of their pools, is used.

For each storage class the requested size is compared with the size of the chosen volumes, or with the
published capacity from which volumes are provisioned, and the utilization is scored by a function
(`volumeShape`). The score of a node is the average of its classes.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.filters.volume_binding import VolumeBindingFilter
from plimsoll.scheduler.plugin_args import UTILIZATION_MAX
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import PodVolumes
from plimsoll.scheduler.scores.formulas import tabulate_shape
from plimsoll.scheduler.scores.scorer import Scorer
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class VolumeBindingScorer(Scorer):
    """Scorer of volumes that wait for their first consumer."""

    name = "VolumeBinding"

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile, volumes: VolumeBindingFilter
    ) -> None:
        super().__init__(pod_info, snapshot, settings)
        self._volumes = volumes
        self._table = tabulate_shape(settings.volume_shape)

    @classmethod
    def pre_score(cls, pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> Self | None:
        if not snapshot.gates.enabled("StorageCapacityScoring"):
            return None
        volumes = VolumeBindingFilter.pre_filter(pod_info, snapshot)
        if not isinstance(volumes, VolumeBindingFilter) or not volumes.has_unbound_claims:
            return None
        return cls(pod_info, snapshot, settings, volumes)

    def scores(self, feasible: Mask) -> Column:
        scores = np.zeros(self.snapshot.size, dtype=np.int64)
        for row in np.flatnonzero(feasible).tolist():
            found = self._volumes.find_volumes(row)
            scores[row] = self.score(found) if isinstance(found, PodVolumes) else 0
        return scores

    def score(self, volumes: PodVolumes) -> int:
        """Return the rounded average of the scores of the storage classes."""
        classes = class_resources(volumes)
        if not classes:
            return 0
        total = sum(self._table[_utilization(*amounts)] for amounts in classes.values())
        return (2 * total + len(classes)) // (2 * len(classes))


def class_resources(volumes: PodVolumes) -> dict[str, tuple[int, int]]:
    """Return the requested size and the capacity of each class; chosen volumes take precedence.

    The capacity of a pool counts once, however many volumes are provisioned from it.
    """
    found: dict[str, tuple[int, int]] = {}
    for binding in volumes.static_bindings:
        name = binding.volume.spec.storage_class_name
        requested, capacity = found.get(name, (0, 0))
        found[name] = requested + binding.claim.size.value(), capacity + binding.volume.size.value()
    if volumes.static_bindings:
        return found
    for provision in volumes.dynamic_provisions:
        if provision.capacity is not None:
            name, pool = provision.claim.storage_class, provision.capacity.capacity
            requested = found.get(name, (0, 0))[0] + provision.claim.size.value()
            found[name] = requested, 0 if pool is None else pool.value()
    return found


def _utilization(requested: int, capacity: int) -> int:
    if not capacity or requested > capacity:
        return UTILIZATION_MAX
    return requested * UTILIZATION_MAX // capacity
