"""Results of a scheduling attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll.api.resource import AllocationResult
from plimsoll.api.storage import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule


@dataclass(frozen=True, slots=True)
class StaticBinding:
    """Existing volume that was chosen for a claim."""

    volume: PersistentVolume
    claim: PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class DynamicProvision:
    """Claim for which a volume is to be provisioned."""

    claim: PersistentVolumeClaim
    capacity: CSIStorageCapacity | None = None  #: where there is room for it, if that is published


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """Volumes for the claims of a pod that are not bound yet, on one node."""

    static_bindings: tuple[StaticBinding, ...] = ()
    dynamic_provisions: tuple[DynamicProvision, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.static_bindings or self.dynamic_provisions)


NO_VOLUMES = PodVolumes()


@dataclass(frozen=True, slots=True)
class Placement:
    """Node chosen for a pod, with the allocations of its claims and their charges."""

    pod_info: PodInfo
    row: int
    node: str
    #: New allocations by claim name, without claims that were allocated before.
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    charged_claims: tuple[ChargedClaim, ...] = ()
    feasible_nodes: int = 1  #: number of nodes that passed the filters
    volumes: PodVolumes = NO_VOLUMES  #: to be bound before the pod is

    @property
    def devices(self) -> tuple[str, ...]:
        """Newly allocated devices, as driver/pool/device."""
        return tuple(
            f"{result.driver}/{result.pool}/{result.device}"
            for allocation in self.allocations.values()
            for result in allocation.devices.results
        )


@dataclass(frozen=True, slots=True)
class FitError:
    """Reasons why no node fits, each with the number of nodes (0: about the pod itself).

    Counts are per reason, not per node, so that it stays small in large clusters.
    """

    pod_info: PodInfo
    nodes: int  #: number of nodes in the cluster
    reasons: tuple[tuple[NodeReason, int], ...]
    #: Rows where removing other pods may help; None if there are none.
    resolvable: Mask | None = None
    #: Whether an error ended the attempt: nodes that were not evaluated may fit, so the pod is tried again.
    is_error: bool = False

    @property
    def rules(self) -> frozenset[Rule]:
        """Rules that rejected nodes or the pod."""
        return frozenset(reason.rule for reason, _ in self.reasons)
