"""Mappings that DeviceClasses can declare for devices that are node resources without one.

A suggestion is tried before it is made: with it, the ledger's own rules must charge every device that the
class selects, and every allocation by the class, exactly what they take of their node. Devices that need
different mappings (`dra.cpu` publishes single CPUs and groups of them) get a class each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from plimsoll.allocator.devices.node_devices import selector_environment
from plimsoll.allocator.devices.slices import SliceView
from plimsoll.allocator.features import Features
from plimsoll.api.codec import encode
from plimsoll.api.forms import (
    CLASS_KEY,
    ClassPolicy,
    DeviceRule,
    Form,
    device_forms,
    read_class_annotation,
    write_device,
)
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    Device,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceSlice,
    expressions_of,
)
from plimsoll.cel import ProgramCache
from plimsoll.errors import CelCompileError
from plimsoll.ledger.claims import find_requested_class
from plimsoll.ledger.device_charges import compute_device_charges
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.verdict import Reason
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.assumed_mappings import assumed_rule, may_serve, suggested_rule
from plimsoll.tools.cluster_state.node_resources import guess_node_resources, taken_by

#: Classes suggested instead of one.
_MAX_CLASSES = 4
_PROGRAMS = ProgramCache()


@dataclass(frozen=True, slots=True)
class ClassMapping:
    """Annotation of a DeviceClass by which its claims are counted; one with selectors is to be created."""

    device_class: str
    value: str
    driver: str
    selectors: tuple[str, ...] = ()
    replaces: bool = False  #: the class has such an annotation already

    def yaml_lines(self) -> list[str]:
        lines = [
            "apiVersion: resource.k8s.io/v1",
            "kind: DeviceClass",
            "metadata:",
            f"  name: {self.device_class}",
            "  annotations:",
            f"    {CLASS_KEY}: '{self.value}'",
        ]
        if self.selectors:
            lines += ["spec:", "  selectors:"]
            lines += [
                line for each in self.selectors for line in ("  - cel:", f"      expression: {_quote(each)}")
            ]
        return lines

    @property
    def command(self) -> str:
        """Command that annotates an existing class."""
        overwrite = "--overwrite " if self.replaces else ""
        return f"kubectl annotate {overwrite}deviceclass {self.device_class} {CLASS_KEY}='{self.value}'"

    def as_json(self) -> dict[str, str]:
        return {
            "deviceClass": self.device_class,
            "driver": self.driver,
            "annotation": self.value,
            "yaml": "\n".join(self.yaml_lines()),
        }


def _quote(text: str) -> str:
    return "'" + " ".join(text.split()).replace("'", "''") + "'"


def describe_mappings(found: Sequence[ClassMapping], *, brief: bool = False) -> str:
    """Return how to declare mappings: a command for each class, or the new classes as YAML after the first
    line, which `brief` leaves out.
    """
    if not found:
        return ""
    if not found[0].selectors:
        return f"annotate the DeviceClass: {'; '.join(each.command for each in found)}"
    if brief:
        return "create a DeviceClass for each kind of device (see PLM010)"
    blocks = "\n---\n".join("\n".join(each.yaml_lines()) for each in found)
    names = " or ".join(each.device_class for each in found)
    return (
        "create a DeviceClass for each kind of device, since they need different mappings, and request "
        f"{names} in claims (existing claims keep their class until they are created again):\n{blocks}"
    )


def suggest_mappings(cluster_state: ClusterState, name: str, driver: str) -> tuple[ClassMapping, ...]:
    """Return the annotation of a class that counts the claims for devices of a driver: of the class itself,
    or of new classes if its devices need different mappings. Empty if none counts all of them right.
    """
    snapshot = cluster_state.snapshot
    device_class = snapshot.find(DeviceClass, "", name)
    if device_class is None:
        return ()
    views = [
        view for view in _views(snapshot.all(ResourceSlice)) if may_serve(device_class, view.pool.driver)
    ]
    own = expressions_of(device_class.spec.selectors)
    devices = _unmapped(views, own, snapshot.features)
    groups: dict[str, list[_UnmappedDevice]] = {}
    for device in devices:
        groups.setdefault(_annotation_for(device, snapshot.profile), []).append(device)
    held = [*_allocations(cluster_state, name, devices)]
    for value in sorted(filter(None, groups), key=lambda value: (-len(groups[value]), value)):
        if _counts(value, [*((each.whole, each) for each in devices), *held], snapshot.profile):
            return (
                ClassMapping(name, value, driver, replaces=CLASS_KEY in device_class.metadata.annotations),
            )
    return _split(cluster_state, device_class, groups, views, held)


def _split(
    cluster_state: ClusterState,
    device_class: DeviceClass,
    groups: Mapping[str, list[_UnmappedDevice]],
    views: Sequence[SliceView],
    held: Iterable[tuple[DeviceRequestAllocationResult, _UnmappedDevice]],
) -> tuple[ClassMapping, ...]:
    """Return a class for each group of devices that one mapping counts; empty if one cannot be selected."""
    profile, features = cluster_state.snapshot.profile, cluster_state.snapshot.features
    own = expressions_of(device_class.spec.selectors)
    mapped = {value: group for value, group in groups.items() if value}
    if len(mapped) > _MAX_CLASSES:
        return ()
    found: list[ClassMapping] = []
    names = {each.metadata.name for each in cluster_state.objects.all(DeviceClass)}
    for value, group in mapped.items():
        wanted = {each.key for each in group}
        parts = [(result, each) for result, each in held if each.key in wanted]
        if not _counts(value, [*((each.whole, each) for each in group), *parts], profile):
            return ()
        for condition in _conditions(group):
            selectors = (*own, condition)
            if {each.key for each in _unmapped(views, selectors, features)} == wanted:
                break  # conditions have no errors: they test an attribute before they read it
        else:
            return ()
        base = f"{device_class.metadata.name}-{'grouped' if 'capacityKey' in value else 'individual'}"
        numbered = (f"{base}-{number}" for number in itertools.count(2))
        name = next(name for name in itertools.chain((base,), numbered) if name not in names)
        names.add(name)
        found.append(ClassMapping(name, value, group[0].driver, selectors))
    return tuple(found)


def _conditions(group: Sequence[_UnmappedDevice]) -> Iterator[str]:
    """Yield selectors that may separate a group from the other devices of its class."""
    first = group[0]
    evidence = {
        word for each in guess_node_resources(first.driver, first.device) for word in each.why.split()
    }
    for names, field in ((first.device.capacity, "capacity"), (first.device.attributes, "attributes")):
        for name in sorted(names, key=lambda name: name not in evidence):
            domain, _, last = name.rpartition("/")
            yield f'"{last}" in device.{field}["{domain or first.driver}"]'
    yield "device.allowMultipleAllocations"
    yield "!device.allowMultipleAllocations"
    yield f'device.driver == "{first.driver}"'
    for name, attribute in first.device.attributes.items():
        domain, _, last = name.rpartition("/")
        if attribute.int_value is not None:
            attributes = f'device.attributes["{domain or first.driver}"]'
            yield f'"{last}" in {attributes} && {attributes}["{last}"] == {attribute.int_value}'


# -- devices of a class


@dataclass(frozen=True, slots=True)
class _UnmappedDevice:
    """Device without a mapping of its own."""

    driver: str
    device: Device

    @property
    def key(self) -> int:
        return id(self.device)

    @property
    def whole(self) -> DeviceRequestAllocationResult:
        return whole_device(self.driver, self.device)


def _views(slices: Iterable[ResourceSlice]) -> list[SliceView]:
    """Return the slices with devices, one for each content: machines of one type share their devices."""
    return list({(each.spec.driver, id(each.spec.devices)): SliceView(each) for each in slices}.values())


def selects(device_class: DeviceClass, view: SliceView, index: int, features: Features) -> bool:
    """Return whether a class selects a device of a slice."""
    return is_selected(view, index, expressions_of(device_class.spec.selectors), features)


def is_selected(view: SliceView, index: int, expressions: Iterable[str], features: Features) -> bool:
    """Return whether CEL expressions select a device of a slice; invalid ones select none."""
    try:
        programs = [_PROGRAMS.compile(each, selector_environment(features)) for each in expressions]
    except CelCompileError:
        return False
    return all(index in view.matches(program) for program in programs)


def _unmapped(
    views: Iterable[SliceView], expressions: Sequence[str], features: Features
) -> list[_UnmappedDevice]:
    return [
        _UnmappedDevice(view.pool.driver, device)
        for view in views
        for index, device in enumerate(view.slice.spec.devices or ())
        if not device_forms(device) and is_selected(view, index, expressions, features)
    ]


def _allocations(
    cluster_state: ClusterState, name: str, devices: Iterable[_UnmappedDevice]
) -> Iterator[tuple[DeviceRequestAllocationResult, _UnmappedDevice]]:
    """Yield the allocations of devices by a class."""
    known = {each.key: each for each in devices}
    published = cluster_state.snapshot.charge_context().devices
    for claim in cluster_state.objects.all(ResourceClaim):
        for result in claim.allocation_results:
            if not result.admin_access and find_requested_class(claim, result.request) == name:
                each = known.get(id(published.find(result)))
                if each is not None:
                    yield result, each


# -- trial of a mapping


def charges_in_full(
    result: DeviceRequestAllocationResult, device: Device, policy: ClassPolicy, profile: AccountingProfile
) -> bool:
    """Return whether a class charges an allocation what it takes of its node: by its capacity, or at least as
    much.
    """
    charged = _charged(result, device, policy, profile)
    if charged is None:
        return False
    for guess in taken_by(result, device):
        rule, amount = policy.rules.get(guess.resource), charged.get(guess.resource)
        if rule is None or amount is None or not (rule.capacity_key or amount >= guess.amount):
            return False
    return True


def whole_device(driver: str, device: Device) -> DeviceRequestAllocationResult:
    """Return the allocation of an entire device."""
    shared = device.allow_multiple_allocations
    consumed = {
        name: each.value for name, each in device.capacity.items() if shared and each.value is not None
    }
    return DeviceRequestAllocationResult(driver=driver, device=device.name, consumed_capacity=consumed)


def _counts(
    value: str,
    allocations: Iterable[tuple[DeviceRequestAllocationResult, _UnmappedDevice]],
    profile: AccountingProfile,
) -> bool:
    """Return whether a class with this annotation charges allocations exactly what they take."""
    policy = read_class_annotation(value)
    if not isinstance(policy, ClassPolicy):
        return False
    for result, each in allocations:
        taken = {guess.resource: guess.amount for guess in taken_by(result, each.device) if guess.amount}
        if _charged(result, each.device, policy, profile) != taken:
            return False
    return True


def _charged(
    result: DeviceRequestAllocationResult, device: Device, policy: ClassPolicy, profile: AccountingProfile
) -> dict[str, Quantity] | None:
    charges = compute_device_charges(result, device, policy, profile)
    if isinstance(charges, Reason):
        return None
    return {each.resource: each.quantity for each in charges if each.quantity}


def _annotation_for(each: _UnmappedDevice, profile: AccountingProfile) -> str:
    """Return the annotation that counts one device; "" if it is no node resource."""
    guesses = guess_node_resources(each.driver, each.device)
    if not guesses:
        return ""
    by_capacity = annotation_value({guess.resource: suggested_rule(guess) for guess in guesses})
    if _counts(by_capacity, [(each.whole, each)], profile):
        return by_capacity
    return annotation_value({guess.resource: assumed_rule(guess, each.device) for guess in guesses})


def annotation_value(rules: Mapping[str, DeviceRule]) -> str:
    """Return the annotation of a class with these mappings."""
    return _encode_rules(tuple(sorted(rules.items(), key=lambda item: item[0])))


@lru_cache(maxsize=256)
def _encode_rules(rules: tuple[tuple[str, DeviceRule], ...]) -> str:
    device: Any = write_device(Device(), dict(rules), Form.V1_36).view
    mappings = device.node_allocatable_resource_mappings
    return encode({"nodeAllocatableResourceMappings": mappings}).decode()
