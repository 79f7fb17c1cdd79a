"""Volumes of a pod that restrict where it can run.

Reads PersistentVolumeClaims, named or generated (`ephemeral`), and in-tree disks. Volumes are untyped trees;
a part of the wrong type is treated as absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.events import ClusterEvent, DeclaredEvent, EventKind
from plimsoll.scheduler.filters.queueing_hint import NamedObject, QueueingHint, WaitingPod
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class VolumeMessage(ReasonMessage):
    """Message that several rules about volumes use."""

    CLAIM_MISSING = 'persistentvolumeclaim "{claim}" not found'


K = TypeVar("K")
V = TypeVar("V")
_CLAIM, _EPHEMERAL = "persistentVolumeClaim", "ephemeral"
_CLAIMS = frozenset({_CLAIM, _EPHEMERAL})
#: Events about the objects that decide where volumes can be used.
STORAGE_EVENTS: frozenset[DeclaredEvent] = frozenset(
    {
        EventKind.VOLUME_CLAIM_CHANGED,
        EventKind.VOLUME_CHANGED,
        EventKind.STORAGE_CLASS_CHANGED,
        EventKind.CSI_NODE_CHANGED,
        EventKind.OTHER,
    }
)


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """PersistentVolumeClaim of a pod; `made` if it is generated for the pod."""

    name: str
    made: bool = False


def uses_claims(pod: Pod) -> bool:
    """Return whether a pod has a volume with a claim."""
    return has_any(pod, _CLAIMS)


def has_any(pod: Pod, kinds: frozenset[str]) -> bool:
    """Return whether a pod has a volume of one of these kinds; called for every pod, so it is fast."""
    for volume in pod.spec.volumes:  # noqa: SIM110 - half the time of any()
        if not kinds.isdisjoint(volume):
            return True
    return False


def volume_claims(pod: Pod) -> Iterator[VolumeClaim]:
    """Return the claims of a pod's volumes in order."""
    for volume in pod.spec.volumes:
        if _CLAIMS.isdisjoint(volume):
            continue
        named = part(volume, _CLAIM)
        if named is not None:
            yield VolumeClaim(text(named, "claimName"))
        elif part(volume, _EPHEMERAL) is not None:
            yield VolumeClaim(f"{pod.metadata.name}-{text(volume, 'name')}", made=True)


def find_claim(pod: Pod, claim: VolumeClaim, snapshot: Snapshot) -> PersistentVolumeClaim | None:
    return snapshot.find(PersistentVolumeClaim, pod.metadata.namespace, claim.name)


def find_volume(name: str, snapshot: Snapshot) -> PersistentVolume | None:
    return snapshot.find(PersistentVolume, "", name)


def is_made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Return whether a claim is owned by a pod."""
    return any(
        owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references
    )


def reason(rule: Rule, sentence: ReasonMessage, **facts: object) -> NodeReason:
    """Return a reason that removing other pods does not resolve."""
    return NodeReason(rule, sentence, VerdictCode.UNRESOLVABLE, facts)


class VolumeQueueingHint(QueueingHint):
    """Queueing hint of the rules about volumes."""

    events = STORAGE_EVENTS
    pod_fields = frozenset({"volumes"})

    @classmethod
    def queueing_hint(cls, event: ClusterEvent, waiting_pod: WaitingPod) -> bool:
        match event.kind:
            case EventKind.POD_DELETED:
                return bool(event.old.spec.volumes)
            case EventKind.VOLUME_CLAIM_CHANGED:
                meta = event.object.metadata
                return meta.namespace == waiting_pod.namespace and meta.name in waiting_pod.value(claim_names)
        return super().queueing_hint(event, waiting_pod)

    @classmethod
    def hint_key(cls, pod: Pod) -> object:
        return pod.spec.volumes

    @classmethod
    def named_objects(cls, pod: Pod) -> Iterator[NamedObject]:
        for name in claim_names(pod):
            yield EventKind.VOLUME_CLAIM_CHANGED, pod.metadata.namespace, name


def claim_names(pod: Pod) -> frozenset[str]:
    """Return the names of the PersistentVolumeClaims a pod uses."""
    return frozenset(claim.name for claim in volume_claims(pod))


# -- untyped trees


def part(tree: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a nested object, or None."""
    value = tree.get(name)
    return value if isinstance(value, dict) else None


def text(tree: Mapping[str, Any], name: str) -> str:
    """Return a nested string, or ""."""
    value = tree.get(name)
    return value if isinstance(value, str) else ""


# -- counters


def count(table: dict[K, Counter[V]], key: K, value: V, by: int) -> None:
    """Add to the count of a value under a key, and drop zero counts."""
    counts = table.setdefault(key, Counter())
    counts[value] += by
    if not counts[value]:
        del counts[value]
    if not counts:
        del table[key]
