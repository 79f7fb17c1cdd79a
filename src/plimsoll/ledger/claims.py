"""Charges of the claims of a pod.

Resolves the ResourceClaim of each pod claim (generated names are in the pod's status), the containers that
refer to it, and the charge of its allocated devices. A claim is charged once per pod regardless of the number
of references, including none. A prioritized list charges the selected subrequest under its class; one claim
cannot have two policies for one resource (docs/spec/accounting.md, "Accounting policies"). KEP-5517,
"Handling Shared Claims" to "Unreferenced Claims".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import Struct, field

from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import (
    AccountingPolicy,
    ClaimCharge,
    ClassPolicy,
    ResourceCharge,
    device_forms,
    read_class,
    read_device_class,
    read_pod,
    read_status,
)
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    AllocationResult,
    Device,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from plimsoll.ledger.device_charges import NO_CLASS, DeviceCharge, compute_device_charges
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.verdict import Cause, Reason


class ChargedClaim(Struct, frozen=True):
    """Charge of one claim to one pod: the sum of the device charges in `parts`.

    A charge from a pod's status has no `parts`, because the status does not name devices. `uid` is the
    claim's UID, if known.
    """

    charge: ClaimCharge
    uid: str = ""
    parts: tuple[DeviceCharge, ...] = ()

    @property
    def claim(self) -> str:
        return self.charge.claim

    def policy(self, resource: str) -> AccountingPolicy:
        """Return the accounting policy for a resource; AddPerClaim if none or an unknown one is set."""
        return effective_policy(self.charge.resources[resource].policy)

    def devices(self, resource: str) -> tuple[DeviceId, ...]:
        """Return the devices that charge a resource, without duplicates."""
        return tuple(dict.fromkeys(part.device for part in self.parts if part.resource == resource))


_POLICIES = {policy.value: policy for policy in AccountingPolicy}


def effective_policy(text: str) -> AccountingPolicy:
    """Parse a policy; an empty or unknown one means AddPerClaim."""
    return _POLICIES.get(text, AccountingPolicy.ADD_PER_CLAIM)


# -- containers


def find_referring_containers(
    pod: Pod, names: Mapping[str, str], claim: str, profile: AccountingProfile
) -> tuple[str, ...]:
    """List the containers that refer to a claim, init containers first, once unless the profile repeats."""
    found = [
        container.name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for reference in container.resources.claims
        if names.get(reference.name) == claim
    ]
    extended = pod.status.extended_resource_claim_status
    if extended is not None and profile.charge_unreferenced and names.get("") == claim:
        found += [mapping.container_name for mapping in extended.request_mappings]
    return tuple(dict.fromkeys(found)) if profile.distinct_containers else tuple(found)


def find_requested_class(claim: ResourceClaim, request: str) -> str:
    """Return the device class of the request or subrequest (`request/subrequest`) of a result."""
    name, _, alternative = request.partition("/")
    for entry in claim.spec.devices.requests:
        if entry.name != name:
            continue
        for sub in entry.first_available:
            if sub.name == alternative:
                return sub.device_class_name
        return entry.exactly.device_class_name if entry.exactly is not None else ""
    return ""


# -- charges


class ChargeContext(Struct, frozen=True):
    """Inputs for computing charges: the devices of a node, device classes, and the accounting profile."""

    devices: DeviceIndex
    node: Node | None = None
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    profile: AccountingProfile = field(default_factory=AccountingProfile.default)

    def can_charge(self, claim: ResourceClaim) -> bool:
        """Return whether the allocation of a claim may charge a node; False is certain."""
        for result in claim.allocation_results:
            if self.devices.may_be_mapped(result) or self.class_policy(claim, result.request).charges:
                return True
        return False

    def class_policy(self, claim: ResourceClaim, request: str) -> ClassPolicy:
        found = self.classes.get(find_requested_class(claim, request))
        if found is None:
            return NO_CLASS
        return read_device_class(found) if self.profile.annotations else read_class(found.spec)


def has_node_allocatable_device(
    claim: ResourceClaim, allocation: AllocationResult, charge_context: ChargeContext
) -> bool:
    """Return whether a device of an allocation affects node resources.

    An unpublished device counts if its class defines charges.
    """
    devices = charge_context.devices
    for result in allocation.devices.results:
        device = devices.find(result, charge_context.node) if devices.may_be_mapped(result) else None
        if _concerns_node(device, charge_context.class_policy(claim, result.request)):
            return True
    return False


def _concerns_node(device: Device | None, class_policy: ClassPolicy) -> bool:
    return bool(class_policy.charges or (device is not None and device_forms(device)))


def charge_claim(
    claim: ResourceClaim,
    allocation: AllocationResult,
    containers: tuple[str, ...],
    charge_context: ChargeContext,
) -> ChargedClaim | Reason | None:
    """Compute the charge of an allocated claim; None if it charges nothing."""
    found = _find_devices(claim, allocation.devices.results, charge_context)
    if not any(_concerns_node(device, policy) for _, device, policy in found):
        return None
    return _charge_devices(claim, found, containers, charge_context.profile)


def charge_results(
    claim: ResourceClaim,
    results: Sequence[DeviceRequestAllocationResult],
    containers: tuple[str, ...],
    charge_context: ChargeContext,
) -> ChargedClaim | Reason | None:
    """Compute the charge of allocation results, regardless of whether their devices affect node resources."""
    return _charge_devices(
        claim, _find_devices(claim, results, charge_context), containers, charge_context.profile
    )


def _find_devices(
    claim: ResourceClaim, results: Sequence[DeviceRequestAllocationResult], charge_context: ChargeContext
) -> list[tuple[DeviceRequestAllocationResult, Device | None, ClassPolicy]]:
    """Pair results with their published devices and the policies of their classes."""
    return [
        (
            result,
            charge_context.devices.find(result, charge_context.node),
            charge_context.class_policy(claim, result.request),
        )
        for result in results
    ]


def _charge_devices(
    claim: ResourceClaim,
    found: Sequence[tuple[DeviceRequestAllocationResult, Device | None, ClassPolicy]],
    containers: tuple[str, ...],
    profile: AccountingProfile,
) -> ChargedClaim | Reason | None:
    """Compute the charge of allocation results, all of whose devices must be published."""
    parts: list[DeviceCharge] = []
    for result, device, class_policy in found:
        if device is None:
            return _missing(claim, result, profile)
        charges = compute_device_charges(result, device, class_policy, profile)
        if isinstance(charges, Reason):
            return _locate_reason(charges, claim, result)
        parts.extend(charges)
    if not parts:
        return None
    resources = _sum_parts(parts)
    if isinstance(resources, Reason):
        return _locate_reason(resources, claim, None)
    name = claim.metadata.name
    return ChargedClaim(ClaimCharge(name, containers, resources), claim.metadata.uid, tuple(parts))


def _sum_parts(parts: Iterable[DeviceCharge]) -> dict[str, ResourceCharge] | Reason:
    """Sum the charges of all devices by resource name, in order."""
    quantity: dict[str, Quantity] = {}
    per_pod: dict[str, Quantity] = {}
    per_container: dict[str, Quantity] = {}
    policies: dict[str, str] = {}
    for part in parts:
        for total, amount in (
            (quantity, part.quantity),
            (per_pod, part.per_pod),
            (per_container, part.per_container),
        ):
            if amount is not None:
                total[part.resource] = total[part.resource] + amount if part.resource in total else amount
        if part.quantity is None:
            continue
        before = policies.setdefault(part.resource, part.policy)
        if effective_policy(before) is not effective_policy(part.policy):
            both = ", ".join(sorted({effective_policy(p).value for p in (before, part.policy)}))
            return Reason(cause=Cause.TWO_POLICIES, resource=part.resource, detail=both)
        policies[part.resource] = before or part.policy
    names = sorted({*quantity, *per_pod, *per_container})
    return {
        name: ResourceCharge(
            quantity.get(name), per_pod.get(name), per_container.get(name), policies.get(name, "")
        )
        for name in names
    }


def _missing(
    claim: ResourceClaim, result: DeviceRequestAllocationResult, profile: AccountingProfile
) -> Reason:
    exact = profile.exact_devices
    return Reason(
        cause=Cause.DEVICE_NOT_OF_DRIVER if exact else Cause.DEVICE_NOT_IN_POOL,
        namespace=claim.metadata.namespace,
        claim=claim.metadata.name,
        driver=result.driver,
        pool=result.pool,
        device=result.device,
    )


def _locate_reason(
    reason: Reason, claim: ResourceClaim, result: DeviceRequestAllocationResult | None
) -> Reason:
    """Return the reason with its claim and device."""
    placed = replace(reason, namespace=claim.metadata.namespace, claim=claim.metadata.name)
    if result is None:
        return placed
    return replace(placed, driver=result.driver, pool=result.pool, device=result.device)


def read_charged_claims(pod: Pod, profile: AccountingProfile | None = None) -> tuple[ChargedClaim, ...]:
    """Read the charges from a pod's status in any form, or else from its annotation."""
    annotations = (profile or AccountingProfile.default()).annotations
    charges = read_pod(pod) if annotations else read_status(pod.status)
    if not charges:  # most pods
        return ()
    return tuple(
        [
            ChargedClaim(charge, charge.reference.uid if charge.reference is not None else "")
            for charge in charges
        ]
    )
