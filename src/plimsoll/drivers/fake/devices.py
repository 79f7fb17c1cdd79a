"""Simulated devices of a driver on a node.

`make_devices` expands the templates, partitions and counters of a plan, with placeholders filled, into
ResourceSlice devices. Pure. Invalid values raise ConfigError with their position in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.forms import DeviceRule, Form, write_device
from plimsoll.api.names import dns_label
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import NUMA_NODE, PCIE_ROOT, Device
from plimsoll.drivers.fake.placeholders import Value, fill, fill_value
from plimsoll.drivers.fake.plan import (
    BindingPlan,
    CdiEdits,
    DeviceShape,
    DeviceTemplate,
    DriverPlan,
    Partition,
)
from plimsoll.errors import ConfigError, InputError

Counters = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class FakeDevice:
    """Simulated device on a node."""

    name: str
    tree: Mapping[str, Any]  #: as in a ResourceSlice
    #: Counters consumed, by counter set.
    consumes: Mapping[str, Counters] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    multiple: bool = False
    binding: BindingPlan | None = None
    edits: CdiEdits = field(default_factory=CdiEdits)
    variables: Mapping[str, Value] = field(default_factory=dict)
    dropped_fields: tuple[str, ...] = ()  #: node resource fields that the wire form cannot express


@dataclass(frozen=True, slots=True)
class FakeInventory:
    """All devices of a driver on a node."""

    pool: str
    devices: Mapping[str, FakeDevice]
    counters: Mapping[str, Counters]

    def counter_trees(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "counters": {key: {"value": str(value)} for key, value in counters.items()}}
            for name, counters in self.counters.items()
        ]


def make_devices(plan: DriverPlan, node: str, form: Form | None = Form.V1_37) -> FakeInventory:
    """Build the devices of a node. `form`: wire form of node resources, None if unsupported."""
    pool = _fill(plan.pool, {"node": node}, f"{plan.where}.pool")
    counters: dict[str, Counters] = {}
    for place, sets in enumerate(plan.counter_sets):
        where = f"{plan.where}.counterSets[{place}]"
        for i in range(sets.count):
            variables: dict[str, Value] = {"node": node, "i": i}
            name = _fill_name(sets.name, variables, f"{where}.name")
            amounts = _fill_quantities(sets.counters, variables, f"{where}.counters")
            _add_unique(counters, name, amounts, where)
    devices: dict[str, FakeDevice] = {}
    for place, template in enumerate(plan.templates):
        where = f"{plan.where}.devices[{place}]"
        for device, own in _build_template_devices(template, node, form, where):
            for name, amounts in own.items():
                _add_unique(counters, name, amounts, where)
            if device is not None:
                _check_counters(device, counters, where)
                _add_unique(devices, device.name, device, where)
    return FakeInventory(pool, devices, counters)


def _build_template_devices(
    template: DeviceTemplate, node: str, form: Form | None, where: str
) -> Iterator[tuple[FakeDevice | None, dict[str, Counters]]]:
    """Build the devices of a template, each with the counter sets it defines."""
    for i in range(template.count):
        variables: dict[str, Value] = {"node": node, "i": i, **_spread(template, i)}
        name = _fill_name(template.name, variables, f"{where}.name")
        variables |= {"device": name, "parent": name, "profile": "", "j": 0}
        shared = _fill_quantities(template.counters, variables, f"{where}.counters")
        consumes = {
            _fill(use.counter_set, variables, f"{where}.consumesCounters"): _fill_quantities(
                use.counters, variables, f"{where}.consumesCounters"
            )
            for use in template.consumes
        }
        groups = {
            _fill(use.counter_set, variables, f"{where}.consumesCounters"): use.compatibility_groups
            for use in template.consumes
        }
        if shared:
            yield None, {name: shared}
            consumes, groups = {name: shared}, {name: template.compatibility_groups}
        if template.full or not template.partitions:
            extra = _topology_attributes(template, variables)
            yield (
                _build_device(
                    name, template, variables, where, form, consumes=consumes, groups=groups, extra=extra
                ),
                {},
            )
        for place, partition in enumerate(template.partitions):
            at = f"{where}.partitions[{place}]"
            for j in range(partition.count):
                yield _build_partition(template, partition, {**variables, "j": j}, form, at), {}


def _build_partition(
    full: DeviceTemplate, own: Partition, variables: dict[str, Value], form: Form | None, where: str
) -> FakeDevice:
    """Build a partition, with attributes and container edits of the full device unless it sets its own."""
    parent, profile = str(variables["parent"]), own.profile
    word = profile.lower().replace(".", "-").replace("+", "-").replace("_", "-")
    name = f"{parent}-{word}-{variables['j']}"
    if problems := dns_label(name):
        raise ConfigError(f"{where}.profile: the partition name {name!r} is invalid: it {problems[0]}")
    variables |= {"device": name, "profile": profile}
    edited = own if own.edits != CdiEdits() else full
    shape = DeviceShape(
        attributes={**full.attributes, "profile": ("string", "{profile}"), "parent": ("string", "{parent}")}
        | dict(own.attributes),
        capacity=own.capacity,
        request_policies={**full.request_policies, **own.request_policies},
        multiple=own.multiple,
        node_resources=own.node_resources,
        taints=(*full.taints, *own.taints),
        binding=own.binding or full.binding,
        container=edited.container,
        status=edited.status,
    )
    consumes = {parent: _fill_quantities(own.counters, variables, f"{where}.counters")}
    groups = {parent: own.compatibility_groups}
    extra = _topology_attributes(full, variables)
    return _build_device(name, shape, variables, where, form, consumes=consumes, groups=groups, extra=extra)


def _spread(template: DeviceTemplate, i: int) -> dict[str, Value]:
    """Return NUMA node and PCIe root of a device number; devices are spread in contiguous blocks."""
    found: dict[str, Value] = {}
    if template.spread.numa_nodes:
        found["numa"] = i * template.spread.numa_nodes // template.count
    if template.spread.pcie_roots:
        found["pcie"] = i * template.spread.pcie_roots // template.count
    return found


def _topology_attributes(
    template: DeviceTemplate, variables: Mapping[str, Value]
) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    if template.spread.numa_nodes:
        found[NUMA_NODE] = ("int", variables["numa"])
    if template.spread.pcie_roots:
        found[PCIE_ROOT] = ("string", f"pci0000:{int(variables['pcie']):02x}")
    return found


def _build_device(
    name: str,
    shape: DeviceShape,
    variables: Mapping[str, Value],
    where: str,
    form: Form | None,
    *,
    consumes: Mapping[str, Counters],
    groups: Mapping[str, tuple[str, ...]],
    extra: Mapping[str, tuple[str, Any]],
) -> FakeDevice:
    tree: dict[str, Any] = {"name": name}
    attributes = {
        _fill(key, variables, f"{where}.attributes"): _fill_attribute(
            value, variables, f"{where}.attributes.{key}"
        )
        for key, value in {**extra, **shape.attributes}.items()
    }
    if attributes:
        tree["attributes"] = attributes
    capacity: dict[str, Quantity] = {}
    for key, plan in shape.capacity.items():
        at = f"{where}.capacity.{key}"
        capacity[key] = _fill_quantity(plan.value, variables, at)
        entry: dict[str, Any] = {"value": str(capacity[key])}
        if plan.policy is not None:
            if not shape.multiple:
                raise ConfigError(f"{at}.requestPolicy: needs allowMultipleAllocations: true on the device")
            policy = _find_policy(plan.policy, shape, f"{at}.requestPolicy")
            entry["requestPolicy"] = _fill_policy(policy, variables, f"{at}.requestPolicy")
        tree.setdefault("capacity", {})[key] = entry
    if consumes:
        tree["consumesCounters"] = [
            {"counterSet": of, "counters": {key: {"value": str(value)} for key, value in counters.items()}}
            | ({"compatibilityGroups": list(groups[of])} if groups.get(of) else {})
            for of, counters in consumes.items()
        ]
    if shape.multiple:
        tree["allowMultipleAllocations"] = True
    if shape.taints:
        tree["taints"] = [taint.tree for taint in shape.taints]
    if shape.binding is not None:
        tree["bindingConditions"] = list(shape.binding.conditions)
        tree["bindingFailureConditions"] = list(shape.binding.failures)
        if shape.binding.binds_to_node:
            tree["bindsToNode"] = True
    resources, dropped_fields = _node_resources(shape, capacity, variables, where, form)
    known = {
        **variables,
        "DEVICE": to_variable_name(name),
        **{f"capacity.{key}": str(value) for key, value in capacity.items()},
    }
    device = FakeDevice(
        name=name,
        tree=tree | resources,
        consumes=dict(consumes),
        capacity=capacity,
        multiple=shape.multiple,
        binding=shape.binding,
        edits=shape.edits,
        variables=known,
        dropped_fields=dropped_fields,
    )
    fill_edits(device, _CLAIM, where)
    return device


#: Sample values of claim placeholders, to check templates before a claim exists.
_CLAIM: dict[str, Value] = {
    "claim": "c",
    "namespace": "n",
    "uid": "u",
    "request": "r",
    "REQUEST": "R",
    "share": "s",
    "pool": "p",
}


def to_variable_name(name: str) -> str:
    """Convert a name to a part of an environment variable name."""
    return name.upper().replace("-", "_")


def fill_edits(device: FakeDevice, claim: Mapping[str, Value], where: str = "") -> CdiEdits:
    """Fill the placeholders of a device's container edits and status with the values of a claim."""
    variables, edits = {**device.variables, **claim}, device.edits
    at = f"{where}.container"
    return CdiEdits(
        env={
            _fill(name, variables, f"{at}.env"): _fill(text, variables, f"{at}.env.{name}")
            for name, text in edits.env.items()
        },
        mounts=tuple(_fill_strings(each, variables, f"{at}.mounts") for each in edits.mounts),
        device_nodes=tuple(
            _fill_strings(each, variables, f"{at}.deviceNodes") for each in edits.device_nodes
        ),
        status={
            name: _fill_value(value, variables, f"{where}.status.{name}") if isinstance(value, str) else value
            for name, value in edits.status.items()
        },
    )


