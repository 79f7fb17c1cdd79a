"""What a DeviceClass says about accounting, under its own names and the draft's (document 000, policies)."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api.forms.internal import ClassPolicy, Form
from plimsoll.api.resource import DeviceClassSpec


def read_class(spec: DeviceClassSpec) -> ClassPolicy:
    """What a class says, under our names or the draft's; ours win where both are given."""
    manages = spec.manages_node_allocatable_resources
    if manages is None:
        manages = spec.manages_native_resources
    policies = spec.node_allocatable_resource_accounting_policies or spec.native_resource_accounting_policies
    return ClassPolicy(bool(manages), dict(policies))


def write_class(spec: DeviceClassSpec, policy: ClassPolicy, form: Form) -> DeviceClassSpec:
    """The class spec with this policy; the draft form uses the draft's names."""
    manages = True if policy.manages else None
    draft = form is Form.DRAFT
    return replace(
        spec,
        manages_node_allocatable_resources=None if draft else manages,
        node_allocatable_resource_accounting_policies={} if draft else dict(policy.policies),
        manages_native_resources=manages if draft else None,
        native_resource_accounting_policies=dict(policy.policies) if draft else {},
    )
