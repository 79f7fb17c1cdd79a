"""PersistentVolumeClaims of a pod's volumes: named, or generated for the pod (`ephemeral`); volumes on which
the placement of a pod depends.

Volumes are untyped trees; a field of the wrong type is treated as absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Container, Pod, PodSpec

_CLAIM, _EPHEMERAL = "persistentVolumeClaim", "ephemeral"
#: Kinds of volumes that use a claim.
CLAIM_VOLUMES = frozenset({_CLAIM, _EPHEMERAL})
#: Keys of volumes that every node provides alike, such as the one with the service account token.
_EVERYWHERE = frozenset({"name", "configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"})


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


def placement_volumes(spec: PodSpec) -> tuple[dict[str, Any], ...]:
    """Return the volumes on which the placement of a pod may depend."""
    return tuple(volume for volume in spec.volumes if not volume.keys() <= _EVERYWHERE)


def placement_spec(spec: PodSpec) -> PodSpec:
    """Return the spec of a pod without volumes and mounts on which its placement does not depend.

    Admission adds a volume with a random name to every pod: without it, pods of a workload are equal.
    """
    if not spec.volumes:
        return spec
    return replace(
        spec,
        volumes=placement_volumes(spec),
        containers=_without_mounts(spec.containers),
        init_containers=_without_mounts(spec.init_containers),
    )


def _without_mounts(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(each, volume_mounts=()) if each.volume_mounts else each for each in containers)


def nested_object(tree: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a nested object, or None."""
    value = tree.get(name)
    return value if isinstance(value, dict) else None


def nested_text(tree: Mapping[str, Any], name: str) -> str:
    """Return a nested string, or ""."""
    value = tree.get(name)
    return value if isinstance(value, str) else ""
