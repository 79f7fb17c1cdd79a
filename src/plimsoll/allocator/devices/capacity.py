"""Consumption of device capacity by a request.

Implements the rules of KEP-5075: the default consumption, rounding up to the request policy, and rejection of
amounts the policy does not allow. `consume` depends on the request and the device only; usage by other shares
is compared in the search. docs/spec/allocator.md, "Consumable capacity", with the rounding format and the
overflow rule of Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.api.quantity import INT64_MAX, NANO, ZERO, Quantity, divide_up
from plimsoll.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity


@dataclass(frozen=True, slots=True)
class Consumption:
    """Consumption of every capacity of a device, in the order of its capacity names."""

    amounts: Mapping[str, Quantity]
    nano: tuple[int, ...]  #: the amounts in nano-units


@dataclass(frozen=True, slots=True)
class CapacityRefusal:
    """Reason why a device's capacity cannot serve a request; `rule` is one of the constants below."""

    rule: str
    name: str
    wanted: Quantity
    had: Quantity


UNDEFINED = "undefined"  #: the device has no capacity of that name
ABOVE_MAX = "above-max"  #: more than the policy's maximum (`had`)
NO_VALID_VALUE = "no-valid-value"  #: more than the largest valid value (`had`)
OFF_STEP = "off-step"  #: not a multiple of the step (`had`) above the minimum
SHORT = "short"  #: more than the device has (`had`), or has left


@dataclass(frozen=True, slots=True)
class CapacityFault:
    """A request whose consumption cannot be computed; it ends the entire allocation."""

    name: str
    wanted: Quantity
    negative: bool  #: the amount is negative; otherwise it exceeds 64 bits


def consume(
    requests: Mapping[str, Quantity], capacity: Mapping[str, DeviceCapacity]
) -> Consumption | CapacityRefusal | CapacityFault:
    """Compute the consumption of a request on an unused device, or the reason against it."""
    for name, wanted in requests.items():
        if name not in capacity:
            return CapacityRefusal(UNDEFINED, name, wanted, ZERO)
    amounts: dict[str, Quantity] = {}
    # Faults are checked first, so that the result does not depend on the order of the names.
    for name, entry in capacity.items():
        amount = compute_consumed_amount(requests.get(name), entry)
        if amount is None or amount.nano < 0:
            wanted = requests.get(name, ZERO) if amount is None else amount
            return CapacityFault(name, wanted, negative=amount is not None)
        amounts[name] = amount
    for name, entry in capacity.items():
        amount = amounts[name]
        refusal = check_policy(name, amount, entry.request_policy)
        if refusal is not None:
            return refusal
        if amount.nano > capacity_value(entry).nano:
            return CapacityRefusal(SHORT, name, amount, capacity_value(entry))
    return Consumption(amounts, tuple(amount.nano for amount in amounts.values()))


def capacity_value(entry: DeviceCapacity) -> Quantity:
    return ZERO if entry.value is None else entry.value


def compute_consumed_amount(requested: Quantity | None, entry: DeviceCapacity) -> Quantity | None:
    """Round the amount of one capacity up by its policy; None if it overflows 64 bits."""
    policy = entry.request_policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else capacity_value(entry)
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_to_range(requested, policy.valid_range, policy.valid_range.min)
    return next((value for value in policy.valid_values if requested <= value), requested)


def _round_to_range(
    requested: Quantity, valid_range: CapacityRequestPolicyRange, minimum: Quantity
) -> Quantity | None:
    """Round up to the minimum, or to a multiple of the step above it. Steps are counted in units."""
    if requested < minimum:
        return minimum
    step = valid_range.step
    if step is None:
        return requested
    size, base, wanted = _units(step), _units(minimum), _units(requested)
    if size <= 0:
        return requested
    rounded = base + size * divide_up(wanted - base, size)
    # DIFF: Kubernetes 1.36 wraps around and records a negative amount; 1.37 and Plimsoll end the allocation.
    # Test: test_a_step_past_64_bits_is_a_fault
    if wanted > INT64_MAX or rounded > INT64_MAX:
        return None
    # DIFF: Kubernetes 1.36 always writes BinarySI; 1.37 and Plimsoll keep the format of the step.
    # Test: test_a_rounded_amount_has_the_format_of_the_step
    return Quantity.of(rounded, step.format)


def check_policy(name: str, amount: Quantity, policy: CapacityRequestPolicy | None) -> CapacityRefusal | None:
    """Return the reason why a policy does not allow an amount; the default is always allowed."""
    if policy is None or _is_default(amount, policy):
        return None
    if policy.valid_range is not None:
        return _range_refusal(name, amount, policy.valid_range)
    if policy.valid_values and amount not in policy.valid_values:
        return CapacityRefusal(NO_VALID_VALUE, name, amount, max(policy.valid_values))
    return None


def _is_default(amount: Quantity, policy: CapacityRequestPolicy) -> bool:
    default = policy.default
    return default is not None and amount == default and amount.format is default.format


def _range_refusal(
    name: str, amount: Quantity, valid_range: CapacityRequestPolicyRange
) -> CapacityRefusal | None:
    if valid_range.max is not None and amount > valid_range.max:
        return CapacityRefusal(ABOVE_MAX, name, amount, valid_range.max)
    step = valid_range.step
    if step is not None and _units(step) > 0:
        base = _units(valid_range.min) if valid_range.min is not None else 0
        if (_units(amount) - base) % _units(step):
            return CapacityRefusal(OFF_STEP, name, amount, step)
    return None


def _units(quantity: Quantity) -> int:
    """Return the quantity in units, rounded up."""
    return divide_up(quantity.nano, NANO)
