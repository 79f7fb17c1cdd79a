"""Device allocation and ledger fit on one node, as one search.

`try_node` chooses devices for unallocated claims so that what they charge fits into the node's headroom and
the pod's own budget, and returns the charges to record. KEP-5517 (docs/spec/keps.md), "Joint allocation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeAlias

from plimsoll.allocator import (
    Allocation,
    AllocationFault,
    AllocationOutcome,
    AllocationState,
    BudgetLine,
    NodeBudget,
    Refusal,
    SearchAborted,
    SearchLimits,
    allocate_claims,
    is_allocation_usable,
)
from plimsoll.api.core import Node
from plimsoll.api.identity import PoolId
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.ledger.claim_headroom import compute_claim_headroom
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.fit import find_request_shortages
from plimsoll.ledger.messages import format_reason as render_charge
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import charge_claims, check_placement, check_sharing
from plimsoll.ledger.verdict import Reason, VerdictCode
from plimsoll.scheduler.devices.charging_nodes import charges_node
from plimsoll.scheduler.filters.mixed_advertisers import held_by_plugins
from plimsoll.scheduler.filters.node_resources import delegated_resources
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import DeviceOrder, MixedAdvertisers, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, ReasonMessage, Rule, SharedMessage
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class DeviceMessage(ReasonMessage):
    """Messages of DynamicResources about a node."""

    CANNOT_ALLOCATE = "cannot allocate all claims"
    GAVE_UP = "gave up the search for devices after {steps} steps"
    CLAIM_ELSEWHERE = "resourceclaim not available on the node"


NewId = Callable[[], str]


def simulated_ids() -> NewId:
    """Return a generator of share IDs for allocations that are not written."""
    numbers = count()
    return lambda: f"simulated-{next(numbers)}"


#: ((driver, capacity name), amount) pairs.
ConsumedCapacity: TypeAlias = "tuple[tuple[tuple[str, str], int], ...]"
#: kube-scheduler's MaxNodeScore.
MAX_SCORE = 100


@dataclass(frozen=True, slots=True)
class NodeFit:
    """Result for a node that fits: allocations of the unallocated claims, their charges, and the rank of
    the alternatives chosen from prioritized lists.
    """

    allocations: Mapping[str, AllocationResult] = field(default_factory=dict)
    charged_claims: tuple[ChargedClaim, ...] = ()
    rank: int = MAX_SCORE  #: 100 if every prioritized list got its first alternative, less for later ones
    #: Consumed capacity, if the profile weighs device waste.
    sizes: ConsumedCapacity = ()


NO_CLAIMS = NodeFit()


def try_node(
    pod_info: PodInfo,
    row: int,
    snapshot: Snapshot,
    new_id: NewId,
    settings: SchedulerProfile | None = None,
    ledger: NodeLedger | None = None,
    explain: bool = False,
) -> NodeFit | tuple[NodeReason, ...]:
    """Allocate devices for a pod's claims on a node, or return why it does not fit.

    `ledger` replaces that of the node.
    """
    pod_info = pod_info.at_node(snapshot.node(row))
    if not pod_info.claims:
        return NO_CLAIMS
    ledger = ledger or snapshot.ledger(row)
    settings = settings or SchedulerProfile.default()
    found = _try_node(pod_info, row, snapshot, new_id, settings, ledger, explain)
    if isinstance(found, NodeFit):
        return find_delegated_shortages(pod_info, found, snapshot, ledger) or found
    return found


def find_delegated_shortages(
    pod_info: PodInfo, fit: NodeFit, snapshot: Snapshot, ledger: NodeLedger
) -> tuple[NodeReason, ...]:
    """Return the requests that NodeResourcesFit left to the device search and that do not fit.

    Policies of devices may change what such a request consumes (`delegated_resources`). If the devices of the
    pod charge nothing, the requests count as they are.
    """
    if fit.charged_claims:
        return ()
    delegated = delegated_resources(pod_info, snapshot)
    demand = {name: amount for name, amount in pod_info.requests.items() if name in delegated}
    if not demand:
        return ()
    short = find_request_shortages(demand, ledger.allocatable, ledger.requested, len(ledger))
    return tuple(map(_of_ledger, short))


def _try_node(
    pod_info: PodInfo,
    row: int,
    snapshot: Snapshot,
    new_id: NewId,
    settings: SchedulerProfile,
    ledger: NodeLedger,
    explain: bool = False,
) -> NodeFit | tuple[NodeReason, ...]:
    node = snapshot.node(row)
    usable = {c.metadata.name: c for c in pod_info.claims if is_usable_on(c, node)}
    if len(usable) < len(pod_info.claims):
        if settings.device_order is DeviceOrder.FIRST:
            # kube-scheduler reports a claim that is allocated elsewhere last.
            rest = PodInfo(pod_info.pod, tuple(usable.values()), pod_info.options, pod_info.profile)
            found = _try_node(rest, row, snapshot, new_id, settings, ledger)
            if not isinstance(found, NodeFit):
                return found
        return (_ELSEWHERE,)
    if settings.device_order is DeviceOrder.FIRST:
        shared = check_sharing(ledger, pod_info.pod, usable, snapshot.charge_context(row))
        if shared.reasons:
            return tuple(map(_of_ledger, shared.reasons))
    charged = snapshot.options.count_claims and charges_node(snapshot, row)
    if not pod_info.unallocated_claims:
        return check_charges(pod_info, {}, row, snapshot, ledger) if charged else NodeFit()

    refuses = settings.mixed_advertisers is MixedAdvertisers.REFUSE
    plugin_resources = held_by_plugins(snapshot, row, ledger) if refuses else None

    def search(budget: NodeBudget | None, state: AllocationState = snapshot.state) -> AllocationOutcome:
        return allocate_claims(
            snapshot.inventory,
            state,
            pod_info.unallocated_claims,
            node,
            classes=snapshot.classes,
            new_id=new_id,
            budget=budget,
            limits=SearchLimits(settings.search_steps),
            preference=settings.device_preference,
            explain=explain,
            plugin_resources=plugin_resources,
        )

    joint = charged and settings.device_order is DeviceOrder.JOINT
    outcome = search(_budget(pod_info, row, snapshot, ledger) if joint else None)
    if joint and isinstance(outcome, Refusal):
        # Distinguish missing devices from missing headroom: both have their own message.
        unbound = search(None)
        if isinstance(unbound, Allocation):
            placement = check_charges(pod_info, _by_name(pod_info, unbound), row, snapshot, ledger)
            if isinstance(placement, NodeFit):
                return (_refusal(outcome, frees_devices=True),)
            if settings.frees_devices and not all(reason.resolvable for reason in placement):
                # These devices exceed the node's allocatable; cheaper ones may be allocated to other claims.
                # Searched even if the node has no pods: the result is cached, and the pods that use those
                # claims may be observed later.
                empty = NodeLedger(node, snapshot.gates, snapshot.profile)
                budget = _budget(pod_info, row, snapshot, empty)
                if isinstance(search(budget, _own_devices(pod_info, snapshot)), Allocation):
                    return tuple(replace(reason, code=VerdictCode.UNSCHEDULABLE) for reason in placement)
            return placement
    if not isinstance(outcome, Allocation):
        return (_refusal(outcome, frees_devices=settings.frees_devices),)
    allocations = _by_name(pod_info, outcome)
    rank = _rank(pod_info.unallocated_claims, outcome.alternatives)
    sizes = _sizes(allocations, row, snapshot) if settings.waste_weight else ()
    if not charged:
        return NodeFit(allocations, (), rank, sizes)
    return check_charges(pod_info, allocations, row, snapshot, ledger, rank, sizes)


def _own_devices(pod_info: PodInfo, snapshot: Snapshot) -> AllocationState:
    """Return the allocation state as if there were no other pods."""
    return AllocationState.of(pod_info.claims, snapshot.features.consumable_capacity)


def _by_name(pod_info: PodInfo, allocation: Allocation) -> dict[str, AllocationResult]:
    return {
        c.metadata.name: result
        for c, result in zip(pod_info.unallocated_claims, allocation.results, strict=True)
    }


def check_charges(
    pod_info: PodInfo,
    allocations: Mapping[str, AllocationResult],
    row: int,
    snapshot: Snapshot,
    ledger: NodeLedger,
    rank: int = MAX_SCORE,
    sizes: ConsumedCapacity = (),
) -> NodeFit | tuple[NodeReason, ...]:
    """Check whether the charges of these allocations fit on a node."""
    claims = {claim.metadata.name: claim for claim in pod_info.claims}
    placement = check_placement(ledger, pod_info.pod, claims, allocations, snapshot.charge_context(row))
    if not placement.verdict.fits:
        return tuple(map(_of_ledger, placement.verdict.reasons))
    return NodeFit(allocations, placement.charged_claims or (), rank, sizes)


def is_usable_on(claim: ResourceClaim, node: Node) -> bool:
    """Return whether a claim's allocation, if it has one, can be used on a node."""
    allocation = claim.status.allocation
    return allocation is None or is_allocation_usable(allocation, node)


