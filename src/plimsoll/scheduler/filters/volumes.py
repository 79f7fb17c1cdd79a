"""The volumes of a pod that have a say in where it goes.

Owns reading them: which PersistentVolumeClaims a pod uses, by name or made for it (`ephemeral`), and which
disks of the old kinds it names in its own spec. Most pods have no such volume; finding that out is one look
at each volume. Volumes are plain trees, and what is not of the right shape is as if it were not there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from plimsoll.api.core import Pod
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.ledger.verdict import Code
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot

K = TypeVar("K")
V = TypeVar("V")
_CLAIM, _EPHEMERAL = "persistentVolumeClaim", "ephemeral"
_CLAIMS = frozenset({_CLAIM, _EPHEMERAL})


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim a pod uses; `made` if it is made for the pod."""

    name: str
    made: bool = False


def uses_claims(pod: Pod) -> bool:
    """Whether a pod has a volume with a claim."""
    return has_any(pod, _CLAIMS)


def has_any(pod: Pod, kinds: frozenset[str]) -> bool:
    """Whether a pod has a volume of one of these kinds: what every pod is asked, so it is quick."""
    for volume in pod.spec.volumes:  # noqa: SIM110 - half the time of any()
        if not kinds.isdisjoint(volume):
            return True
    return False


def volume_claims(pod: Pod) -> Iterator[VolumeClaim]:
    """The claims of a pod's volumes, in their order."""
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
    """Whether a claim belongs to a pod."""
    return any(
        owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references
    )


def reason(rule: Rule, sentence: ReasonMessage, **facts: object) -> NodeReason:
    """A reason that no other pod's leaving would change."""
    return NodeReason(rule, sentence, Code.UNRESOLVABLE, facts)


# -- trees


def part(tree: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """An object below an object, if there is one."""
    value = tree.get(name)
    return value if isinstance(value, dict) else None


def text(tree: Mapping[str, Any], name: str) -> str:
    """A text below an object, or ""."""
    value = tree.get(name)
    return value if isinstance(value, str) else ""


# -- counting


def count(table: dict[K, Counter[V]], key: K, value: V, by: int) -> None:
    """Count a value under a key, up or down; what comes to nothing is gone."""
    counts = table.setdefault(key, Counter())
    counts[value] += by
    if not counts[value]:
        del counts[value]
    if not counts:
        del table[key]
