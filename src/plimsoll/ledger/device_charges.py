"""Charges of an allocated device to its node.

Converts one allocation result to amounts of node resources, in every wire form:

    a capacity key          the consumed amount of that capacity x multiplier
    no capacity key         the multiplier, once per result (a shared device counts per share)
    overhead                per pod and per container, in addition to the mapping

A device without mappings uses those in its class's annotation, if any. Products are rounded up to nano-units.
The accounting policy is the device's, else that of the class it was requested by, else none, which means
AddPerClaim unless the class has policies for other resources. docs/spec/accounting.md, "Accounting policies";
KEP-5517, "Kube-Scheduler Workflow" and "Accounting Policy Precedence".
"""

from __future__ import annotations

from msgspec import Struct

from plimsoll.api.forms import (
    CLASS_KEY,
    POLICIES,
    ClassPolicy,
    DeviceRule,
    Form,
    device_forms,
    read_device,
)
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import Device, DeviceRequestAllocationResult
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.verdict import Cause, Reason

_FIELDS = {
    Form.V1_36: "NodeAllocatableResourceMappings",
    Form.V1_37: "NodeAllocatableResources",
    Form.DRAFT: "NativeResourceMappings",
}
NO_CLASS = ClassPolicy()


class DeviceCharge(Struct, frozen=True):
    """Charge of one allocation result to one node resource."""

    device: DeviceId
    resource: str
    quantity: Quantity | None  #: by the mapping; None where there is overhead only
    per_pod: Quantity | None = None
    per_container: Quantity | None = None
    policy: str = ""  #: as resolved; empty if none is set


def compute_device_charges(
    result: DeviceRequestAllocationResult,
    device: Device,
    class_policy: ClassPolicy = NO_CLASS,
    profile: AccountingProfile | None = None,
) -> tuple[DeviceCharge, ...] | Reason:
    """Compute the charges of a result by resource, or the reason why they cannot be computed."""
    profile = profile or AccountingProfile.default()
    if result.admin_access and not profile.charge_admin_access:
        return ()
    if class_policy.problem:
        return Reason(cause=Cause.BAD_ANNOTATION, detail=class_policy.problem)
    charges = []
    for resource, rule in sorted((read_device(device) or class_policy.rules).items()):
        amount = _mapped(result, device, resource, rule, profile)
        if isinstance(amount, Reason):
            return amount
        if amount is None and rule.per_pod is None and rule.per_container is None:
            continue
        policy = resolve_policy(resource, rule, class_policy, profile)
        if isinstance(policy, Reason):
            return policy
        charges.append(
            DeviceCharge(DeviceId.of(result), resource, amount, rule.per_pod, rule.per_container, policy)
        )
    return tuple(charges)


def _mapped(
    result: DeviceRequestAllocationResult,
    device: Device,
    resource: str,
    rule: DeviceRule,
    profile: AccountingProfile,
) -> Quantity | Reason | None:
    if not rule.mapped:
        return None
    if not rule.capacity_key:
        return ZERO if rule.multiplier is None else rule.multiplier
    consumed = result.consumed_capacity.get(rule.capacity_key)
    if consumed is None and profile.whole_capacity and not device.allow_multiple_allocations:
        capacity = device.capacity.get(rule.capacity_key)
        consumed = capacity.value if capacity is not None else None
    if consumed is None:
        if result.consumed_capacity:
            return None  # this allocation does not consume the capacity
        forms = device_forms(device)
        return Reason(
            cause=Cause.NO_CONSUMED_CAPACITY,
            resource=resource,
            driver=result.driver,
            pool=result.pool,
            device=result.device,
            key=rule.capacity_key,
            detail=_FIELDS[forms[0]] if forms else f"annotation {CLASS_KEY} of its class",
        )
    return consumed if rule.multiplier is None else consumed.multiply(rule.multiplier)


def resolve_policy(
    resource: str, rule: DeviceRule, class_policy: ClassPolicy, profile: AccountingProfile
) -> str | Reason:
    """Return the policy of the device or of the class, or "" (AddPerClaim).

    A class that manages node resources and has policies must have one for each resource. Without any policy,
    as in the examples of the draft of KEP-5517, the policy is implicit.
    """
    if not profile.policies:
        return ""
    policy = rule.policy or class_policy.policies.get(resource, "")
    if policy and policy not in POLICIES:
        return Reason(cause=Cause.UNKNOWN_POLICY, resource=resource, policy=policy)
    if not policy and rule.mapped and class_policy.manages and class_policy.policies:
        return Reason(cause=Cause.NO_POLICY, resource=resource)
    return policy
