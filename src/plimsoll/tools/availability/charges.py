"""Charges of devices to their node: what of a device or of its capacity still fits into the node's headroom.

The claims are those of a pod that requests nothing itself, so that every accounting policy charges the full
amount.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from plimsoll.allocator.devices.capacity import least_share
from plimsoll.allocator.devices.node_devices import DeviceEntry, NodeDevices, bit_numbers
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.allocator.request_matching import RequestPlan
from plimsoll.allocator.results import device_result
from plimsoll.api.core import Pod
from plimsoll.api.forms import ClassPolicy, DeviceRule, read_class, read_device, read_device_class
from plimsoll.api.quantity import NANO, ZERO, Quantity
from plimsoll.api.resource import DeviceClass, expressions_of
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.claim_headroom import HEADROOM, compute_claim_headroom
from plimsoll.ledger.device_charges import compute_device_charges
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.verdict import Reason
from plimsoll.scheduler.snapshot.snapshot import Snapshot

#: Amounts by node resource, in nano-units.
Amounts = dict[str, int]
#: What claims can get of each capacity of a device, in nano-units: next to what they get of the devices
#: before it, and alone.
CapacityLimits = dict[str, tuple[int, int]]
_NO_POD = Pod()


class NodeShortage(NamedTuple):
    """Resource of which a node has too little left for the charges of a device, in nano-units."""

    resource: str
    needed: int
    left: int


class CapacityLeft(NamedTuple):
    """Capacity of the shareable devices of a class: total, what claims can still get, and the most of it on
    one device.
    """

    total: Quantity
    left: Quantity
    most: Quantity


def read_class_policy(device_class: DeviceClass, profile: AccountingProfile) -> ClassPolicy:
    """Return what a class charges by itself."""
    return read_device_class(device_class) if profile.annotations else read_class(device_class.spec)


class ClassCharges:
    """Charges of the devices of one node that one class selects."""

    def __init__(self, snapshot: Snapshot, row: int, plan: RequestPlan) -> None:
        self._plan = plan
        self._profile = snapshot.profile
        self._policy = read_class_policy(plan.device_class, self._profile)
        #: What is left of the node for claims.
        self.headroom = read_headroom(snapshot, row)

    def of_device(self, entry: DeviceEntry) -> Amounts | None:
        """Return what the allocation of a device charges of bounded resources; None if its charges cannot be
        computed.
        """
        charges = compute_device_charges(
            device_result(self._plan, entry, None), entry.device, self._policy, self._profile
        )
        if isinstance(charges, Reason):
            return None
        total: Amounts = {}
        for charge in charges:
            for amount in (charge.quantity, charge.per_pod, charge.per_container):
                if amount is not None and amount.nano:
                    total[charge.resource] = total.get(charge.resource, 0) + amount.nano
        return {name: amount for name, amount in total.items() if self._is_bounded(name)}

    def find_shortage(self, amounts: Amounts) -> NodeShortage | None:
        """Return the first resource of which the node has too little left."""
        for name, amount in sorted(amounts.items()):
            left = self.headroom.get(name, 0)
            if amount > left:
                return NodeShortage(name, amount, left)
        return None

    def _is_bounded(self, resource: str) -> bool:
        return resource in self.headroom or is_huge_page(resource)

    def limit_capacity(
        self, entries: Iterable[tuple[int, DeviceEntry]], usage: DeviceUsage
    ) -> dict[int, CapacityLimits]:
        """Return what claims can get of each capacity of shareable devices, by device number."""
        charged = ((number, entry, self._policy.rules) for number, entry in entries)
        return _limit_capacity(charged, usage, self.headroom)


def read_headroom(snapshot: Snapshot, row: int) -> Amounts:
    """Return what is left of a node for claims."""
    found = compute_claim_headroom(snapshot.ledger(row), _NO_POD, snapshot.charge_context(row))
    return dict(found.bounds.get(HEADROOM, {}))


def limit_pool_capacity(
    snapshot: Snapshot, devices: NodeDevices, usage: DeviceUsage
) -> dict[int, CapacityLimits]:
    """Return what claims of some class can get of the shareable devices of single nodes, by device number."""
    rows: dict[str, list[tuple[int, DeviceEntry]]] = {}
    for number in bit_numbers(devices.shareable & ~(usage.taken | usage.blocked)):
        entry = devices.entries[number]
        if entry.view.slice.spec.node_name:
            rows.setdefault(entry.view.slice.spec.node_name, []).append((number, entry))
    if not rows:
        return {}
    policies = [
        (read_class_policy(each, snapshot.profile).rules, select_offered(each, devices))
        for _, each in sorted(snapshot.classes.items())
    ]
    found: dict[int, CapacityLimits] = {}
    for node, entries in rows.items():
        row = snapshot.row_of(node)
        if row is None or not snapshot.options.count_claims:
            continue
        charged = (
            (number, entry, next((rules for rules, mask in policies if rules and mask >> number & 1), {}))
            for number, entry in entries
        )
        found |= _limit_capacity(charged, usage, read_headroom(snapshot, row))
    return found


def select_offered(device_class: DeviceClass, devices: NodeDevices) -> int:
    """Return the mask of the devices of a pool that a class selects, on any node."""
    survivors = devices.select(expressions_of(device_class.spec.selectors), ()).survivors
    return survivors[-1] if survivors else devices.all


def _limit_capacity(
    devices: Iterable[tuple[int, DeviceEntry, Mapping[str, DeviceRule]]],
    usage: DeviceUsage,
    headroom: Mapping[str, int],
) -> dict[int, CapacityLimits]:
    """Return the limits of devices of one node, with the rules of their class; capacities are independent of
    each other.
    """
    found: dict[int, CapacityLimits] = {}
    left: dict[str, Amounts] = {}
    for number, entry, class_rules in devices:
        rules = read_device(entry.device) or class_rules
        free = dict(zip(entry.device.capacity, usage.free(number), strict=True))
        found[number] = {}
        for name, amount in free.items():
            rest = left.setdefault(name, dict(headroom))
            alone = _limit(entry, rules, name, amount, dict(headroom))
            found[number][name] = _limit(entry, rules, name, amount, rest), alone
    return found


def _limit(entry: DeviceEntry, rules: Mapping[str, DeviceRule], name: str, amount: int, left: Amounts) -> int:
    """Return how much of a capacity fits, and subtract its charges from what is left."""
    bounded = frozenset(left)
    capacity = entry.device.capacity
    shares = {key: least_share(each) for key, each in capacity.items()}
    slopes: list[tuple[str, int, int]] = []
    for resource, rule in rules.items():
        multiplier = Quantity(NANO) if rule.multiplier is None else rule.multiplier
        fixed = (rule.per_pod or ZERO).nano + (rule.per_container or ZERO).nano
        slope = 0
        if rule.mapped and rule.capacity_key == name:
            slope = multiplier.nano
        elif rule.mapped and rule.capacity_key:
            fixed += shares.get(rule.capacity_key, 0) * multiplier.nano // NANO
        elif rule.mapped and rule.multiplier is not None:
            fixed += multiplier.nano
        if (resource in bounded or is_huge_page(resource)) and (slope or fixed):
            slopes.append((resource, slope, fixed))
    for resource, slope, fixed in slopes:
        rest = left.get(resource, 0) - fixed
        amount = min(amount, rest * NANO // slope if slope else amount if rest >= 0 else 0)
    policy = capacity[name].request_policy
    if policy is not None and policy.valid_range is not None and policy.valid_range.step is not None:
        least, step = (policy.valid_range.min or ZERO).nano, policy.valid_range.step.nano
        if step > 0 and amount >= least:
            amount = least + (amount - least) // step * step
    if amount < max(1, shares[name]):
        return 0
    for resource, slope, fixed in slopes:
        left[resource] = left.get(resource, 0) - fixed - -(-slope * amount // NANO)
    return amount
