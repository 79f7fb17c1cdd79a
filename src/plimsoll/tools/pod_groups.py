"""Pod groups in the tools: scheduling attempts of a whole group, and their summary."""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.api.scheduling import PodGroup
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.devices import NewId
from plimsoll.scheduler.gang.cycle import GroupResult, schedule_group
from plimsoll.scheduler.gang.members import group_key, hold_reason
from plimsoll.scheduler.gang.search import STEPS
from plimsoll.scheduler.node_selection import NominationCheck
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.snapshot.group_members import GroupKey
from plimsoll.tools.cluster_state import ClusterState


def pending_members(cluster_state: ClusterState, key: GroupKey) -> list[Pod]:
    """Return the pods of a group that have no node, in scheduling order."""
    members = [pod for pod in cluster_state.pending if group_key(pod, cluster_state.gates) == key]
    return sorted(
        members, key=lambda pod: (-pod.priority, pod.metadata.creation_timestamp or "", pod.metadata.name)
    )


def attempt_group(
    cluster_state: ClusterState,
    key: GroupKey,
    settings: SchedulerProfile | ProfileSet,
    new_id: NewId,
    nominations: NominationCheck | None = None,
    steps: int = STEPS,
) -> GroupResult | NodeReason:
    """Schedule the pending pods of a group in memory; return a reason if it must not be attempted yet."""
    snapshot, members = cluster_state.snapshot, pending_members(cluster_state, key)
    reason = hold_reason(key, snapshot, {pod_key(pod) for pod in members})
    if reason is not None:
        return reason
    group = snapshot.find(PodGroup, *key)
    assert group is not None, "a missing group is a reason"
    ready = [pod for pod in members if not pod.spec.scheduling_gates]
    return schedule_group(group, ready, snapshot, settings.for_pod, new_id, nominations, steps=steps)


def summarize_group(key: GroupKey, result: GroupResult) -> str:
    """Describe a group that is not scheduled: how many of the needed pods fit at the same time."""
    name = "/".join(key)
    if result.reason is not None:
        return f"pod group {name}: {render(result.reason)}"
    text = f"pod group {name}: {len(result.placements)} of {max(result.needed, 1)} needed pods fit together"
    return f"{text}; the search ended at its limit" if result.gave_up else text
