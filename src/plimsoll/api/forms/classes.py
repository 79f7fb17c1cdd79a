"""Accounting fields of DeviceClass, under their own and the draft's names (KEP-5517; docs/spec/keps.md)."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api.forms.internal import ClassPolicy, Form
from plimsoll.api.resource import DeviceClassSpec


def read_class(spec: DeviceClassSpec) -> ClassPolicy:
    """Read the accounting of a class; our field names take precedence over the draft's."""
    manages = spec.manages_node_allocatable_resources
    if manages is None:
        manages = spec.manages_native_resources
    policies = spec.node_allocatable_resource_accounting_policies or spec.native_resource_accounting_policies
    return ClassPolicy(bool(manages), dict(policies))


def write_class(spec: DeviceClassSpec, policy: ClassPolicy, form: Form) -> DeviceClassSpec:
    """Return the class spec with this policy; the draft form uses the draft's names."""
    manages = True if policy.manages else None
    draft = form is Form.DRAFT
    return replace(
        spec,
        manages_node_allocatable_resources=None if draft else manages,
        node_allocatable_resource_accounting_policies={} if draft else dict(policy.policies),
        manages_native_resources=manages if draft else None,
        native_resource_accounting_policies=dict(policy.policies) if draft else {},
    )
