"""Validation of device capacities and their request policies (docs/spec/api.md, "ResourceSlice"; KEP-5075).

`zeroConsumption`, `requestPolicyName` and the `requestPolicies` of a device are ideas of KEP-5075, "Future
Possibilities"; no version of Kubernetes has them (docs/allocation.md).

- DIFF: a step that is not positive is rejected; Kubernetes 1.36 panics on a step of zero and accepts a
  negative one (test_step_must_be_positive).
- DIFF: a negative min and a requestPolicy without any field are rejected, as in KEP-5075; Kubernetes 1.36
  accepts them (test_min_must_not_be_negative, test_a_request_policy_must_not_be_empty).
"""

from __future__ import annotations

from plimsoll.api.names import LABEL_MAX
from plimsoll.api.quantity import INT64_MAX, MILLI, NANO, ZERO, Quantity, divide_up
from plimsoll.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Device,
    DeviceCapacity,
)
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_found,
    required,
    validate_map,
    validate_set,
)
from plimsoll.apiserver.validation.name_formats import validate_label

VALUES_MAX = 10
POLICIES_MAX = 8


def validate_exclusive_capacity(capacity: DeviceCapacity, path: FieldPath) -> FieldErrors:
    """Validate a capacity of a device that is allocated to a single claim."""
    if capacity.request_policy is not None:
        yield forbidden(path.child("requestPolicy"), "needs allowMultipleAllocations: true on the device")


def validate_shared_capacity(
    device: Device, fractional: bool, capacity: DeviceCapacity, path: FieldPath
) -> FieldErrors:
    """Validate a capacity of a device that several claims can share."""
    policy = capacity.request_policy
    if policy is None:
        return
    at = path.child("requestPolicy")
    name = policy.request_policy_name
    if name is None:
        yield from _validate_policy(policy, capacity.value or ZERO, at, fractional)
    elif policy != CapacityRequestPolicy(request_policy_name=name):
        yield forbidden(at, "must have nothing else if it has a requestPolicyName")
    elif name not in device.request_policies:
        yield not_found(at.child("requestPolicyName"), name, "must be one of the device's requestPolicies")


def validate_request_policies(device: Device, fractional: bool, path: FieldPath) -> FieldErrors:
    """Validate the request policies that capacities of a device refer to by name."""
    if device.request_policies and not device.allow_multiple_allocations:
        yield forbidden(path, "needs allowMultipleAllocations: true on the device")
        return

    def validate_named(entry: tuple[str, CapacityRequestPolicy], at: FieldPath) -> FieldErrors:
        name, policy = entry
        values = [
            capacity.value or ZERO
            for capacity in device.capacity.values()
            if capacity.request_policy is not None and capacity.request_policy.request_policy_name == name
        ]
        if policy.request_policy_name is not None:
            yield forbidden(at.child("requestPolicyName"), "must not refer to another policy")
        elif not values:
            yield invalid(at, name, "must be the requestPolicyName of at least one capacity")
        else:
            # A policy that suits the smallest capacity suits all of them.
            yield from _validate_policy(policy, min(values), at, fractional)

    yield from validate_map(
        {name: (name, policy) for name, policy in device.request_policies.items()},
        POLICIES_MAX,
        LABEL_MAX,
        validate_label,
        validate_named,
        path,
    )


def _validate_policy(
    policy: CapacityRequestPolicy, value: Quantity, at: FieldPath, fractional: bool
) -> FieldErrors:
    if policy.zero_consumption:
        if policy != CapacityRequestPolicy(zero_consumption=True):
            yield forbidden(at, "must not have default, validValues or validRange with zeroConsumption")
        return
    if policy.zero_consumption is not None:
        yield invalid(at.child("zeroConsumption"), False, "must be true or left out")
    if policy in (CapacityRequestPolicy(), CapacityRequestPolicy(zero_consumption=False)):
        yield required(at, "must have default, validValues, validRange, zeroConsumption or requestPolicyName")
    if policy.valid_values and policy.valid_range is not None:
        yield forbidden(at, "must have validValues or validRange, not both")
    elif policy.valid_values or policy.valid_range is not None:
        if policy.default is None:
            yield required(at.child("default"), "must be given along with validValues or validRange")
        elif policy.valid_range is not None:
            bounds = policy.valid_range
            yield from _validate_range(policy.default, value, bounds, at.child("validRange"), fractional)
        else:
            yield from _validate_values(policy.default, value, policy, at.child("validValues"), fractional)


