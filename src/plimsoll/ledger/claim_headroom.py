"""Headroom left for the claims of a pod while its devices are being selected.

Computes the bounds of a joint device search: given a node's headroom, the pod's own requests and its
pod-level requests, the amount of each resource that is left for claims (`bounds`), and the charge of one
device (`charge`). A search that keeps the sum of charges within the bounds skips allocations that could not
be placed anyway. The bounds are necessary, not sufficient: under policies other than AddPerClaim the charge
of a claim depends on the requests of the entire pod, so such charges count as zero here and `check_placement`
decides.

Independent of the search: devices are passed as allocation results, amounts are integers in nano-units, so
sums are exact. KEP-5517, user story 4: a pod that accepts a GPU or 8 CPUs gets the GPU where the CPUs would
not fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy
from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import Device, DeviceRequestAllocationResult, ResourceClaim
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.claims import ChargeContext, ChargedClaim, effective_policy
from plimsoll.ledger.device_charges import compute_device_charges
from plimsoll.ledger.entries import compute_node_amounts
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.policy import resolve_policies
from plimsoll.ledger.requests import is_pod_level_resource, pod_requests, without_status
from plimsoll.ledger.units import STANDARD_RESOURCES, units_to_nano
from plimsoll.ledger.verdict import Cause, Reason

HEADROOM = "node headroom"
POD_LEVEL = "pod-level request"
POLICY = "accounting policy"
#: Pseudo-resource with bound zero, charged by devices that must not be allocated.
NO_POLICY = "devices without a policy"
#: Pseudo-resource with bound zero, charged by devices that need huge pages of a size the node does not have.
ABSENT_HUGE_PAGES = "huge pages of other sizes"
_NEVER = (Cause.NO_POLICY, Cause.UNKNOWN_POLICY, Cause.BAD_ANNOTATION)


@dataclass(frozen=True, slots=True)
class ClaimHeadroom:
    """Headroom for the claims of one pod on one node.

    `bounds` maps the name of each bound to the amount left per resource, in nano-units. Resources that are
    not listed are not bounded, except huge pages, of which the node then has none.
    """

    bounds: Mapping[str, Mapping[str, int]]
    charge_context: ChargeContext

    def charge(
        self, claim: ResourceClaim, result: DeviceRequestAllocationResult, device: Device
    ) -> dict[str, int]:
        """Return the minimum charge of allocating this device."""
        class_policy = self.charge_context.class_policy(claim, result.request)
        charges = compute_device_charges(result, device, class_policy, self.charge_context.profile)
        if isinstance(charges, Reason):
            return {NO_POLICY: 1} if charges.cause in _NEVER else {}
        total: dict[str, int] = {}
        for charge in charges:
            amount = 0
            if (
                charge.quantity is not None
                and effective_policy(charge.policy) is AccountingPolicy.ADD_PER_CLAIM
            ):
                amount += charge.quantity.nano
            if charge.per_pod is not None:
                amount += charge.per_pod.nano
            name = charge.resource
            if is_huge_page(name) and not any(name in bound for bound in self.bounds.values()):
                name = ABSENT_HUGE_PAGES
            total[name] = total.get(name, 0) + amount
        return total

    def fits(self, charged: Mapping[str, int]) -> bool:
        """Return whether the claims may charge these amounts together; zero never exceeds a bound."""
        return all(
            not amount or amount <= bound[name]
            for bound in self.bounds.values()
            for name, amount in charged.items()
            if name in bound
        )


def compute_claim_headroom(
    ledger: NodeLedger, pod: Pod, charge_context: ChargeContext, charged_claims: Sequence[ChargedClaim] = ()
) -> ClaimHeadroom:
    """Compute the headroom for a pod's claims on a node, in addition to claims already charged.

    Where the pod has a pod-level request for a resource, the node is charged that request and claims may use
    what the containers leave of it; otherwise they may use the node's headroom beyond the pod's own requests.
    """
    ledger = ledger.without(pod)
    options = without_status(ledger.options)
    if not options.count_claims:
        return ClaimHeadroom({}, charge_context)
    taken = compute_node_amounts(pod, charged_claims, options, ledger.profile)
    headroom = {
        name: units_to_nano(name, ledger.allocatable.get(name, 0) - ledger.requested.get(name, 0))
        - taken.get(name, ZERO).nano
        for name in {*STANDARD_RESOURCES, *ledger.allocatable, *ledger.requested, *taken}
        if name in STANDARD_RESOURCES or is_huge_page(name)
    }
    budget: dict[str, int] = {}
    if not options.skip_pod_level and pod.spec.resources is not None:
        charges = resolve_policies(
            pod, tuple(charged_claim.charge for charged_claim in charged_claims), options
        )
        inside = pod_requests(pod, replace(options, skip_pod_level=True, exclude_overhead=True), charges)
        for name, amount in pod.spec.resources.requests.items():
            if is_pod_level_resource(name):
                budget[name] = amount.nano - inside.get(name, ZERO).nano
                headroom.pop(name, None)
    headroom[ABSENT_HUGE_PAGES] = 0
    return ClaimHeadroom({HEADROOM: headroom, POD_LEVEL: budget, POLICY: {NO_POLICY: 0}}, charge_context)