def _node_resources(
    shape: DeviceShape,
    capacity: Mapping[str, Quantity],
    variables: Mapping[str, Value],
    where: str,
    form: Form | None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the node resources of a device in a wire form, and the fields it cannot express."""
    rules = {}
    for name, given in shape.node_resources.items():
        at = f"{where}.nodeResources.{name}"
        factor = given.per_capacity
        if factor is not None and factor.name not in capacity:
            known = ", ".join(capacity) or "none"
            raise ConfigError(
                f"{at}.perCapacity.name: {factor.name!r} is not a capacity; valid names: {known}"
            )
        multiplier = given.per_device if factor is None else factor.times
        rules[name] = DeviceRule(
            capacity_key=None if factor is None else factor.name,
            multiplier=_fill_optional(multiplier, variables, at),
            mapped=given.per_device is not None or factor is not None,
            per_pod=_fill_optional(given.per_pod, variables, at),
            per_container=_fill_optional(given.per_container, variables, at),
            policy=given.policy,
        )
    if not rules:
        return {}, ()
    if form is None:
        return {}, (f"nodeResources {', '.join(rules)}: not supported by this API server",)
    written = write_device(Device(), rules, form)
    return codec.to_tree(written.view), written.losses


# -- placeholders


def _fill(text: str, variables: Mapping[str, Value], where: str) -> str:
    try:
        return fill(text, variables)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None


def _fill_value(text: str, variables: Mapping[str, Value], where: str) -> Value:
    try:
        return fill_value(text, variables)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None


def _fill_name(text: str, variables: Mapping[str, Value], where: str) -> str:
    name = _fill(text, variables, where)
    if problems := dns_label(name):
        raise ConfigError(f"{where}: {name!r} is not a valid name: it {problems[0]}")
    return name


def _fill_strings(tree: Mapping[str, Any], variables: Mapping[str, Value], where: str) -> dict[str, Any]:
    """Fill the strings of a mapping, including strings in lists."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, list):
            found[key] = [_fill(text, variables, f"{where}.{key}") for text in value]
        else:
            found[key] = _fill(value, variables, f"{where}.{key}") if isinstance(value, str) else value
    return found


def _find_policy(policy: Mapping[str, Any], shape: DeviceShape, where: str) -> Mapping[str, Any]:
    """Return a request policy in the form that every API server stores."""
    name = policy.get("requestPolicyName")
    if name is not None:
        if name not in shape.request_policies:
            raise ConfigError(f"{where}.requestPolicyName: {name!r} is not one of the requestPolicies")
        policy = shape.request_policies[name]
        if "requestPolicyName" in policy:
            raise ConfigError(f"requestPolicies.{name}.requestPolicyName: must not refer to another policy")
    if policy.get("zeroConsumption"):
        return {"default": "0", "validValues": ["0"]}
    return policy


def _fill_policy(tree: Any, variables: Mapping[str, Value], where: str) -> Any:
    """Fill a request policy: all strings are quantities."""
    if isinstance(tree, Mapping):
        return {key: _fill_policy(value, variables, f"{where}.{key}") for key, value in tree.items()}
    if isinstance(tree, list):
        return [_fill_policy(value, variables, f"{where}[{i}]") for i, value in enumerate(tree)]
    return str(_fill_quantity(tree, variables, where))


def _fill_quantity(text: str, variables: Mapping[str, Value], where: str) -> Quantity:
    filled = _fill(text, variables, where)
    try:
        amount = Quantity.parse(filled)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None
    if amount.sign() < 0:
        raise ConfigError(f"{where}: {filled} must not be negative")
    return amount


def _fill_optional(text: str | None, variables: Mapping[str, Value], where: str) -> Quantity | None:
    return None if text is None else _fill_quantity(text, variables, where)


def _fill_quantities(texts: Mapping[str, str], variables: Mapping[str, Value], where: str) -> Counters:
    found = {}
    for key, text in texts.items():
        found[_fill_name(key, variables, where)] = _fill_quantity(text, variables, f"{where}.{key}")
    return found


def _fill_attribute(given: tuple[str, Any], variables: Mapping[str, Value], where: str) -> dict[str, Any]:
    kind, value = given
    if kind.endswith("s"):
        return {kind: [_fill_attribute((kind[:-1], item), variables, where)[kind[:-1]] for item in value]}
    if isinstance(value, str):
        value = _fill_value(value, variables, where)
        kind = kind or ("int" if isinstance(value, int) else "string")
    if kind == "int" and not isinstance(value, int):
        raise ConfigError(f"{where}: {value!r} is not an integer")
    return {kind: str(value) if kind in ("string", "version") else value}


def _add_unique(into: dict[str, Any], name: str, value: Any, where: str) -> None:
    if name in into:
        raise ConfigError(
            f"{where}.name: duplicate name {name!r}: use {{i}} in the name, or choose another one"
        )
    into[name] = value


def _check_counters(device: FakeDevice, counters: Mapping[str, Counters], where: str) -> None:
    for of, amounts in device.consumes.items():
        if of not in counters:
            known = ", ".join(list(counters)[:5]) or "none"
            raise ConfigError(
                f"{where}: {device.name} consumes the unknown counter set {of!r}; counter sets: {known}"
            )
        for name, amount in amounts.items():
            full = counters[of].get(name)
            if full is None:
                known = ", ".join(counters[of])
                raise ConfigError(
                    f"{where}: {device.name} consumes the unknown counter {name!r} of {of}; counters: {known}"
                )
            if amount > full:
                raise ConfigError(
                    f"{where}: {device.name} consumes {amount} {name} of {of}, which has {full}"
                )
