"""PersistentVolumeClaims of a pod's volumes: named, or generated for the pod (`ephemeral`).

Volumes are untyped trees; a field of the wrong type is treated as absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod

_CLAIM, _EPHEMERAL = "persistentVolumeClaim", "ephemeral"
#: Kinds of volumes that use a claim.
CLAIM_VOLUMES = frozenset({_CLAIM, _EPHEMERAL})


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """PersistentVolumeClaim of a pod."""

    name: str
    generated: bool = False  #: generated for the pod (`ephemeral`)


def volume_claims(pod: Pod) -> Iterator[VolumeClaim]:
    """Return the claims of a pod's volumes in order."""
    for volume in pod.spec.volumes:
        found = None if CLAIM_VOLUMES.isdisjoint(volume) else volume_claim(pod, volume)
        if found is not None:
            yield found


def volume_claim(pod: Pod, volume: Mapping[str, Any]) -> VolumeClaim | None:
    """Return the claim of one volume of a pod."""
    named = nested_object(volume, _CLAIM)
    if named is not None:
        return VolumeClaim(nested_text(named, "claimName"))
    if nested_object(volume, _EPHEMERAL) is not None:
        return VolumeClaim(f"{pod.metadata.name}-{nested_text(volume, 'name')}", generated=True)
    return None


def nested_object(tree: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a nested object, or None."""
    value = tree.get(name)
    return value if isinstance(value, dict) else None


def nested_text(tree: Mapping[str, Any], name: str) -> str:
    """Return a nested string, or ""."""
    value = tree.get(name)
    return value if isinstance(value, str) else ""
