"""How much the claims of a pod may still charge while its devices are being chosen.

Owns the joint budget of a device search: given a node's headroom, what the pod requests by itself and its
pod-level requests, it says how much of each resource is left for claims and what one device would take of it.
A search asks `charge_of` for each device it considers and `admits` for the sum so far, and leaves a branch
that can no longer fit. Saying yes is no promise: under Max and AddPerReference what a claim adds depends on
the whole pod, so those count for nothing here and `judge` has the last word. Saying no is final.

Nothing here knows about the search: devices come as allocation results, amounts are plain dictionaries.
Document 000, story 4: a pod that can take a GPU or 8 CPUs takes the GPU where the CPUs would not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import Policy
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import AllocationDevice, ResourceClaim
from plimsoll.ledger.amounts import Amounts, add_to, is_huge_page
from plimsoll.ledger.claims import Bill, Pricing, effective_policy
from plimsoll.ledger.lines import node_amounts
from plimsoll.ledger.mapping import charges_of
from plimsoll.ledger.node import NodeLedger
from plimsoll.ledger.policy import work_out
from plimsoll.ledger.requests import is_pod_level_resource, pod_requests
from plimsoll.ledger.units import PLAIN, quantity_of
from plimsoll.ledger.verdict import Reason

#: Policies under which a device's amount is charged in full, whatever else the pod does.
_IN_FULL = (Policy.ADD_PER_CLAIM, Policy.CONSUME_FROM)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left for the claims of one pod on one node; a resource that is not named is not bounded."""

    left: Mapping[str, Quantity]
    pricing: Pricing

    def charge_of(self, claim: ResourceClaim, result: AllocationDevice) -> dict[str, Quantity] | Reason:
        """What handing out this device to this claim charges at least; a reason if it must not be done."""
        device = self.pricing.devices.find(result, self.pricing.node)
        if device is None:
            return {}
        charges = charges_of(
            result, device, self.pricing.class_policy(claim, result.request), self.pricing.profile
        )
        if isinstance(charges, Reason):
            return charges
        total: dict[str, Quantity] = {}
        for charge in charges:
            if charge.quantity is not None and effective_policy(charge.policy) in _IN_FULL:
                add_to(total, {charge.resource: charge.quantity})
            if charge.per_pod is not None:
                add_to(total, {charge.resource: charge.per_pod})
        return total

    def admits(self, charged: Amounts) -> bool:
        """Whether claims may charge this much together."""
        return all(
            not amount or name not in self.left or amount <= self.left[name]
            for name, amount in charged.items()
        )

    def after(self, charged: Amounts) -> Allowance:
        """What is left once this much is charged."""
        left = {name: amount - charged.get(name, ZERO) for name, amount in self.left.items()}
        return replace(self, left=left)


def allowance_for(ledger: NodeLedger, pod: Pod, pricing: Pricing, bills: Sequence[Bill] = ()) -> Allowance:
    """What a pod's claims may charge on a node, beside those whose bills are known already.

    Where the pod has a pod-level request for a resource, that request is what the node is charged, and claims
    have what the containers leave of it; elsewhere they have the node's headroom beyond the pod's own needs.
    """
    ledger = ledger.without(pod)
    options = replace(ledger.options, use_status=False, in_place_pod_level=False)
    if not options.count_claims:
        return Allowance({}, pricing)
    taken = node_amounts(pod, bills, options, ledger.profile)
    left = {
        name: quantity_of(name, ledger.allocatable.get(name, 0) - ledger.requested.get(name, 0))
        - taken.get(name, ZERO)
        for name in {*PLAIN, *ledger.allocatable, *ledger.requested, *taken}
        if name in PLAIN or is_huge_page(name)
    }
    if not options.skip_pod_level and pod.spec.resources is not None:
        charges = work_out(pod, tuple(bill.charge for bill in bills), options)
        inside = pod_requests(pod, replace(options, skip_pod_level=True, exclude_overhead=True), charges)
        for name, budget in pod.spec.resources.requests.items():
            if is_pod_level_resource(name):
                left[name] = budget - inside.get(name, ZERO)
    return Allowance(left, pricing)
