"""Results of preemption.

A `Preemption` is executed in idempotent steps (`process/evictor.py`): the pod is nominated to the node;
nominations of lower-priority pods are cleared; each victim gets the condition DisruptionTarget and is
deleted; once they are gone, the pod is scheduled again.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.scheduling import PodGroup
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, render


class PreemptionMessage(ReasonMessage):
    """Messages of DefaultPreemption."""

    NO_VICTIMS = "No preemption victims found for incoming pod"
    NOT_HELPFUL = "Preemption is not helpful for scheduling"
    POLICY_NEVER = "not eligible due to preemptionPolicy=Never."
    DISABLED = "disabled in the scheduler profile."
    VICTIMS_TERMINATING = "not eligible due to a terminating pod on the nominated node."


_PREFIX = "preemption: "
_NODES = "0/{nodes} nodes are available: {reasons}."


@dataclass(frozen=True, slots=True)
class Preemption:
    """Node on which a pod fits once the victims are gone, the most important victim first."""

    node: str
    row: int
    victims: tuple[Pod, ...]
    pdb_violations: int  #: number of victims that violate a disruption budget
    pod: Pod  #: preemptor
    lower_nominated: tuple[Pod, ...] = ()  #: pods of lower priority nominated to the node
    groups: tuple[PodGroup, ...] = ()  #: groups that are preempted as a whole; their pods may be elsewhere
    group: PodGroup | None = None  #: group of the preemptor, if it preempts as a whole

    @property
    def preemptor_type(self) -> str:
        """Kind of the preemptor as kube-scheduler names it in messages."""
        return "pod" if self.group is None else "podgroup"


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Reasons why no pod is preempted, with the number of nodes (0: about the pod itself)."""

    nodes: int
    reasons: tuple[tuple[NodeReason, int], ...]
    clears_nomination: bool = True  #: whether the pod's nomination is to be cleared

    @property
    def text(self) -> str:
        """Preemption part of the pod's condition; empty without nodes."""
        if not self.nodes:
            return ""
        for reason, count in self.reasons:
            if not count:
                return _PREFIX + render(reason)
        counted = sorted(f"{count} {render(reason)}" for reason, count in self.reasons)
        return _PREFIX + _NODES.format(nodes=self.nodes, reasons=", ".join(counted))
