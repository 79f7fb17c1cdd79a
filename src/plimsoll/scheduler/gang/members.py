"""Members of pod groups in a snapshot, and when a group may be attempted (kube-scheduler's PreEnqueue)."""

from __future__ import annotations

from collections.abc import Set

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import pod_group_of
from plimsoll.api.scheduling import PodGroup
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule
from plimsoll.scheduler.snapshot.group_members import GroupKey, GroupMembers
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class GangMessage(ReasonMessage):
    """Messages of GangScheduling."""

    GROUP_MISSING = 'waiting for pods\'s pod group "{group}" to appear in scheduling queue'
    GROUPS_UNREADABLE = "the scheduler has no permission to list PodGroups"
    TOO_FEW_PODS = "waiting for minCount pods from a gang to appear in scheduling queue"
    WAITING = "waiting for minCount pods from a gang to be scheduled"
    UNSCHEDULABLE = "pod group is unschedulable"
    SCHEDULER_NAMES = (
        "all pods in a single pod group should have the same .spec.schedulerName set, "
        'got: "{one}" and "{other}"'
    )
    NO_DOMAIN = 'no node has the label "{key}" of the pod group\'s topology constraint'
    SEVERAL_DOMAINS = "more than 1 domain found for pod group: {one}, {other}"
    NO_DOMAIN_OF_POD = "no topology domain found for pod {pod}"


def group_key(pod: Pod, gates: Gates) -> GroupKey | None:
    """Return the key of the group that a pod is scheduled with, or None."""
    name = pod_group_of(pod)
    return (pod.metadata.namespace, name) if name and gates.enabled("GenericWorkload") else None


def min_count(group: PodGroup, gates: Gates) -> int:
    """Return how many pods of a group must be scheduled together; 0 if they are independent."""
    return group.min_count if gates.enabled("GangScheduling") else 0


def hold_reason(key: GroupKey, snapshot: Snapshot, queued: Set[str]) -> NodeReason | None:
    """Return why a group must not be attempted yet; `queued` are the keys of its pods without a node."""
    if PodGroup in snapshot.unreadable:
        return NodeReason.unresolvable(Rule.GANG, GangMessage.GROUPS_UNREADABLE)
    group = snapshot.find(PodGroup, *key)
    if group is None:
        return NodeReason.unresolvable(Rule.GANG, GangMessage.GROUP_MISSING, group=key[1])
    scheduled = snapshot.index(GroupMembers).of(key).keys()
    if len(scheduled | queued) < min_count(group, snapshot.gates):
        return NodeReason.unresolvable(Rule.GANG, GangMessage.TOO_FEW_PODS)
    return None
