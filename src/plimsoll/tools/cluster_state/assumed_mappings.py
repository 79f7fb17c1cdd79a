"""Assumed mappings: devices that are node resources get the mapping their driver does not publish.

Used with `--assume-mapping`. The mapping is added to the ResourceSlices of a `ClusterState`, before any
ledger is computed from them, so that every tool counts the same amounts. The policy is Max: without mappings,
pods repeat the amounts of their claims in their requests, and these must not count twice. What a driver or a
DeviceClass declares takes precedence.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from plimsoll.api.forms import (
    AccountingPolicy,
    DeviceRule,
    Form,
    device_forms,
    read_device_class,
    write_device,
)
from plimsoll.api.resource import Device, DeviceClass, ResourceSlice, expressions_of
from plimsoll.tools.cluster_state.node_resources import NodeResourceGuess, guess_node_resources

#: Policy of assumed and suggested mappings.
POLICY = AccountingPolicy.MAX.value


def may_serve(device_class: DeviceClass, driver: str) -> bool:
    """Return whether a class may select devices of a driver, judging by its selectors' text."""
    texts = expressions_of(device_class.spec.selectors)
    return not texts or any(driver in text for text in texts)


def suggested_rule(guess: NodeResourceGuess) -> DeviceRule:
    """Return the mapping that a class or driver could declare for such devices."""
    if guess.capacity:
        return DeviceRule(guess.capacity, policy=POLICY)
    return DeviceRule(None, guess.amount, policy=POLICY)


class AssumedMappings:
    """Adds assumed mappings to slices; keeps the published slices, to follow changes of classes."""

    def __init__(self) -> None:
        self.drivers: dict[str, set[str]] = {}  #: drivers with assumed mappings, and their resources
        self._published: dict[str, ResourceSlice] = {}
        self._charging: dict[str, DeviceClass] = {}

    def copy(self) -> AssumedMappings:
        """Return an independent copy."""
        made = AssumedMappings()
        made.drivers = {driver: set(resources) for driver, resources in self.drivers.items()}
        made._published = dict(self._published)
        made._charging = dict(self._charging)
        return made

    def set_class(self, name: str, device_class: DeviceClass | None) -> bool:
        """Record a class, None if it is gone; return whether the mappings of slices must be assumed again."""
        before = self._charging.pop(name, None)
        if device_class is not None and read_device_class(device_class).charges:
            self._charging[name] = device_class
        return before is not self._charging.get(name)

    def add_slice(self, slice: ResourceSlice) -> ResourceSlice:
        """Return a published slice with assumed mappings."""
        self._published[slice.metadata.name] = slice
        return self._with_mappings(slice)

    def remove_slice(self, name: str) -> None:
        self._published.pop(name, None)

    def all_slices(self) -> Iterator[ResourceSlice]:
        """Yield all slices with their mappings assumed anew."""
        self.drivers.clear()
        yield from map(self._with_mappings, self._published.values())

    def describe(self) -> str:
        """Describe the assumed mappings in one line."""
        parts = [f"{', '.join(sorted(names))} of {driver}" for driver, names in sorted(self.drivers.items())]
        return f"claims for {'; '.join(parts)} are counted" if parts else "no devices without a mapping found"

    def _with_mappings(self, slice: ResourceSlice) -> ResourceSlice:
        driver = slice.spec.driver
        if any(may_serve(each, driver) for each in self._charging.values()):
            return slice
        devices = tuple(self._assume(driver, device) for device in slice.spec.devices or ())
        if all(new is old for new, old in zip(devices, slice.spec.devices or (), strict=True)):
            return slice
        return replace(slice, spec=replace(slice.spec, devices=devices))

    def _assume(self, driver: str, device: Device) -> Device:
        if device_forms(device):
            return device
        guesses = list(guess_node_resources(driver, device))
        if not guesses:
            return device
        for guess in guesses:
            self.drivers.setdefault(driver, set()).add(guess.resource)
        return write_device(device, {g.resource: assumed_rule(g, device) for g in guesses}, Form.V1_36).view


def assumed_rule(guess: NodeResourceGuess, device: Device) -> DeviceRule:
    """Return the mapping assumed for one device."""
    if guess.capacity and device.allow_multiple_allocations:
        return suggested_rule(guess)
    # An exclusive device takes all it has; kube-scheduler 1.36 cannot compute that from a capacity.
    return DeviceRule(None, guess.amount, policy=POLICY)
