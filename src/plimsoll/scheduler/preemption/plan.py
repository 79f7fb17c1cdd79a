"""START HERE: `plan_preemption` finds pods that make room for one of higher priority.

A pure function: an `Unplaced`, a snapshot, settings, disruption budgets and promises in; a `Preemption` or a
`NoPreemption` out. The story: may the pod preempt at all; on which nodes would it fit if all pods below it
were gone, and who of them could stay (`candidates`, `victims`); which of these nodes loses least. The
snapshot is changed on the way and is as it was in the end (`hypothesis`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.devices import NewId
from plimsoll.scheduler.preemption.budgets import Budgets
from plimsoll.scheduler.preemption.candidates import CandidateLimits, find_candidates
from plimsoll.scheduler.preemption.importance import priority_of, started_at
from plimsoll.scheduler.preemption.node_filter import Examination
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.preemption.result import NoPreemption, Preemption, PreemptionMessage
from plimsoll.scheduler.preemption.victims import Victims
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError
from plimsoll.scheduler.snapshot.snapshot import Snapshot

NEVER = "Never"
#: The condition of a pod that has to go, and its reason where a scheduler wants it to.
DISRUPTION_TARGET = "DisruptionTarget"
BY_SCHEDULER = "PreemptionByScheduler"
#: Added to priorities before they are summed up, so that more victims never sum up to less.
_LIFT = 2**31

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
    """Whom to remove, and from which node, for a pod without a place; or why that would not help.

    `offset` says at which node to begin; whoever calls lets it go round, so that all nodes take turns.
    """
    pod_info = fit_error.pod_info
    barred = why_not_eligible(fit_error, snapshot, nominations)
    if barred is not None:
        return NoPreemption(fit_error.nodes, ((barred, 0),), clears=False)
    if fit_error.resolvable is None or not fit_error.resolvable.any():
        return NoPreemption(fit_error.nodes, ((_NOT_HELPFUL, fit_error.nodes),))

    examination = Examination(pod_info, snapshot, settings, new_id)
    candidates = find_candidates(
        examination, fit_error.resolvable, Budgets(budgets), nominations, offset, limits
    )
    if not candidates.found:
        reasons = candidates.reasons
        if candidates.seen < fit_error.nodes:
            reasons += ((_NOT_HELPFUL, fit_error.nodes - candidates.seen),)
        return NoPreemption(fit_error.nodes, reasons)

    chosen = choose_victims(candidates.found)
    node = snapshot.node(chosen.row).metadata.name
    outbid = nominations.lower_at(node, pod_info.priority) if nominations is not None else ()
    return Preemption(node, chosen.row, chosen.pods, chosen.broken, pod_info.pod, tuple(outbid))


def why_not_eligible(
    fit_error: FitError, snapshot: Snapshot, nominations: Nominations | None = None
) -> NodeReason | None:
    """Why a pod may not preempt now: it never does, or pods are already leaving to make room for it."""
    pod = fit_error.pod_info.pod
    if pod.spec.preemption_policy == NEVER:
        return NodeReason(Rule.PREEMPTION, PreemptionMessage.POLICY_NEVER, VerdictCode.UNSCHEDULABLE)
    promise = nominations.of(fit_error.pod_info.key) if nominations is not None else None
    node = promise.node if promise is not None else pod.status.nominated_node_name
    row = snapshot.row_of(node) if node else None
    if row is None or fit_error.resolvable is None or not fit_error.resolvable[row]:
        return None  # no promise, or one that is of no use any more
    asked = promise.victims if promise is not None else frozenset()
    for other in snapshot.pods_at(row):
        below = priority_of(other) < fit_error.pod_info.priority
        if below and (pod_key(other) in asked or is_leaving(other)):
            return NodeReason(
                Rule.PREEMPTION, PreemptionMessage.VICTIMS_TERMINATING, VerdictCode.UNSCHEDULABLE
            )
    return None


def is_leaving(pod: Pod) -> bool:
    """Whether a pod is on its way out to make room for another."""
    if pod.metadata.deletion_timestamp is None:
        return False
    for condition in pod.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == BY_SCHEDULER
    return False


def choose_victims(candidates: Sequence[Victims]) -> Victims:
    """The candidate that loses least; of several alike the first."""
    best = _loss(candidates[0])
    chosen = candidates[0]
    for candidate in candidates[1:]:
        loss = _loss(candidate)
        # Youth counts last: the later the most important victims were started, the better.
        if loss[0] < best[0] or (loss[0] == best[0] and loss[1] > best[1]):
            best, chosen = loss, candidate
    return chosen


def _loss(victims: Victims) -> tuple[tuple[int, int, int, int], str]:
    """What a choice costs, the gravest first: budgets broken, the highest priority, all priorities, pods."""
    priorities = [priority_of(pod) for pod in victims.pods]
    highest = max(priorities)
    numbers = (victims.broken, highest, sum(each + _LIFT for each in priorities), len(priorities))
    oldest = min(started_at(pod) for pod in victims.pods if priority_of(pod) == highest)
    return numbers, oldest