def _validate_values(
    default: Quantity, capacity: Quantity, policy: CapacityRequestPolicy, path: FieldPath, fractional: bool
) -> FieldErrors:
    values = policy.valid_values
    for index in range(1, len(values)):
        if values[index - 1] > values[index]:
            yield invalid(path.index(index), values[index], "must not be smaller than the value before it")

    def validate_value(value: Quantity, at: FieldPath) -> FieldErrors:
        if value > capacity:
            yield invalid(at, value, f"must not be larger than the capacity, {capacity}")

    def key(value: Quantity) -> int:
        """Without DRAFractionalCapacityRange values are rounded up, so that 500m and 600m are equal."""
        return value.nano if fractional else value.value()

    yield from validate_set(values, VALUES_MAX, validate_value, key, path)
    if len(values) > VALUES_MAX or default not in values:
        yield invalid(path, default, "must contain the default")


def _validate_range(
    default: Quantity,
    capacity: Quantity,
    given: CapacityRequestPolicyRange,
    path: FieldPath,
    fractional: bool,
) -> FieldErrors:
    low, high, step = given.min, given.max, given.step
    if low is None:
        yield required(path.child("min"), "must be given in a validRange")
        return
    if low.sign() < 0:
        yield invalid(path.child("min"), low, "must not be negative")
    if low > capacity:
        yield invalid(path.child("min"), low, f"must not be larger than the capacity, {capacity}")
    if default < low:
        yield invalid(path.child("min"), low, f"must not be larger than the default, {default}")
    if high is not None:
        if low > high:
            yield invalid(path.child("max"), high, f"must not be smaller than min, {low}")
        if high > capacity:
            yield invalid(path.child("max"), high, f"must not be larger than the capacity, {capacity}")
        if default > high:
            yield invalid(path.child("max"), high, f"must not be smaller than the default, {default}")
    # Fractions count in thousandths, everything else in units.
    bounds = {"default": default, "min": low, "max": high, "step": step}
    numbers = {name: value for name, value in bounds.items() if value is not None}
    unit = MILLI if fractional and any(value.nano % NANO for value in numbers.values()) else NANO
    inexact = {name for name, value in numbers.items() if unit == MILLI and not _is_milli(value)}
    for name in sorted(inexact):
        yield invalid(path.child(name), numbers[name], "must be a whole number of thousandths")
    if step is not None and not inexact:
        yield from _validate_step(default, capacity, low, high, step, unit, path.child("step"))


def _is_milli(value: Quantity) -> bool:
    return value.nano % MILLI == 0 and abs(value.nano // MILLI) <= INT64_MAX


def _validate_step(
    default: Quantity,
    capacity: Quantity,
    low: Quantity,
    high: Quantity | None,
    step: Quantity,
    unit: int,
    path: FieldPath,
) -> FieldErrors:
    if step.sign() <= 0:
        yield invalid(path, step, "must be larger than zero")
        return
    if low + step > capacity:
        yield invalid(path, step, f"one step above min must not be larger than the capacity, {capacity}")
    size, base = divide_up(step.nano, unit), divide_up(low.nano, unit)
    for name, value in (("default", default), ("max", high)):
        if value is not None and (divide_up(value.nano, unit) - base) % size:
            yield invalid(path, step, f"{name}, {value}, must be min plus a whole number of steps")
