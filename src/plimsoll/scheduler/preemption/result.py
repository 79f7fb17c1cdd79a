"""What comes out of preemption: who has to go for a pod, or why nobody need.

Owns the two values. A `Preemption` is carried out by others, step by step and as often as it takes: the pod
is nominated to the node; pods of lower priority that were promised the node (`outbid`) have their promise
withdrawn; each victim is told why it goes (condition DisruptionTarget) and deleted; when they are gone, the
pod is tried again.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, render


class PreemptionMessage(ReasonMessage):
    """Messages of DefaultPreemption."""

    NO_VICTIMS = "No preemption victims found for incoming pod"
    NOT_HELPFUL = "Preemption is not helpful for scheduling"
    POLICY_NEVER = "not eligible due to preemptionPolicy=Never."
    VICTIMS_TERMINATING = "not eligible due to a terminating pod on the nominated node."


_PREFIX = "preemption: "
_NODES = "0/{nodes} nodes are available: {reasons}."


@dataclass(frozen=True, slots=True)
class Preemption:
    """A pod fits on a node once these pods are gone, the most important of them first."""

    node: str
    row: int
    victims: tuple[Pod, ...]
    broken_budgets: int  #: how many victims go although a disruption budget says otherwise
    pod: Pod  #: for whom
    outbid: tuple[Pod, ...] = ()  #: pods of lower priority that were promised the node


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Nobody goes: for each reason, on how many nodes it holds (0: it is about the pod itself)."""

    nodes: int
    reasons: tuple[tuple[NodeReason, int], ...]
    #: Whether a node the pod was promised is of no use to it any more.
    clears: bool = True

    @property
    def text(self) -> str:
        """The part about preemption in the pod's condition; empty where there are no nodes."""
        if not self.nodes:
            return ""
        for reason, count in self.reasons:
            if not count:
                return _PREFIX + render(reason)
        counted = sorted(f"{count} {render(reason)}" for reason, count in self.reasons)
        return _PREFIX + _NODES.format(nodes=self.nodes, reasons=", ".join(counted))
