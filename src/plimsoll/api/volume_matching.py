"""Choice of existing PersistentVolumes for claims that wait for their first consumer.

The rules are those of kube-scheduler and the PersistentVolume controller: a volume that already refers to the
claim comes first; of the others the smallest that is large enough, available, of the requested class, volume
mode, access modes and attributes class, and matched by the claim's selector. Node affinity is compared with
the labels of one node.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.api.label_selection import (
    MATCH_EVERYTHING,
    CompiledLabelSelector,
    SelectorProblem,
    compile_label_selector,
)
from plimsoll.api.storage import AVAILABLE, PersistentVolume, PersistentVolumeClaim

#: Returns whether a volume is reachable from the node in question.
IsReachable: TypeAlias = Callable[[PersistentVolume], bool]


@dataclass(frozen=True, slots=True)
class MatchingVolumes:
    """Volumes that match a claim on some node."""

    prebound: tuple[PersistentVolume, ...]  #: refer to the claim, by name
    available: tuple[PersistentVolume, ...]  #: the smallest first, then by name

    def __iter__(self) -> Iterator[PersistentVolume]:
        yield from self.prebound
        yield from self.available

    def near(self, reachable: Iterable[PersistentVolume]) -> MatchingVolumes:
        """Return the choice if only these of the available volumes may be reachable; in the same order."""
        return MatchingVolumes(self.prebound, tuple(reachable))

    def choose(self, is_reachable: IsReachable, excluded: Container[str] = ()) -> PersistentVolume | None:
        """Return the volume for a node; a volume that refers to the claim is used, or none at all."""
        for volume in self.prebound:
            if volume.metadata.name not in excluded:
                return volume if is_reachable(volume) else None
        for volume in self.available:
            if volume.metadata.name not in excluded and is_reachable(volume):
                return volume
        return None


def volume_order(volume: PersistentVolume) -> tuple[int, str]:
    """Return the order in which volumes are considered: the smallest first, then by name."""
    return volume.size.nano, volume.metadata.name


def find_matching_volumes(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]
) -> MatchingVolumes | SelectorProblem:
    """Return the volumes of the claim's class that match it, or the error in its selector."""
    selector: CompiledLabelSelector = MATCH_EVERYTHING
    if claim.spec.selector is not None:
        compiled = compile_label_selector(claim.spec.selector)
        if isinstance(compiled, SelectorProblem):
            return compiled
        selector = compiled
    size, mode, modes = claim.size, claim.volume_mode, {*claim.spec.access_modes}
    storage_class, attributes_class = claim.storage_class, claim.spec.volume_attributes_class_name or ""
    prebound: list[PersistentVolume] = []
    available: list[PersistentVolume] = []
    for volume in volumes:
        is_own = volume.spec.claim_ref is not None
        if is_own and not volume.is_bound_to(claim):
            continue
        if volume.size < size or volume.volume_mode != mode:
            continue
        if (volume.spec.volume_attributes_class_name or "") != attributes_class:
            continue
        if volume.metadata.deletion_timestamp is not None:
            continue
        if is_own:
            prebound.append(volume)
        elif (
            volume.status.phase == AVAILABLE
            and volume.storage_class == storage_class
            and modes.issubset(volume.spec.access_modes)
            and selector.matches(volume.metadata.labels)
        ):
            available.append(volume)
    prebound.sort(key=lambda volume: volume.metadata.name)
    available.sort(key=volume_order)
    return MatchingVolumes(tuple(prebound), tuple(available))
