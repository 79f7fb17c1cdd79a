"""`summarize_pending` and `explain_pending`: one line for each pending pod.

Pods with equal signatures are evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import simulated_ids
from plimsoll.scheduler.gang.cycle import GroupResult
from plimsoll.scheduler.gang.members import group_key
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.group_members import GroupKey
from plimsoll.scheduler.unschedulable_cache import pod_signature
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.verdict import PendingList
from plimsoll.tools.pod_groups import attempt_group, summarize_group


def summarize_pending(
    cluster_state: ClusterState,
    *,
    namespace: str = "",
    settings: SchedulerProfile | ProfileSet | None = None,
    pods: Iterable[Pod] | None = None,
) -> list[tuple[Pod, str]]:
    """Return each pending pod (or each of `pods`) with its reason, by name."""
    settings = settings or SchedulerProfile.default()
    known: dict[bytes, str] = {}
    candidates = cluster_state.pending if pods is None else pods
    pending = [pod for pod in candidates if namespace in ("", pod.metadata.namespace)]
    pending.sort(key=lambda pod: pod.metadata.key)
    groups: dict[GroupKey, GroupResult | NodeReason] = {}
    found: list[tuple[Pod, str]] = []
    for pod in pending:
        key = None if pod.spec.scheduling_gates else group_key(pod, cluster_state.gates)
        if key is not None and key not in groups:
            groups[key] = attempt_group(cluster_state, key, settings, simulated_ids())
        why = _summarize_member(pod, key, groups[key]) if key is not None else ""
        found.append((pod, why or _summarize(cluster_state, pod, settings.for_pod(pod), known)))
    return found


def _summarize_member(pod: Pod, key: GroupKey, result: GroupResult | NodeReason) -> str:
    """Return the reason for a pod of a group, or "" if it is about the pod alone."""
    if isinstance(result, NodeReason):
        return render(result)
    if not result.is_scheduled:
        return summarize_group(key, result)
    is_placed = any(each.pod_info.key == pod_key(pod) for each in result.placements)
    return "fits now; waiting for its scheduler" if is_placed else ""


def _summarize(
    cluster_state: ClusterState, pod: Pod, settings: SchedulerProfile, known: dict[bytes, str]
) -> str:
    if pod.spec.scheduling_gates:
        return f"scheduling gates: {', '.join(gate.name for gate in pod.spec.scheduling_gates)}"
    pod_info = read_pod_info(pod, cluster_state.snapshot, settings)
    if isinstance(pod_info, NodeReason):
        return render(pod_info)
    signature = pod_signature(pod_info)
    if signature not in known:
        outcome = schedule_one(pod_info, cluster_state.snapshot, settings, simulated_ids())
        if isinstance(outcome, Placement):
            known[signature] = "fits now; waiting for its scheduler"
        else:
            known[signature] = render_fit_error(outcome)
    return known[signature]


def explain_pending(
    cluster_state: ClusterState, *, namespace: str = "", settings: SchedulerProfile | ProfileSet | None = None
) -> PendingList:
    """Return all pending pods, grouped by reason."""
    groups: dict[str, list[str]] = {}
    for pod, why in summarize_pending(cluster_state, namespace=namespace, settings=settings):
        groups.setdefault(why, []).append(pod.metadata.full_name)
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return PendingList(tuple((why, tuple(pods)) for why, pods in ranked))
