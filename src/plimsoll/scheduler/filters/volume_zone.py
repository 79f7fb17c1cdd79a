"""VolumeZone: zone and region labels of a pod's volumes.

For volumes with zone labels instead of node affinity. A node without zone labels passes; a volume may list
several zones, separated by `__`; a deprecated label also matches the current label on the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self, TypeAlias

import numpy as np

from plimsoll.api.core import Node
from plimsoll.api.pod_volumes import volume_claims
from plimsoll.api.storage import PersistentVolume
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.events import EventKind, NodeUpdate
from plimsoll.scheduler.filters.static import SignatureIndex, StaticFilter
from plimsoll.scheduler.filters.volumes import (
    STORAGE_EVENTS,
    VolumeMessage,
    VolumeQueueingHint,
    find_claim,
    find_volume,
    uses_claims,
)
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class VolumeZoneMessage(ReasonMessage):
    """Messages of VolumeZone."""

    ZONE = "node(s) had no available volume zone"
    VOLUME_MISSING = 'persistentvolume "{volume}" not found'
    CLAIM_WITHOUT_NAME = "PersistentVolumeClaim had no name"


_NEW_NAMES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
LABELS = (*_NEW_NAMES, *_NEW_NAMES.values())
SEPARATOR = "__"

#: Label key, and the allowed values.
Topology: TypeAlias = tuple[str, frozenset[str]]


def topologies(volume: PersistentVolume) -> Iterator[Topology]:
    """Return the zone labels of a volume; a label with an empty zone is ignored."""
    labels = volume.metadata.labels
    for key in LABELS:
        if key in labels:
            zones = frozenset(zone.strip() for zone in labels[key].split(SEPARATOR))
            if "" not in zones:
                yield key, zones


def is_in_zones(wanted: Sequence[Topology], node: Node) -> bool:
    """Return whether a node is in the zones of all volumes."""
    labels = node.metadata.labels
    if not any(key in labels for key in LABELS):
        return True
    for key, zones in wanted:
        value = labels.get(key, labels.get(_NEW_NAMES.get(key, key)))
        if value is None or value not in zones:
            return False
    return True


class ZoneNodes(SignatureIndex[tuple[Topology, ...], np.bool_]):
    """Index of the nodes in the zones of volumes."""

    dtype = np.bool_

    def relevant(self, node: Node) -> object:
        labels = node.metadata.labels
        return [labels.get(key) for key in LABELS]

    def evaluate(self, signature: tuple[Topology, ...], node: Node) -> bool:
        return is_in_zones(signature, node)


class VolumeZoneFilter(VolumeQueueingHint, StaticFilter):
    """Filter by the zone labels of a pod's volumes."""

    rule = Rule.VOLUME_ZONE
    events = STORAGE_EVENTS | {EventKind.NODE_ADDED, NodeUpdate.LABELS}
    reason = NodeReason.unresolvable(Rule.VOLUME_ZONE, VolumeZoneMessage.ZONE)

    def __init__(
        self, pod_info: PodInfo, snapshot: Snapshot, wanted: tuple[Topology, ...], mask: Mask
    ) -> None:
        super().__init__(pod_info, snapshot, mask)
        self._wanted = wanted

    @classmethod
    def pre_filter(cls, pod_info: PodInfo, snapshot: Snapshot) -> Self | NodeReason | None:
        pod = pod_info.pod
        if not pod.spec.volumes or not uses_claims(pod):
            return None
        wanted: list[Topology] = []
        for used in volume_claims(pod):
            if used.generated:
                continue  # not checked upstream either
            if not used.name:
                return NodeReason.unresolvable(cls.rule, VolumeZoneMessage.CLAIM_WITHOUT_NAME)
            claim = find_claim(pod, used, snapshot)
            if claim is None:
                return NodeReason.unresolvable(cls.rule, VolumeMessage.CLAIM_MISSING, claim=used.name)
            if not claim.spec.volume_name:
                continue  # unbound claims are rejected by VolumeBinding
            volume = find_volume(claim.spec.volume_name, snapshot)
            if volume is None:
                return NodeReason.unresolvable(
                    cls.rule, VolumeZoneMessage.VOLUME_MISSING, volume=claim.spec.volume_name
                )
            wanted.extend(topologies(volume))
        if not wanted:
            return None
        signature = tuple(dict.fromkeys(wanted))
        return cls(pod_info, snapshot, signature, snapshot.index(ZoneNodes).column(signature))

    def passes(self, node: Node) -> bool:
        return is_in_zones(self._wanted, node)
