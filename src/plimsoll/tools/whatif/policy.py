"""`under_policy`: the same cluster under another accounting policy.

Every device that charges its node does so under one policy, and the charges of running pods are recomputed
from their claims. Policies of DeviceClasses are removed. See KEP-5517, "Accounting Policies"
(docs/spec/keps.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_values
from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import (
    POD_KEY,
    POLICIES,
    Form,
    read_class,
    read_device,
    read_pod,
    write_class,
    write_device,
)
from plimsoll.api.pod_claims import uses_claims
from plimsoll.api.resource import Device, DeviceClass, ResourceSlice
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.objects import ClusterObjects


def under_policy(objects: ClusterObjects, policy: str) -> Iterator[Any]:
    """Yield the objects that change when everything is charged under one policy."""
    if policy not in POLICIES:
        raise InputError(f"policy {policy!r}: unknown accounting policy; valid values: {', '.join(POLICIES)}")
    for slice in objects.all(ResourceSlice):
        devices = tuple(_device(device, policy) for device in slice.spec.devices or ())
        if devices != (slice.spec.devices or ()):
            yield replace(slice, spec=replace(slice.spec, devices=devices))
    for each in objects.all(DeviceClass):
        known = read_class(each.spec)
        if known.policies:
            written = write_class(each.spec, with_values(known, policies={}), Form.V1_37)
            yield replace(each, spec=written)
    for pod in objects.all(Pod):
        if uses_claims(pod) and read_pod(pod):
            yield _uncharged(pod)


def _device(device: Device, policy: str) -> Device:
    rules = read_device(device)
    changed = {
        name: with_values(rule, policy=policy) if rule.mapped else rule for name, rule in rules.items()
    }
    return device if changed == rules else write_device(device, changed, Form.V1_37).view


def _uncharged(pod: Pod) -> Pod:
    """Return the pod without recorded charges, so that they follow from its claims."""
    status = replace(pod.status, node_allocatable_resource_claim_statuses=(), native_resource_claim_status=())
    annotations = {key: text for key, text in pod.metadata.annotations.items() if key != POD_KEY}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations), status=status)
