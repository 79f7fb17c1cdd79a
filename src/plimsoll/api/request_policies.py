"""Request policies that consume nothing or that several capacities share (KEP-5075, "Future Possibilities").

    requestPolicies: {bandwidth: {default: 1G, validRange: {min: 1G, step: 1G}}}
    capacity:
      ingress: {value: 10G, requestPolicy: {requestPolicyName: bandwidth}}
      egress: {value: 10G, requestPolicy: {requestPolicyName: bandwidth}}
      sessions: {value: "1", requestPolicy: {zeroConsumption: true}}

Consumers of devices see the plain form only: a default with valid values or a range.
"""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import CapacityRequestPolicy, Device, DeviceCapacity

#: Meaning of `zeroConsumption: true`.
ZERO_CONSUMPTION = CapacityRequestPolicy(default=ZERO, valid_values=(ZERO,))


#: Results by the identity of the devices, which are kept alive so that no others get it.
_known: dict[int, tuple[tuple[Device, ...], tuple[Device, ...]]] = {}
_MOST = 256


def resolve_request_policies(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices with request policies in the plain form; the same tuple if all are.

    Machines of one type share their devices: results are found again by the identity of the devices.
    """
    known = _known.get(id(devices))
    if known is None:
        if len(_known) >= _MOST:
            del _known[next(iter(_known))]
        known = _known[id(devices)] = devices, _resolve_devices(devices)
    return known[1]


def _resolve_devices(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    for device in devices:
        if device.capacity and any(_is_indirect(entry.request_policy) for entry in device.capacity.values()):
            return tuple(_resolve_device(device) for device in devices)
    return devices


def _resolve_device(device: Device) -> Device:
    if not any(_is_indirect(entry.request_policy) for entry in device.capacity.values()):
        return device
    return replace(device, capacity={name: _resolve_entry(e, device) for name, e in device.capacity.items()})


def _resolve_entry(entry: DeviceCapacity, device: Device) -> DeviceCapacity:
    policy = entry.request_policy
    if policy is None or not _is_indirect(policy):
        return entry
    return replace(entry, request_policy=resolve_request_policy(policy, device))


def resolve_request_policy(policy: CapacityRequestPolicy, device: Device) -> CapacityRequestPolicy | None:
    """Return a policy of a device in the plain form.

    None if its name is unknown, which the API server rejects: a request then consumes the full capacity.
    """
    named = policy
    if policy.request_policy_name:
        found = device.request_policies.get(policy.request_policy_name)
        if found is None:
            return None
        named = found
    return ZERO_CONSUMPTION if named.zero_consumption else named


def _is_indirect(policy: CapacityRequestPolicy | None) -> bool:
    return policy is not None and bool(policy.request_policy_name or policy.zero_consumption)
