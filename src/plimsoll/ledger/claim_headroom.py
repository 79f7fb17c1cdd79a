"""How much the claims of a pod may still charge while its devices are being chosen.

Owns the joint budget of a device search: given a node's headroom, what the pod requests by itself and its
pod-level requests, it says how much of each resource is left for claims (`bounds`) and what one device would
take of it (`charge`). A search that never lets the sum of charges past a bound leaves out what could not be
placed anyway. That is necessary, not sufficient: under the other policies than AddPerClaim what a claim adds
depends on the requests of the whole pod, so those count for nothing here, and `judge_placement` has the
last word.

Nothing here knows about the search: devices come as allocation results, amounts are whole nano-units in plain
dictionaries, so that charges add up exactly. Document 000, story 4: a pod that can take a GPU or 8 CPUs takes
the GPU where the CPUs would not fit.
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
#: What a device that must not be handed out charges one of, where there is none to be had.
NO_POLICY = "devices without a policy"
_NEVER = (Cause.NO_POLICY, Cause.UNKNOWN_POLICY, Cause.BAD_ANNOTATION)


@dataclass(frozen=True, slots=True)
class ClaimHeadroom:
    """What is left for the claims of one pod on one node.

    `bounds` says whose bound it is and how much of each resource is left below it, in nano-units; a resource
    that is not named is not bounded.
    """

    bounds: Mapping[str, Mapping[str, int]]
    charge_context: ChargeContext

    def charge(
        self, claim: ResourceClaim, result: DeviceRequestAllocationResult, device: Device
    ) -> dict[str, int]:
        """What handing out this device charges at least."""
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
            total[charge.resource] = amount
        return total

    def admits(self, charged: Mapping[str, int]) -> bool:
        """Whether the claims may charge this much together; nothing at all breaks no bound."""
        return all(
            not amount or amount <= bound[name]
            for bound in self.bounds.values()
            for name, amount in charged.items()
            if name in bound
        )


def compute_claim_headroom(
    ledger: NodeLedger, pod: Pod, charge_context: ChargeContext, charged_claims: Sequence[ChargedClaim] = ()
) -> ClaimHeadroom:
    """What a pod's claims may charge on a node, beside those whose bills are known already.

    Where the pod has a pod-level request for a resource, that request is what the node is charged, and claims
    have what the containers leave of it; elsewhere they have the node's headroom beyond the pod's own needs.
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
    return ClaimHeadroom({HEADROOM: headroom, POD_LEVEL: budget, POLICY: {NO_POLICY: 0}}, charge_context)
