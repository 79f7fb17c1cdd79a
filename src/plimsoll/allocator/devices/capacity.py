"""Consumption of device capacity by a request.

Implements the rules of KEP-5075: the default consumption, rounding up to the request policy, and rejection of
amounts the policy does not allow. `consume` depends on the request and the device only; usage by other shares
is compared in the search. docs/spec/allocator.md, "Consumable capacity", with the rounding format, the
overflow rule and the fractional ranges of Kubernetes 1.37: `fractional` is DRAFractionalCapacityRange.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.api.quantity import INT64_MAX, MILLI, NANO, ZERO, Quantity, divide_up
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
    negative: bool  #: the amount is negative; otherwise its range has no number for it (or for the next step)


def consume(
    requests: Mapping[str, Quantity], capacity: Mapping[str, DeviceCapacity], fractional: bool = False
) -> Consumption | CapacityRefusal | CapacityFault:
    """Compute the consumption of a request on an unused device, or the reason against it."""
    for name, wanted in requests.items():
        if name not in capacity:
            return CapacityRefusal(UNDEFINED, name, wanted, ZERO)
    amounts: dict[str, Quantity] = {}
    # Faults are checked first, so that the result does not depend on the order of the names.
    for name, entry in capacity.items():
        amount = compute_consumed_amount(requests.get(name), entry, fractional)
        if amount is None or amount.nano < 0:
            wanted = requests.get(name, ZERO) if amount is None else amount
            return CapacityFault(name, wanted, negative=amount is not None)
        amounts[name] = amount
    for name, entry in capacity.items():
        amount = amounts[name]
        refusal = check_policy(name, amount, entry.request_policy, fractional)
        if refusal is not None:
            return refusal
        if amount.nano > capacity_value(entry).nano:
            return CapacityRefusal(SHORT, name, amount, capacity_value(entry))
    return Consumption(amounts, tuple(amount.nano for amount in amounts.values()))


def capacity_value(entry: DeviceCapacity) -> Quantity:
    return ZERO if entry.value is None else entry.value


def least_share(entry: DeviceCapacity) -> int:
    """Return the smallest amount of a capacity that a share can consume, in nano units."""
    policy = entry.request_policy
    if policy is None or not (policy.valid_range or policy.valid_values):
        return 1 if capacity_value(entry) > ZERO else 0
    allowed = [*policy.valid_values]
    if policy.valid_range is not None:
        allowed.append(policy.valid_range.min or Quantity(1))
    if policy.default is not None:
        allowed.append(policy.default)
    return min(amount.nano for amount in allowed)


def round_down(amount: Quantity, entry: DeviceCapacity) -> Quantity:
    """Return the largest amount up to this one that a request consumes without rounding up; 0 if none."""
    policy = entry.request_policy
    if policy is None:
        return amount
    if policy.valid_values:
        return max((each for each in policy.valid_values if each <= amount), default=ZERO)
    valid = policy.valid_range
    if valid is None or valid.min is None:
        return amount
    if amount < valid.min:
        return ZERO
    amount = amount if valid.max is None else min(amount, valid.max)
    rest = (
        (amount.nano - valid.min.nano) % valid.step.nano
        if valid.step is not None and valid.step > ZERO
        else 0
    )
    return Quantity(amount.nano - rest, amount.format)


def compute_consumed_amount(
    requested: Quantity | None, entry: DeviceCapacity, fractional: bool = False
) -> Quantity | None:
    """Round the amount of one capacity up by its policy; None if the arithmetic of its range has no number
    for it.
    """
    policy = entry.request_policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else capacity_value(entry)
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_to_range(requested, policy.valid_range, policy.valid_range.min, fractional)
    return next((value for value in policy.valid_values if requested <= value), requested)


def _round_to_range(
    requested: Quantity, valid_range: CapacityRequestPolicyRange, minimum: Quantity, fractional: bool
) -> Quantity | None:
    """Round up to the minimum, or to a multiple of the step above it."""
    if requested < minimum:
        return minimum
    step = valid_range.step
    if step is None:
        return requested
    unit = range_unit(valid_range, fractional)
    size, base, wanted = (divide_up(each.nano, unit) for each in (step, minimum, requested))
    if size <= 0:
        return requested
    if unit == MILLI and requested.nano % MILLI:
        return None
    rounded = base + size * divide_up(wanted - base, size)
    # DIFF: Kubernetes 1.36 wraps around and records a negative amount; 1.37 and Plimsoll end the allocation.
    # Test: test_a_step_past_64_bits_is_a_fault
    if wanted > INT64_MAX or rounded > INT64_MAX:
        return None
    # DIFF: Kubernetes 1.36 always writes BinarySI; 1.37 and Plimsoll keep the format of the step.
    # Test: test_a_rounded_amount_has_the_format_of_the_step
    whole, rest = divmod(rounded * unit, NANO)
    return Quantity.of(rounded, step.format, -3) if rest else Quantity.of(whole, step.format)


def range_unit(valid_range: CapacityRequestPolicyRange, fractional: bool) -> int:
    """Return the unit in which the steps of a range are counted, in nano-units.

    Thousandths if the gate is on, some bound is a fraction, and all are whole numbers of thousandths within
    64 bits; otherwise units.
    """
    # DIFF: Kubernetes 1.37 counts whole ranges in thousandths too, so that a request that is finer, or beyond
    # 64 bits of them, ends the allocation; its API documentation limits that to fractional bounds.
    # Test: test_whole_ranges_are_counted_in_units
    bounds = [each for each in (valid_range.min, valid_range.max, valid_range.step) if each is not None]
    if not fractional or not any(each.nano % NANO for each in bounds):
        return NANO
    exact = all(each.nano % MILLI == 0 and abs(each.nano // MILLI) <= INT64_MAX for each in bounds)
    return MILLI if exact else NANO


def check_policy(
    name: str, amount: Quantity, policy: CapacityRequestPolicy | None, fractional: bool = False
) -> CapacityRefusal | None:
    """Return the reason why a policy does not allow an amount; the default is always allowed."""
    if policy is None or _is_default(amount, policy):
        return None
    if policy.valid_range is not None:
        return _range_refusal(name, amount, policy.valid_range, fractional)
    if policy.valid_values and amount not in policy.valid_values:
        return CapacityRefusal(NO_VALID_VALUE, name, amount, max(policy.valid_values))
    return None


def _is_default(amount: Quantity, policy: CapacityRequestPolicy) -> bool:
    default = policy.default
    return default is not None and amount == default and amount.format is default.format


def _range_refusal(
    name: str, amount: Quantity, valid_range: CapacityRequestPolicyRange, fractional: bool
) -> CapacityRefusal | None:
    if valid_range.max is not None and amount > valid_range.max:
        return CapacityRefusal(ABOVE_MAX, name, amount, valid_range.max)
    step = valid_range.step
    if step is None:
        return None
    unit = range_unit(valid_range, fractional)
    size, base = divide_up(step.nano, unit), divide_up((valid_range.min or ZERO).nano, unit)
    if size <= 0:
        return None
    if (unit == MILLI and amount.nano % MILLI) or (divide_up(amount.nano, unit) - base) % size:
        return CapacityRefusal(OFF_STEP, name, amount, step)
    return None