def _budget(pod_info: PodInfo, row: int, snapshot: Snapshot, ledger: NodeLedger) -> NodeBudget:
    charge_context = snapshot.charge_context(row)
    charged_claims: list[ChargedClaim] = []
    if len(pod_info.unallocated_claims) < len(pod_info.claims):
        claims = {claim.metadata.name: claim for claim in pod_info.claims}
        charged_claims = [
            b for b in charge_claims(pod_info.pod, claims, {}, charge_context) if isinstance(b, ChargedClaim)
        ]
    allowance = compute_claim_headroom(ledger, pod_info.pod, charge_context, charged_claims)
    return NodeBudget(allowance.charge, [BudgetLine(name, left) for name, left in allowance.bounds.items()])


def _rank(claims: Sequence[ResourceClaim], alternatives: Sequence[Sequence[int]]) -> int:
    """Score the choice from prioritized lists: 100 if every list got its first alternative.

    DIFF: upstream gives 8 points for the first alternative of any list and one less for each later one,
    relative to the best node; here the score depends on the length of the list, and not on other nodes
    (test_alternatives_score_relative_to_the_length_of_their_list).
    """
    best = got = 0
    for claim, chosen in zip(claims, alternatives, strict=True):
        for request, number in zip(claim.spec.devices.requests, chosen, strict=True):
            best += len(request.first_available)
            got += len(request.first_available) - number if request.first_available else 0
    return got * MAX_SCORE // best if best else MAX_SCORE


