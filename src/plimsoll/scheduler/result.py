"""What comes out of an attempt: a place for a pod, or why there is none.

Owns `Placement` (assumed on the snapshot, then written down by `bind`) and `Unplaced`, whose numbers are
per reason, not per node, so that it stays small however large the cluster is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll.api.resource import AllocationResult
from plimsoll.ledger.claims import Bill
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod goes to a node: which devices its waiting claims get there, and what its claims charge."""

    pod_info: PodInfo
    row: int
    node: str
    #: Claim name -> what it is given; claims that had devices before are not in it.
    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    bills: tuple[Bill, ...] = ()
    feasible_nodes: int = 1  #: how many nodes passed the filters
    searched_nodes: int = 0  #: how many nodes were searched for devices


@dataclass(frozen=True, slots=True)
class FitError:
    """A pod has no place: for each reason, on how many nodes it holds (0: it is about the pod itself)."""

    pod_info: PodInfo
    nodes: int  #: how many nodes there are
    reasons: tuple[tuple[NodeReason, int], ...]
    #: The places where it would fit if other pods were gone; None: there are none.
    resolvable: Mask | None = None

    @property
    def rules(self) -> frozenset[Rule]:
        """The rules that stood in the way."""
        return frozenset(reason.rule for reason, _ in self.reasons)
