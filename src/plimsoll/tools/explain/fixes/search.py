"""`find_fixes`: the smallest change that would make a pod schedulable.

On the nearest nodes (one per kind of refusal and a few more), changes are simulated until the pod fits:
tolerations, labels, claim requests, and pods to remove. All rules are evaluated, not only the first that
failed. A fix that was simulated successfully is `proven`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault, DeviceId, Refusal
from plimsoll.allocator.devices.capacity import SHORT
from plimsoll.allocator.reasons.refusal import CapacityShortage
from plimsoll.allocator.reasons.refusal import RefusalRule as DeviceRule
from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.units import CPU, MEMORY, from_units
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit
from plimsoll.scheduler.extended_resources import served_resources
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.budgets import DisruptionBudgets
from plimsoll.scheduler.preemption.node_filter import NodeFilter
from plimsoll.scheduler.preemption.victims import Victims, select_victims_quickly
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.tools.amounts import format_exact, format_quantity, format_short
from plimsoll.tools.claim_users import unused_claims
from plimsoll.tools.explain.fixes.fix import Fix, FixStep
from plimsoll.tools.explain.fixes.steps import is_other_machine, propose_change, with_pod
from plimsoll.tools.explain.node_reasons import may_charge_more
from plimsoll.tools.explain.pod_view import PodView
from plimsoll.tools.explain.text import FixKind, pluralize
from plimsoll.tools.explain.tree import NodeGroup
from plimsoll.tools.top.nodes import ResourceHolder, holders

#: Nodes tried per group, and in total.
NODES_PER_GROUP = 2
MAX_NODES = 12
#: Unused claims tried per node.
MAX_CLAIMS = 16
#: Fixes reported.
MAX_FIXES = 3
#: Rules changed per node.
_ROUNDS = 8
#: Priority above all pods, so that any of them can be a victim.
_HIGHEST_PRIORITY = 2**31 - 1


def find_fixes(view: PodView, groups: Sequence[NodeGroup]) -> tuple[Fix, ...]:
    """Return the fixes, smallest change first."""
    found: list[Fix] = []
    for row in _candidates(view, groups):
        found += _fixes_for_node(view, row)
    all_short = all(group.rule in (Rule.RESOURCES, Rule.DEVICES) for group in groups)
    new = _new_node(view, groups) if all_short or not found else None
    return choose_fixes([*found, new] if new is not None else found)


def fixes_on(view: PodView, row: int) -> tuple[Fix, ...]:
    """Return the fixes for one node."""
    return choose_fixes(list(_fixes_for_node(view, row)))


def choose_fixes(found: Sequence[Fix]) -> tuple[Fix, ...]:
    """Return the cheapest fixes, one per combination of step kinds; devices on other machines only if nothing
    else is known.
    """
    kept: dict[object, Fix] = {}
    near = [fix for fix in found if not any(map(is_other_machine, fix.steps))]
    for fix in sorted(near or found, key=lambda fix: fix.cost):
        kinds = tuple(step.kind for step in fix.steps)
        kept.setdefault(kinds, fix)
    return tuple(kept.values())[:MAX_FIXES]


def _candidates(view: PodView, groups: Sequence[NodeGroup]) -> list[int]:
    names = [name for group in groups for name in group.nodes[:1]]
    names += [name for group in groups for name in group.nodes[1:NODES_PER_GROUP]]
    rows = (view.snapshot.row_of(name) for name in names[:MAX_NODES])
    return [row for row in rows if row is not None]


def _fixes_for_node(view: PodView, row: int) -> Iterator[Fix]:
    """Yield the fixes that make one node feasible."""
    node = view.name(row)
    pod = replace(view.pod, spec=replace(view.pod.spec, priority=_HIGHEST_PRIORITY, preemption_policy=None))
    pod_info = with_pod(view.pod_info, pod)
    steps: list[FixStep] = []
    for _ in range(_ROUNDS):
        node_filter = NodeFilter(pod_info, view.snapshot, view.settings)
        answer = node_filter.run(row)
        if isinstance(answer, NodeFit):
            yield Fix(tuple(steps), node, proven=True)
            return
        reasons = _explained(view, pod_info, row, answer)
        shrunk = _shrink(view, pod_info, row, reasons)
        if shrunk is not None:
            yield Fix((*steps, shrunk), node, proven=True)
        released = _release(view, node_filter, row, reasons)
        if released:
            yield Fix((*steps, *released), node, proven=True)
        removal = _removal(view, node_filter, row, reasons)
        if removal is not None:
            yield Fix((*steps, removal), node, proven=True)
        proposal = propose_change(view, pod_info, row, reasons)
        if proposal is None or (removal is not None and proposal.pod_info is None):
            return
        if any(step.kind in {done.kind for done in steps} for step in proposal.steps):
            return  # repeated: the change did not help
        steps += proposal.steps
        if proposal.pod_info is None:
            yield Fix(tuple(steps), node)
            return
        pod_info = proposal.pod_info


def _explained(
    view: PodView, pod_info: PodInfo, row: int, reasons: tuple[NodeReason, ...]
) -> tuple[NodeReason, ...]:
    """Return the reasons with numbers; device refusals are evaluated again with details."""
    if reasons[0].rule is not Rule.DEVICES:
        return reasons
    return DynamicResourcesFilter(pod_info, view.snapshot, settings=view.settings).filter_node(row) or reasons


def _release(
    view: PodView, node_filter: NodeFilter, row: int, reasons: Sequence[NodeReason]
) -> tuple[FixStep, ...]:
    """Return the steps that delete unused claims without which the pod fits: one if that suffices."""
    if not any(isinstance(reason.cause, Refusal) for reason in reasons):
        return ()
    devices = view.snapshot.inventory.devices_for(view.node(row))
    if isinstance(devices, AllocationFault):
        return ()
    unused = [
        claim
        for claim in unused_claims(view.cluster_state)
        if any(DeviceId.of(result).pool_id in devices.index for result in claim.allocation_results)
    ][:MAX_CLAIMS]
    for claims in [*([claim] for claim in unused), unused] if unused else ():
        with node_filter.simulate(row) as simulation:
            simulation.release_claims(claims)
            fits = isinstance(node_filter.run(row), NodeFit)
        if fits:
            return tuple(_delete_claim(claim) for claim in claims)
    return ()


def _delete_claim(claim: ResourceClaim) -> FixStep:
    devices = ", ".join(str(DeviceId.of(result)) for result in claim.allocation_results[:3])
    facts = {"claim": claim.metadata.full_name, "devices": devices}
    return FixStep(FixKind.REMOVE_CLAIM, facts, claim)


def _removal(
    view: PodView, node_filter: NodeFilter, row: int, reasons: Sequence[NodeReason]
) -> FixStep | None:
    """Return the step that removes the pods without which it fits, if there are any."""
    if not all(reason.resolvable for reason in reasons):
        return None
    budgets = DisruptionBudgets(view.snapshot.all(PodDisruptionBudget))
    victims = select_victims_quickly(node_filter, row, budgets)
    if not isinstance(victims, Victims) or not victims.pods:
        return None
    shortage = next((r.cause for r in reasons if isinstance(r.cause, Reason)), None)
    facts = {
        "node": view.name(row),
        "pods": tuple(f"pod {pod.metadata.full_name}" for pod in victims.pods),
        "short": _short_text(view, row, reasons),
        "holders": _holders_text(view, row, shortage, victims.pods) if shortage is not None else "",
    }
    return FixStep(FixKind.REMOVE_PODS, facts, victims.pods, len(victims.pods))


def _short_text(view: PodView, row: int, reasons: Sequence[NodeReason]) -> str:
    node = view.name(row)
    shortages = [reason.cause for reason in reasons if isinstance(reason.cause, Reason)]
    amounts = [
        _shortage_text(view, row, shortage) for shortage in shortages if shortage.cause is Cause.INSUFFICIENT
    ]
    if amounts:
        return f"{' and '.join(amounts)} short on {node}; "
    requests = [
        request
        for reason in reasons
        if isinstance(reason.cause, Refusal)
        for request in reason.cause.requests
        if not request.served
    ]
    shares = [each.detail for request in requests for each in request.removals]
    for detail in shares:
        if isinstance(detail, CapacityShortage) and detail.rule == SHORT:
            return f"{format_quantity(detail.wanted - detail.had)} of {detail.name} short on {node}; "
    missing = sum(max(request.wanted, 1) - min(request.left, request.wanted) for request in requests)
    return f"{pluralize(missing, 'device')} short on {node}; " if missing else f"node {node}: "


def _shortage_text(view: PodView, row: int, shortage: Reason) -> str:
    least = shortage.wanted == view.pod_info.requests.get(shortage.resource, 0) and may_charge_more(
        view, row, shortage.resource
    )
    amount = format_short(shortage.resource, (shortage.wanted or 0) - (shortage.had or 0))
    return f"{'at least ' if least else ''}{amount} {shortage.resource}"


def _holders_text(view: PodView, row: int, shortage: Reason, victims: Sequence[Pod]) -> str:
    """Name the largest holders of the missing resource, pods to be removed first."""
    if shortage.cause is not Cause.INSUFFICIENT:
        return ""
    victim_keys = {pod.metadata.key for pod in victims}
    found = holders(view.cluster_state, view.name(row), shortage.resource)
    found.sort(key=lambda holder: (holder.namespace, holder.pod) not in victim_keys)
    texts = [_holder_text(holder) for holder in found[:2] if holder.amount > 0]
    return f"{', '.join(texts)}; " if texts else ""


def _holder_text(holder: ResourceHolder) -> str:
    amount = format_short(holder.resource, holder.amount)
    if holder.claim:
        return f"claim {holder.namespace}/{holder.claim} holds {amount}"
    return f"pod {holder.namespace}/{holder.pod} requests {amount}"


def _shrink(view: PodView, pod_info: PodInfo, row: int, reasons: Sequence[NodeReason]) -> FixStep | None:
    """Return a smaller request of the only container that fits now; for plain shortages only."""
    shortages = [reason.cause for reason in reasons if isinstance(reason.cause, Reason)]
    spec = pod_info.pod.spec
    if len(reasons) != 1 or len(shortages) != 1 or len(spec.containers) != 1 or spec.init_containers:
        return None
    shortage, container = shortages[0], spec.containers[0]
    name = shortage.resource
    if shortage.cause is not Cause.INSUFFICIENT or name not in (CPU, MEMORY) or spec.resources is not None:
        return None
    own = pod_info.requests.get(name, 0)
    left = own - ((shortage.wanted or 0) - (shortage.had or 0))
    if left <= 0 or name not in container.resources.requests or spec.overhead:
        return None
    smaller = {**container.resources.requests, name: from_units(name, left)}
    changed = replace(container, resources=replace(container.resources, requests=smaller))
    smaller_pod = replace(pod_info.pod, spec=replace(spec, containers=(changed,)))
    answer = NodeFilter(with_pod(pod_info, smaller_pod), view.snapshot, view.settings).run(row)
    if not isinstance(answer, NodeFit):
        return None
    facts = {
        "had": format_exact(name, left),
        "wanted": format_exact(name, own),
        "resource": name,
        "node": view.name(row),
    }
    return FixStep(FixKind.SHRINK if shortage.resolvable else FixKind.SHRINK_POD, facts, smaller)


def _new_node(view: PodView, groups: Sequence[NodeGroup]) -> Fix | None:
    """Return the fix of adding a node large enough for the pod, with its devices.

    None where more capacity would not help because the pod or its claims are at fault.
    """
    served = set(served_resources(view.pod))
    amounts = {n: amount for n, amount in view.pod_info.requests.items() if amount > 0 and n not in served}
    small, unpriced = 0, False
    for group in groups:
        if group.rule is Rule.DEVICES and not all(map(_is_shortage, group.reasons)):
            return None
        shortages = [reason.cause for reason in group.reasons if isinstance(reason.cause, Reason)]
        small += bool(shortages) and not group.resolvable
        for shortage in shortages:
            if shortage.cause is Cause.INSUFFICIENT:
                amounts[shortage.resource] = max(amounts.get(shortage.resource, 0), shortage.wanted or 0)
                unpriced |= shortage.wanted == view.pod_info.requests.get(
                    shortage.resource, 0
                )  # claims were not evaluated
    texts = tuple(f"{format_exact(name, amount)} {name}" for name, amount in sorted(amounts.items()))
    texts += tuple(f"label {key}={value}" for key, value in sorted(view.pod.spec.node_selector.items()))
    if view.pod_info.unallocated_claims:
        texts += (f"the devices of its claims{' and what they charge' if unpriced else ''}",)
    kind = FixKind.ADD_NODE if groups and small == len(groups) else FixKind.ADD_ANOTHER
    return Fix((FixStep(kind, {"amounts": texts or ("capacity for a pod",)}, amounts),))


def _is_shortage(reason: NodeReason) -> bool:
    """Return whether a reason is a shortage that another node might not have."""
    cause = reason.cause
    if isinstance(cause, Reason):
        return cause.cause in (Cause.INSUFFICIENT, Cause.TOO_MANY_PODS)
    if not isinstance(cause, Refusal) or cause.together or cause.pools:
        return False
    return all(
        request.served
        or request.left
        or not request.devices
        or any(removal.rule in _SCARCE for removal in request.removals)
        for request in cause.requests
    )


#: Rules that exclude matching devices because they are in use.
_SCARCE = (DeviceRule.TAKEN, DeviceRule.GROUPS, DeviceRule.COUNTER)