def _sizes(allocations: Mapping[str, AllocationResult], row: int, snapshot: Snapshot) -> ConsumedCapacity:
    """Return the consumed amount of each capacity: that of the whole device, or of a share."""
    devices = snapshot.inventory.devices_for(snapshot.node(row))
    sizes: dict[tuple[str, str], int] = {}
    for allocation in allocations.values():
        for result in allocation.devices.results:
            taken = {name: amount.nano for name, amount in result.consumed_capacity.items()}
            if result.share_id is None and not isinstance(devices, AllocationFault):
                entry = devices.entries[devices.index[PoolId(result.driver, result.pool)][result.device]]
                taken = {name: (c.value or ZERO).nano for name, c in entry.device.capacity.items()}
            for name, amount in taken.items():
                key = (result.driver, name)
                sizes[key] = sizes.get(key, 0) + amount
    return tuple(sizes.items())


def _refusal(outcome: object, *, frees_devices: bool) -> NodeReason:
    # DIFF: upstream treats a shortage of devices as one that preemption cannot resolve, because its dry runs
    # leave the claims of victims allocated; here they are freed. test_devices_of_victims_are_freed
    if isinstance(outcome, AllocationFault):
        code = VerdictCode.UNRESOLVABLE if outcome.is_node_scoped else VerdictCode.ERROR
        return NodeReason(Rule.DEVICES, SharedMessage.TEXT, code, {"text": str(outcome)}, outcome)
    if isinstance(outcome, SearchAborted):
        return NodeReason(
            Rule.DEVICES, DeviceMessage.GAVE_UP, VerdictCode.ERROR, {"steps": outcome.steps}, outcome
        )
    code = VerdictCode.UNSCHEDULABLE if frees_devices else VerdictCode.UNRESOLVABLE
    return NodeReason(Rule.DEVICES, DeviceMessage.CANNOT_ALLOCATE, code, {}, outcome)


def reassign_reasons(reasons: Iterable[NodeReason], old: PodInfo, new: PodInfo) -> tuple[NodeReason, ...]:
    """Return the reasons of a pod as those of another one with the same resource signature: they name the
    claims of that pod.
    """
    if old is new:
        return tuple(reasons)
    claims = zip(old.unallocated_claims, new.unallocated_claims, strict=False)
    names = {one.metadata.name: other.metadata for one, other in claims}
    return tuple(_reassign(reason, names) for reason in reasons)


def _reassign(reason: NodeReason, names: Mapping[str, ObjectMeta]) -> NodeReason:
    cause = reason.cause
    if isinstance(cause, AllocationFault) and "claim" in cause.facts:
        namespace, _, name = cause.facts["claim"].rpartition("/")
        if name not in names:
            return reason
        own = names[name]
        cause = replace(cause, facts={**cause.facts, "claim": own.full_name if namespace else own.name})
        return replace(reason, facts={"text": str(cause)}, cause=cause)
    if isinstance(cause, Reason) and cause.claim in names:
        own = names[cause.claim]
        return _of_ledger(replace(cause, namespace=cause.namespace and own.namespace, claim=own.name))
    return reason


def is_selector_error(reason: NodeReason) -> bool:
    """Return whether a CEL selector failed on a device."""
    return isinstance(reason.cause, AllocationFault) and reason.cause.is_selector_error


def _of_ledger(reason: Reason) -> NodeReason:
    return NodeReason(Rule.DEVICES, SharedMessage.TEXT, reason.code, {"text": render_charge(reason)}, reason)


_ELSEWHERE = NodeReason(Rule.DEVICES, DeviceMessage.CLAIM_ELSEWHERE, VerdictCode.UNRESOLVABLE)
