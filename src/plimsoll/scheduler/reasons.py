"""Reasons why a pod does not fit on a node, as values; `render` formats them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from plimsoll.ledger.verdict import VerdictCode


class Rule(Enum):
    """Scheduling rules; the value is the name of kube-scheduler's plugin, as in metrics and messages."""

    SCHEDULING_GATES = "SchedulingGates"
    GANG = "GangScheduling"
    NODE_NAME = "NodeName"
    UNSCHEDULABLE = "NodeUnschedulable"
    TAINTS = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    PORTS = "NodePorts"
    RESOURCES = "NodeResourcesFit"
    VOLUME_RESTRICTIONS = "VolumeRestrictions"
    VOLUME_LIMITS = "NodeVolumeLimits"
    VOLUME_BINDING = "VolumeBinding"
    VOLUME_ZONE = "VolumeZone"
    SPREAD = "PodTopologySpread"
    INTER_POD = "InterPodAffinity"
    DECLARED_FEATURES = "NodeDeclaredFeatures"
    MIXED_ADVERTISERS = "MixedAdvertisers"
    DEVICES = "DynamicResources"
    UNSUPPORTED = "Unsupported"
    PREEMPTION = "DefaultPreemption"


class ReasonMessage(Enum):
    """Base class of the messages of a rule: kube-scheduler's texts, as format strings."""


class SharedMessage(ReasonMessage):
    """Messages that several rules use."""

    INVALID_POD = "parsing pod: {text}"
    TEXT = "{text}"  #: formatted by the ledger or the allocator


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Reason why a node was rejected.

    `cause` is the underlying value, if any: a `Reason` of the ledger with its numbers, or a `Refusal` or an
    `AllocationFault` of the allocator.
    """

    rule: Rule
    message: ReasonMessage
    code: VerdictCode
    facts: Mapping[str, object] = field(default_factory=dict)
    cause: object = None

    @staticmethod
    def unresolvable(rule: Rule, message: ReasonMessage, **facts: object) -> NodeReason:
        """Return a reason that removing other pods does not resolve."""
        return NodeReason(rule, message, VerdictCode.UNRESOLVABLE, facts)

    @property
    def resolvable(self) -> bool:
        """True if removing other pods may resolve it."""
        return self.code is VerdictCode.UNSCHEDULABLE


def render(reason: NodeReason) -> str:
    """Format a reason as in FailedScheduling events."""
    template: str = reason.message.value
    return template.format_map(reason.facts)


class ReasonCounts:
    """Number of nodes by reason; reasons with equal texts are one."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[NodeReason, int]] = {}

    def add(self, reason: NodeReason, nodes: int = 1) -> None:
        text = render(reason)
        first, count = self._counts.get(text, (reason, 0))
        self._counts[text] = first, count + nodes

    def items(self) -> list[tuple[NodeReason, int]]:
        """Return the first reason of each text, with the number of nodes."""
        return list(self._counts.values())
