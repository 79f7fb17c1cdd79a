"""START HERE: `plan_preemption` selects victims for an unschedulable pod.

A pure function of a `FitError`, a snapshot, a profile, disruption budgets and nominations. It checks whether
the pod may preempt, finds the nodes on which it would fit without lower-priority pods, restores as many of
these as possible (`candidates`, `victims`), and chooses the node with the least disruption. The snapshot is
changed temporarily and restored (`simulated_node`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.devices import NewId
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.preemption.candidates import CandidateLimits, find_candidates
from plimsoll.scheduler.preemption.importance import started_at
from plimsoll.scheduler.preemption.node_filter import NodeFilter
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.preemption.result import NoPreemption, Preemption, PreemptionMessage
from plimsoll.scheduler.preemption.victims import Victims
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError
from plimsoll.scheduler.snapshot.snapshot import Snapshot

NEVER = "Never"
#: Condition of a victim, and its reason.
DISRUPTION_TARGET = "DisruptionTarget"
BY_SCHEDULER = "PreemptionByScheduler"
#: Added to priorities before they are summed, so that the sum grows with the number of victims.
_PRIORITY_OFFSET = 2**31

_DISABLED = NodeReason(Rule.PREEMPTION, PreemptionMessage.DISABLED, VerdictCode.UNRESOLVABLE)
_NOT_HELPFUL = NodeReason(Rule.PREEMPTION, PreemptionMessage.NOT_HELPFUL, VerdictCode.UNRESOLVABLE)


def plan_preemption(
    fit_error: FitError,
    snapshot: Snapshot,
    settings: SchedulerProfile,
    budgets: Iterable[PodDisruptionBudget] = (),
    new_id: NewId | None = None,
    nominations: Nominations | None = None,
    *,
    offset: int = 0,
    limits: CandidateLimits | None = None,
) -> Preemption | NoPreemption:
    """Return the node and the victims for an unschedulable pod, or why preemption does not help.

    `offset` is the position to start at; callers advance it, so that all nodes take turns.
    """
    pod_info = fit_error.pod_info
    if not settings.preemption:
        return NoPreemption(fit_error.nodes, ((_DISABLED, 0),), clears_nomination=False)
    ineligible = ineligibility_reason(fit_error, snapshot, nominations)
    if ineligible is not None:
        return NoPreemption(fit_error.nodes, ((ineligible, 0),), clears_nomination=False)
    if fit_error.resolvable is None or not fit_error.resolvable.any():
        return NoPreemption(fit_error.nodes, ((_NOT_HELPFUL, fit_error.nodes),))

    node_filter = NodeFilter(pod_info, snapshot, settings, new_id)
    candidates = find_candidates(
        node_filter, fit_error.resolvable, DisruptionBudgets(budgets), nominations, offset, limits
    )
    if not candidates.found:
        reasons = candidates.reasons
        if candidates.rejected < fit_error.nodes:
            reasons += ((_NOT_HELPFUL, fit_error.nodes - candidates.rejected),)
        return NoPreemption(fit_error.nodes, reasons)

    chosen = choose_victims(candidates.found)
    node = snapshot.node(chosen.row).metadata.name
    lower_nominated = nominations.lower_at(node, pod_info.priority) if nominations is not None else ()
    return Preemption(
        node,
        chosen.row,
        chosen.pods,
        chosen.pdb_violations,
        pod_info.pod,
        tuple(lower_nominated),
        chosen.groups,
    )


def ineligibility_reason(
    fit_error: FitError, snapshot: Snapshot, nominations: Nominations | None = None
) -> NodeReason | None:
    """Return why a pod may not preempt: its policy, or victims that are still terminating."""
    pod = fit_error.pod_info.pod
    if pod.spec.preemption_policy == NEVER:
        return NodeReason(Rule.PREEMPTION, PreemptionMessage.POLICY_NEVER, VerdictCode.UNSCHEDULABLE)
    nomination = nominations.get(fit_error.pod_info.key) if nominations is not None else None
    node = nomination.node if nomination is not None else pod.status.nominated_node_name
    row = snapshot.row_of(node) if node else None
    if row is None or fit_error.resolvable is None or not fit_error.resolvable[row]:
        return None  # no nomination, or one that no longer helps
    victims = nomination.victims if nomination is not None else frozenset()
    for other in snapshot.pods_at(row):
        is_lower = other.priority < fit_error.pod_info.priority
        if (is_lower and (pod_key(other) in victims or is_preempted(other))) or (
            snapshot.is_stale_placeholder(row, other)  # of a victim that is gone
        ):
            return NodeReason(
                Rule.PREEMPTION, PreemptionMessage.VICTIMS_TERMINATING, VerdictCode.UNSCHEDULABLE
            )
    return None


def is_preempted(pod: Pod) -> bool:
    """Return whether a pod is terminating because it was preempted."""
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == BY_SCHEDULER
    return False


def choose_victims(candidates: Sequence[Victims]) -> Victims:
    """Return the candidate with the lowest cost; the first of equal ones."""
    chosen, lowest = candidates[0], _disruption_cost(candidates[0])
    for candidate in candidates[1:]:
        cost = _disruption_cost(candidate)
        # The last criterion is the latest start time of the most important victims.
        if cost[0] < lowest[0] or (cost[0] == lowest[0] and cost[1] > lowest[1]):
            chosen, lowest = candidate, cost
    return chosen


def _disruption_cost(victims: Victims) -> tuple[tuple[int, int, int, int], str]:
    """Return budget violations, highest and summed priority and number of victims; and the start time of
    the oldest victim of that priority.
    """
    priorities = [pod.priority for pod in victims.pods]
    highest = max(priorities)
    numbers = (
        victims.pdb_violations,
        highest,
        sum(each + _PRIORITY_OFFSET for each in priorities),
        len(priorities),
    )
    oldest = min(started_at(pod) for pod in victims.pods if pod.priority == highest)
    return numbers, oldest
