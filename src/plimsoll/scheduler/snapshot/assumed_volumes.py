"""PersistentVolumes and claims that pods in flight are about to bind.

A volume that was chosen for a claim refers to that claim, and a claim for which a volume is to be provisioned
has its selected node, before either is written. What the API has takes precedence: a volume that refers to
another claim, a claim with a volume or another selected node. Pods that share a claim share what is assumed
for it; it lasts until the last of them is released.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from plimsoll.api.meta import ObjectReference
from plimsoll.api.storage import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from plimsoll.scheduler.result import PodVolumes

_Key: TypeAlias = "tuple[str, str]"


@dataclass(slots=True)
class _AssumedVolume:
    claim: PersistentVolumeClaim
    pods: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _AssumedClaim:
    uid: str
    node: str
    pods: set[str] = field(default_factory=set)


K = TypeVar("K")
V = TypeVar("V", _AssumedVolume, _AssumedClaim)


class AssumedVolumes:
    """Assumed volumes by name and assumed claims by namespace and name."""

    __slots__ = ("_claims", "_pods", "_volumes")

    def __init__(self) -> None:
        self._volumes: dict[str, _AssumedVolume] = {}
        self._claims: dict[_Key, _AssumedClaim] = {}
        self._pods: dict[str, PodVolumes] = {}

    def __len__(self) -> int:
        """Return the number of volumes and claims for which something is assumed."""
        return len(self._volumes) + len(self._claims)

    def volume(self, known: PersistentVolume) -> PersistentVolume:
        """Return a volume with the claim that is assumed for it."""
        assumed = self._volumes.get(known.metadata.name)
        if assumed is None:
            return known
        if known.spec.claim_ref is not None and not known.is_bound_to(assumed.claim):
            return known
        return replace(
            known,
            spec=replace(
                known.spec,
                claim_ref=ObjectReference.to_version(assumed.claim.metadata, "PersistentVolumeClaim"),
            ),
        )

    def claim(self, known: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """Return a claim with the selected node that is assumed for it."""
        assumed = self._claims.get(known.metadata.key)
        if assumed is None or assumed.uid != known.metadata.uid:
            return known
        if known.spec.volume_name or known.selected_node is not None:
            return known
        annotations = {**known.metadata.annotations, SELECTED_NODE: assumed.node}
        return replace(known, metadata=replace(known.metadata, annotations=annotations))

    def entries(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Return, for each volume and claim, the claim UID or the node assumed for it, and the pods."""
        volumes = {
            f"volume {name}": (each.claim.metadata.uid, tuple(sorted(each.pods)))
            for name, each in self._volumes.items()
        }
        claims = {
            f"claim {namespace}/{name}": (each.node, tuple(sorted(each.pods)))
            for (namespace, name), each in self._claims.items()
        }
        return volumes | claims

    def assume(self, pod: str, volumes: PodVolumes, node: str) -> None:
        """Assume the volumes that were chosen for a pod."""
        if not volumes:
            return
        self._pods[pod] = volumes
        for binding in volumes.static_bindings:
            name = binding.volume.metadata.name
            known_volume = self._volumes.get(name)
            if known_volume is None or known_volume.claim.metadata.uid != binding.claim.metadata.uid:
                known_volume = self._volumes[name] = _AssumedVolume(binding.claim)
            known_volume.pods.add(pod)
        for provision in volumes.dynamic_provisions:
            meta = provision.claim.metadata
            known_claim = self._claims.get(meta.key)
            if known_claim is None or (known_claim.uid, known_claim.node) != (meta.uid, node):
                known_claim = self._claims[meta.key] = _AssumedClaim(meta.uid, node)
            known_claim.pods.add(pod)

    def release(self, pod: str) -> bool:
        """Drop what is assumed for a pod and for no other; return whether there was anything."""
        volumes = self._pods.pop(pod, None)
        if volumes is None:
            return False
        for binding in volumes.static_bindings:
            _release(self._volumes, binding.volume.metadata.name, pod)
        for provision in volumes.dynamic_provisions:
            _release(self._claims, provision.claim.metadata.key, pod)
        return True


def _release(assumed: dict[K, V], key: K, pod: str) -> None:
    entry = assumed.get(key)
    if entry is not None:
        entry.pods.discard(pod)
        if not entry.pods:
            del assumed[key]
