"""Results of a scheduling attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll.api.resource import AllocationResult
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule


@dataclass(frozen=True, slots=True)
class Placement:
    """Node chosen for a pod, with the allocations of its claims and their charges."""

    pod_info: PodInfo
    row: int
    node: str
    #: Claim name -> what it is given; claims that had devices before are not in it.
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    charged_claims: tuple[ChargedClaim, ...] = ()
    feasible_nodes: int = 1  #: how many nodes passed the filters
    searched_nodes: int = 0  #: how many nodes were searched for devices


@dataclass(frozen=True, slots=True)
class FitError:
    """Reasons why no node fits, each with the number of nodes (0: about the pod itself).

    Counts are per reason, not per node, so that it stays small in large clusters.
    """

    pod_info: PodInfo
    nodes: int  #: how many nodes there are
    reasons: tuple[tuple[NodeReason, int], ...]
    #: The places where it would fit if other pods were gone; None: there are none.
    resolvable: Mask | None = None

    @property
    def rules(self) -> frozenset[Rule]:
        """Rules that rejected nodes or the pod."""
        return frozenset(reason.rule for reason, _ in self.reasons)
