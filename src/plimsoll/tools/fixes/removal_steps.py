"""Steps that remove others: claims that no pod uses, and the pods whose removal does least harm."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from plimsoll.allocator import DeviceId, Refusal
from plimsoll.allocator.reasons.refusal import RefusalRule
from plimsoll.api.core import Pod
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.tools.amounts import format_short
from plimsoll.tools.claim_users import unused_claims
from plimsoll.tools.cluster_state.objects import Key
from plimsoll.tools.fixes.edits import delete
from plimsoll.tools.fixes.fix import FixKind, FixStep
from plimsoll.tools.fixes.harm import choose_pods, removable_pods, removal_harm
from plimsoll.tools.fixes.trial import FixTrial

#: Unused claims tried per node.
_MAX_CLAIMS = 16

#: Rules that exclude devices whether they are in use or not.
_NOT_HELD = (RefusalRule.CLASS_SELECTOR, RefusalRule.REQUEST_SELECTOR, RefusalRule.NODE, RefusalRule.FAILED)

Answer = NodeFit | tuple[NodeReason, ...]


def propose_removals(
    trial: FixTrial, reasons: Sequence[NodeReason], kept: Collection[Key]
) -> Iterator[FixStep]:
    """Yield the removal of unused claims, and of the pods that must go for the pod to fit or come nearer."""
    if reasons[0].rule is Rule.DEVICES:
        yield from _claim_steps(trial)
    if not all(_is_held(reason) for reason in reasons):
        return
    rule = reasons[0].rule
    pods = [pod for pod in removable_pods(trial.snapshot, trial.row) if pod.metadata.key not in kept]
    chosen = _choose_pods(trial, pods, lambda answer: isinstance(answer, NodeFit)) or _choose_pods(
        trial, pods, lambda answer: isinstance(answer, NodeFit) or answer[0].rule != rule
    )
    if chosen:
        names = tuple(map(_name, chosen))
        facts = {"pods": names, "short": _short_text(trial, reasons), "node": trial.name}
        harm = sum(removal_harm(pod, trial.snapshot) for pod in chosen)
        yield FixStep(FixKind.REMOVE_PODS, facts, tuple(map(delete, chosen)), harm, trial.name)


def _is_held(reason: NodeReason) -> bool:
    """Return whether a refusal may be due to what others hold; a scheduler may evict no pods for devices."""
    cause = reason.cause
    if not isinstance(cause, Refusal):
        return reason.resolvable
    unserved = [request for request in cause.requests if not request.served]
    return not unserved or any(
        each.rule not in _NOT_HELD for request in unserved for each in request.removals
    )


# -- claims


def _claim_steps(trial: FixTrial) -> Iterator[FixStep]:
    devices = trial.devices
    if devices is None:
        return
    found = [
        claim
        for claim in unused_claims(trial.cluster_state)
        if any(DeviceId.of(result).pool_id in devices.index for result in claim.allocation_results)
        and claim.metadata.uid not in {each.metadata.uid for each in trial.pod_info.claims}
    ]
    for claim in found[:_MAX_CLAIMS]:
        held = tuple(str(DeviceId.of(result)) for result in claim.allocation_results)
        facts = {"claim": claim.metadata.full_name, "devices": held}
        yield FixStep(FixKind.REMOVE_CLAIM, facts, (delete(claim),), node=trial.name)


# -- pods


def _choose_pods(trial: FixTrial, pods: Sequence[Pod], suffices: Callable[[Answer], bool]) -> tuple[Pod, ...]:
    """Return those of these pods without which the answer suffices, with the least harm.

    Pods that are removed by hand free their devices, whether a scheduler preempts for them or not.
    """
    with NodeSimulation(trial.snapshot, trial.row) as simulation:

        def is_enough(chosen: Sequence[Pod]) -> bool:
            simulation.remove_pods(chosen)
            answer = trial.node_filter.run(trial.row)
            simulation.restore_pods(chosen)
            return suffices(answer)

        return choose_pods(pods, trial.snapshot, is_enough)


def _name(pod: Pod) -> str:
    leaving = " (terminating)" if pod.metadata.deletion_timestamp is not None else ""
    return f"pod {pod.metadata.full_name}{leaving}"


def _short_text(trial: FixTrial, reasons: Sequence[NodeReason]) -> str:
    """Return the amounts that are missing on the node."""
    shortages = [reason.cause for reason in reasons if isinstance(reason.cause, Reason)]
    amounts = [
        f"{format_short(each.resource, (each.wanted or 0) - (each.had or 0))} {each.resource}"
        for each in shortages
        if each.cause is Cause.INSUFFICIENT
    ]
    return f": {' and '.join(amounts)} short on {trial.name}" if amounts else f" from node {trial.name}"
