"""Reasons why a pod does not fit on a node, as values.

`Rule` has kube-scheduler's plugin names, which users and metrics know; `ReasonMessage` its messages. Only
`render` builds text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from plimsoll.ledger.verdict import VerdictCode


class Rule(Enum):
    """Scheduling rules; the value is the name of kube-scheduler's plugin for it."""

    SCHEDULING_GATES = "SchedulingGates"
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
    DEVICES = "DynamicResources"
    UNSUPPORTED = "Unsupported"
    PREEMPTION = "DefaultPreemption"


class ReasonMessage(Enum):
    """Messages about a pod on a node, or about a pod itself, with facts in braces."""

    WRONG_NAME = "node(s) didn't match the requested node name"
    UNSCHEDULABLE = "node(s) were unschedulable"
    TAINT = "node(s) had untolerated taint(s)"
    NODE_AFFINITY = "node(s) didn't match Pod's node affinity/selector"
    NOT_NAMED = "node(s) didn't satisfy plugin(s) [{rule}]"
    AFFINITY_CONFLICT = "pod affinity terms conflict"
    PORTS = "node(s) didn't have free ports for the requested pod ports"
    INSUFFICIENT = "Insufficient {resource}"
    TOO_MANY_PODS = "Too many pods"
    DISK_IN_USE = "node(s) had no available disk"
    VOLUME_IN_USE = (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use "
        "by another pod"
    )
    TOO_MANY_VOLUMES = "node(s) exceed max volume count"
    VOLUME_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
    VOLUME_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    VOLUME_ZONE = "node(s) had no available volume zone"
    VOLUME_MISSING = 'persistentvolume "{volume}" not found'
    VOLUME_CLAIM_MISSING = 'persistentvolumeclaim "{claim}" not found'
    VOLUME_CLAIM_UNNAMED = "PersistentVolumeClaim had no name"
    VOLUME_CLAIM_NOT_MADE = (
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "{claim}"'
    )
    VOLUME_CLAIM_LOST = 'persistentvolumeclaim "{claim}" bound to non-existent persistentvolume "{volume}"'
    VOLUME_CLAIM_DELETED = 'persistentvolumeclaim "{claim}" is being deleted'
    VOLUME_CLAIM_NOT_OWNED = "PVC {claim} was not created for pod {pod} (pod is not owner)"
    VOLUME_CLAIM_UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
    VOLUME_CLAIM_WAITS = (
        'persistentvolumeclaim "{claim}" of storage class "{storage_class}" waits for its first consumer: '
        "this scheduler places pods by volumes that are bound, it does not choose volumes"
    )
    VOLUME_CLASS_MODELESS = 'VolumeBindingMode not set for StorageClass "{storage_class}"'
    FEATURES = "node(s) didn't match Pod's required features"
    NOT_IMPLEMENTED = "{field} {value} is not implemented by this scheduler"
    SPREAD = "node(s) didn't match pod topology spread constraints"
    SPREAD_NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
    POD_AFFINITY = "node(s) didn't match pod affinity rules"
    POD_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
    EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"
    UNREADABLE = "parsing pod: {text}"
    CANNOT_ALLOCATE = "cannot allocate all claims"
    GAVE_UP = "gave up the search for devices after {steps} steps"
    CLAIM_ELSEWHERE = "resourceclaim not available on the node"
    TOLD = "{text}"  #: in the words of the ledger or of the allocator
    CLAIM_IN_USE = "resourceclaim in use"
    CLAIM_PENDING = "resource claim {claim} is in the process of being allocated"
    CLAIM_MISSING = 'could not find ResourceClaim "{claim}"'
    CLAIM_NOT_MADE = 'pod "{pod}": ResourceClaim not created yet'
    CLAIM_NOT_OWNED = "ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)"
    CLAIM_DELETED = 'resourceclaim "{claim}" is being deleted'
    NO_CLASS = "request {request}: device class {device_class} does not exist"
    NO_VICTIMS = "No preemption victims found for incoming pod"
    NOT_HELPFUL = "Preemption is not helpful for scheduling"
    NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
    VICTIMS_LEAVING = "not eligible due to a terminating pod on the nominated node."


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Reason why a node was rejected. `cause` is the underlying value, if any: a ledger `Reason` with its
    numbers, a `Refusal` or a `Fault` of the allocator.
    """

    rule: Rule
    message: ReasonMessage
    code: VerdictCode
    facts: Mapping[str, object] = field(default_factory=dict)
    cause: object = None

    @property
    def resolvable(self) -> bool:
        """Whether removing other pods may resolve it."""
        return self.code is VerdictCode.UNSCHEDULABLE


def render(reason: NodeReason) -> str:
    """Format a reason as in FailedScheduling events."""
    return reason.message.value.format_map(reason.facts)
