"""Volumes of a pod, and the queueing hint of the volume rules.

The claims of a pod are found by `api/pod_volumes.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.pod_volumes import CLAIM_VOLUMES, VolumeClaim, placement_volumes, volume_claims
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.scheduler.events import ClusterEvent, DeclaredEvent, EventKind
from plimsoll.scheduler.filters.queueing_hint import NamedObject, QueueingHint, WaitingPod
from plimsoll.scheduler.reasons import ReasonMessage
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class VolumeMessage(ReasonMessage):
    """Message shared by the volume rules."""

    CLAIM_MISSING = 'persistentvolumeclaim "{claim}" not found'


K = TypeVar("K")
V = TypeVar("V")
#: Events about storage objects.
STORAGE_EVENTS: frozenset[DeclaredEvent] = frozenset(
    {
        EventKind.VOLUME_CLAIM_CHANGED,
        EventKind.VOLUME_CHANGED,
        EventKind.STORAGE_CLASS_CHANGED,
        EventKind.CSI_NODE_CHANGED,
        EventKind.OTHER,
    }
)


def uses_claims(pod: Pod) -> bool:
    """Return whether a pod has a volume with a claim."""
    return has_any(pod, CLAIM_VOLUMES)


def has_any(pod: Pod, kinds: frozenset[str]) -> bool:
    """Return whether a pod has a volume of one of these kinds; called for every pod, and therefore fast."""
    for volume in pod.spec.volumes:  # noqa: SIM110 - half the time of any()
        if not kinds.isdisjoint(volume):
            return True
    return False


def find_claim(pod: Pod, claim: VolumeClaim, snapshot: Snapshot) -> PersistentVolumeClaim | None:
    """Return a claim of a pod, with the node that is assumed for it."""
    found = snapshot.find(PersistentVolumeClaim, pod.metadata.namespace, claim.name)
    return None if found is None else snapshot.assumed_volumes.claim(found)


def find_claims(pod: Pod, snapshot: Snapshot) -> list[PersistentVolumeClaim]:
    """Return the existing claims of a pod as the API has them."""
    names = claim_names(pod) if pod.spec.volumes else ()
    found = (snapshot.find(PersistentVolumeClaim, pod.metadata.namespace, name) for name in names)
    return [claim for claim in found if claim is not None]


def find_volume(name: str, snapshot: Snapshot) -> PersistentVolume | None:
    return snapshot.find(PersistentVolume, "", name)


class VolumeQueueingHint(QueueingHint):
    """Queueing hint of the volume rules."""

    events = STORAGE_EVENTS
    pod_fields = frozenset({"volumes"})

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        match event.kind:
            case EventKind.POD_DELETED:
                return bool(placement_volumes(event.old.spec))
            case EventKind.VOLUME_CLAIM_CHANGED:
                meta = event.object.metadata
                return meta.namespace == waiting_pod.namespace and meta.name in waiting_pod.value(claim_names)
        return super().queueing_hint(event, waiting_pod)

    @classmethod
    def hint_key(cls, pod: Pod) -> object:
        return placement_volumes(pod.spec)

    @classmethod
    def named_objects(cls, pod: Pod) -> Iterator[NamedObject]:
        for name in claim_names(pod):
            yield EventKind.VOLUME_CLAIM_CHANGED, pod.metadata.namespace, name


def claim_names(pod: Pod) -> frozenset[str]:
    """Return the names of the PersistentVolumeClaims a pod uses."""
    return frozenset(claim.name for claim in volume_claims(pod))


# -- counters


def count(table: dict[K, Counter[V]], key: K, value: V, by: int) -> None:
    """Add to the count of a value under a key, and drop zero counts."""
    counts = table.setdefault(key, Counter())
    counts[value] += by
    if not counts[value]:
        del counts[value]
    if not counts:
        del table[key]
