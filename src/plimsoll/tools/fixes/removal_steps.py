"""Steps that remove others: claims that no pod uses, and the pods whose removal does least harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault, DeviceId, Refusal
from plimsoll.allocator.reasons.refusal import RefusalRule
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import is_owned_by, resolve_claim_names
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.tools.amounts import format_short
from plimsoll.tools.claim_users import unused_claims
from plimsoll.tools.fixes.fix import FixKind, FixStep, FixTarget
from plimsoll.tools.fixes.harm import cheapest_sets, removable_pods, removal_harm
from plimsoll.tools.fixes.trial import FixTrial

#: Unused claims tried per node, and sets of pods tried before the most harmful are spared one by one.
_MAX_CLAIMS, _MAX_SETS = 16, 12

#: Rules that exclude devices whether they are in use or not.
_NOT_HELD = (RefusalRule.CLASS_SELECTOR, RefusalRule.REQUEST_SELECTOR, RefusalRule.NODE, RefusalRule.FAILED)

Answer = NodeFit | tuple[NodeReason, ...]


def propose_removals(trial: FixTrial, reasons: Sequence[NodeReason]) -> Iterator[FixStep]:
    """Yield the removal of unused claims, and of the pods that must go for the pod to fit or come nearer."""
    if reasons[0].rule is Rule.DEVICES:
        yield from _claim_steps(trial)
    if not all(reason.resolvable and _is_held(reason.cause) for reason in reasons):
        return
    chosen = _choose_pods(trial, lambda answer: isinstance(answer, NodeFit))
    if not chosen:
        chosen = _choose_pods(
            trial, lambda answer: isinstance(answer, NodeFit) or answer[0].rule != reasons[0].rule
        )
    if chosen:
        names = tuple(f"pod {pod.metadata.full_name}" for pod in chosen)
        facts = {"pods": names, "short": _short_text(trial, reasons), "node": trial.name}
        harm = sum(removal_harm(pod, trial.snapshot) for pod in chosen)
        yield FixStep(FixKind.REMOVE_PODS, facts, partial(_remove_pods, chosen), harm, trial.name)


def _is_held(cause: object) -> bool:
    """Return whether a refusal may be due to what others hold."""
    if not isinstance(cause, Refusal):
        return True
    unserved = [request for request in cause.requests if not request.served]
    return not unserved or any(
        each.rule not in _NOT_HELD for request in unserved for each in request.removals
    )


# -- claims


def _claim_steps(trial: FixTrial) -> Iterator[FixStep]:
    devices = trial.snapshot.inventory.devices_for(trial.node)
    if isinstance(devices, AllocationFault):
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
        yield FixStep(FixKind.REMOVE_CLAIM, facts, partial(_remove_claim, claim), node=trial.name)


def _remove_claim(claim: ResourceClaim, target: FixTarget) -> None:
    target.changes.remove(claim)


# -- pods


def _choose_pods(trial: FixTrial, suffices: Callable[[Answer], bool]) -> tuple[Pod, ...]:
    """Return the pods of the node without which the answer suffices: those with the least harm."""
    row, node_filter = trial.row, trial.node_filter
    pods = removable_pods(trial.snapshot, row)
    if not pods:
        return ()
    harms = [removal_harm(pod, trial.snapshot) for pod in pods]
    with node_filter.simulate(row) as simulation:
        simulation.remove_pods(pods)
        if not suffices(node_filter.run(row)):
            return ()
        simulation.restore_pods(pods)
        for chosen in cheapest_sets(harms, _MAX_SETS):
            fewer = [pods[number] for number in chosen]
            simulation.remove_pods(fewer)
            if suffices(node_filter.run(row)):
                return tuple(fewer)
            simulation.restore_pods(fewer)
        simulation.remove_pods(pods)
        for pod in reversed(pods):
            simulation.restore_pods([pod])
            if not suffices(node_filter.run(row)):
                simulation.remove_pods([pod])
        gone = {pod_key(pod) for pod in simulation.removed_pods}
    return tuple(pod for pod in pods if pod_key(pod) in gone)


def _remove_pods(pods: Sequence[Pod], target: FixTarget) -> None:
    """Remove pods with the claims generated for them, and release the others that only they used."""
    for pod in pods:
        target.changes.remove(pod)
        for name in dict.fromkeys(resolve_claim_names(pod).values()):
            claim = target.find(ResourceClaim, name, pod.metadata.namespace)
            if claim is None:
                continue
            if is_owned_by(claim, pod):
                target.changes.remove(claim)
                continue
            users = tuple(user for user in claim.status.reserved_for if user.uid != pod.metadata.uid)
            allocation = claim.status.allocation if users else None
            status = replace(claim.status, reserved_for=users, allocation=allocation)
            target.changes.set(replace(claim, status=status))


def _short_text(trial: FixTrial, reasons: Sequence[NodeReason]) -> str:
    """Return the amounts that are missing on the node."""
    shortages = [reason.cause for reason in reasons if isinstance(reason.cause, Reason)]
    amounts = [
        f"{format_short(each.resource, (each.wanted or 0) - (each.had or 0))} {each.resource}"
        for each in shortages
        if each.cause is Cause.INSUFFICIENT
    ]
    return f": {' and '.join(amounts)} short on {trial.name}" if amounts else f" from node {trial.name}"
