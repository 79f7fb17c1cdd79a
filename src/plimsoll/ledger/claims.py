"""What the claims of a pod charge, claim by claim.

Owns the bill of a claim: which ResourceClaim a pod's claim name means (generated ones are named in the pod's
status), which containers refer to it, and what its allocated devices charge together. A claim is billed once
per pod however many containers refer to it, and also when none does. A prioritized list charges what was
chosen, under the class of the chosen (sub)request (point P4 of the accounting semantics); one claim cannot
have two policies for one resource (P5). Document 000, "Handling Shared Claims" to "Unreferenced Claims".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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


@dataclass(frozen=True, slots=True)
class ChargedClaim:
    """What one claim charges to one pod, and the devices it comes from.

    A bill read back from a pod's status has no parts: the status does not name devices. `uid` is the claim's,
    where it is known.
    """

    charge: ClaimCharge
    uid: str = ""
    parts: tuple[DeviceCharge, ...] = ()

    @property
    def claim(self) -> str:
        return self.charge.claim

    def policy(self, resource: str) -> AccountingPolicy:
        """The policy for a resource; where none is named, or one we do not know, it is added per claim."""
        return effective_policy(self.charge.resources[resource].policy)

    def devices(self, resource: str) -> tuple[DeviceId, ...]:
        """The devices that charge a resource, each once."""
        return tuple(dict.fromkeys(part.device for part in self.parts if part.resource == resource))


_POLICIES = {policy.value: policy for policy in AccountingPolicy}


def effective_policy(text: str) -> AccountingPolicy:
    """The policy a text names; none named means adding per claim, and so does a name from the future."""
    return _POLICIES.get(text, AccountingPolicy.ADD_PER_CLAIM)


# -- which claims a pod has


def resolve_claim_names(pod: Pod) -> dict[str, str]:
    """The names a pod has for its claims -> the claims; those not generated yet are left out.

    The claim made for extended resources has no name in the pod; it goes by the empty one.
    """
    generated = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = {}
    for reference in pod.spec.resource_claims:
        name = reference.resource_claim_name
        if name is None and reference.resource_claim_template_name is not None:
            name = generated.get(reference.name)
        if name:
            names[reference.name] = name
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        names[""] = extended.resource_claim_name
    return names


def find_referring_containers(
    pod: Pod, names: Mapping[str, str], claim: str, profile: AccountingProfile
) -> tuple[str, ...]:
    """The containers that refer to a claim, init containers first; each once unless the profile repeats."""
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
    """The class of the request, or of the chosen alternative (`request/alternative`), a result answers."""
    name, _, alternative = request.partition("/")
    for entry in claim.spec.devices.requests:
        if entry.name != name:
            continue
        for sub in entry.first_available:
            if sub.name == alternative:
                return sub.device_class_name
        return entry.exactly.device_class_name if entry.exactly is not None else ""
    return ""


# -- what they charge


@dataclass(frozen=True, slots=True)
class ChargeContext:
    """What is needed to price claims: the devices of a node and the classes."""

    devices: DeviceIndex
    node: Node | None = None
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    profile: AccountingProfile = field(default_factory=AccountingProfile.default)

    def class_policy(self, claim: ResourceClaim, request: str) -> ClassPolicy:
        found = self.classes.get(find_requested_class(claim, request))
        if found is None:
            return NO_CLASS
        return read_device_class(found) if self.profile.annotations else read_class(found.spec)


def has_node_allocatable_device(
    claim: ResourceClaim, allocation: AllocationResult, charge_context: ChargeContext
) -> bool:
    """Whether a device of an allocation has anything to do with node resources, as far as they are known.

    A device that is not published counts if its class says what such devices charge.
    """
    return any(
        _concerns_node(
            charge_context.devices.find(result, charge_context.node),
            charge_context.class_policy(claim, result.request),
        )
        for result in allocation.devices.results
    )


def _concerns_node(device: Device | None, class_policy: ClassPolicy) -> bool:
    return bool(class_policy.charges or (device is not None and device_forms(device)))


def charge_claim(
    claim: ResourceClaim,
    allocation: AllocationResult,
    containers: tuple[str, ...],
    charge_context: ChargeContext,
) -> ChargedClaim | Reason | None:
    """The bill of an allocated claim; None if it charges nothing."""
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
    """The bill of allocation results, whether or not any of their devices has to do with node resources."""
    return _charge_devices(
        claim, _find_devices(claim, results, charge_context), containers, charge_context.profile
    )


def _find_devices(
    claim: ResourceClaim, results: Sequence[DeviceRequestAllocationResult], charge_context: ChargeContext
) -> list[tuple[DeviceRequestAllocationResult, Device | None, ClassPolicy]]:
    """Results with the devices they name, where published, and what the classes they ask for say."""
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
    """The bill of allocation results, each of which must name a device that is published."""
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
    """The charges of all devices together, by resource name in order."""
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
    """The reason with the claim and the device it is about."""
    placed = replace(reason, namespace=claim.metadata.namespace, claim=claim.metadata.name)
    if result is None:
        return placed
    return replace(placed, driver=result.driver, pool=result.pool, device=result.device)


def read_charged_claims(pod: Pod, profile: AccountingProfile | None = None) -> tuple[ChargedClaim, ...]:
    """The bills a pod carries in its status, whatever form they are written in, or else in its annotation."""
    annotations = (profile or AccountingProfile.default()).annotations
    return tuple(
        ChargedClaim(charge, charge.reference.uid if charge.reference is not None else "")
        for charge in (read_pod(pod) if annotations else read_status(pod.status))
    )
