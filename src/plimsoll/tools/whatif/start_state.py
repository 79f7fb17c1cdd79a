"""`StartState`: placements before any change, from which those of branches are derived.

A pod that has a node in the beginning and that a branch does not change has the same placement there; only
the others are read. `Whatif.state` reads all pods and is what the result equals.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from plimsoll.tools.whatif.outcome import Name, PodPlacements
from plimsoll.tools.whatif.whatif import Branch, WhatifOperations


@dataclass(frozen=True, slots=True)
class BranchState:
    """Placements in a branch, and the numbers of pods."""

    placements: PodPlacements
    names: Set[Name]  #: pods that may be pending, or differ from the beginning
    placed: int
    pending: int  #: pods without a node that are not being deleted


class StartState:
    """Placement of every pod of a cluster before a branch of it begins."""

    def __init__(self, operations: WhatifOperations) -> None:
        self.placements = operations.state()
        self._unbound = {name for name, placement in self.placements.items() if not placement.node}

    def derive(self, branch: Branch) -> BranchState:
        """Return the state of a branch that began in this state."""
        names = self._unbound | branch.changed_pods()
        placements = dict(self.placements)
        placed, pending = len(placements) - sum(name in placements for name in names), 0
        for name in sorted(names):
            placement = branch.placement(name)
            if placement is None:
                placements.pop(name, None)
                continue
            placements[name] = placement
            if placement.node:
                placed += 1
            elif branch.cluster_state.pod(name[1], name[0]).metadata.deletion_timestamp is None:
                pending += 1
        return BranchState(placements, names, placed, pending)
