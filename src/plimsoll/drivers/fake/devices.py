"""The devices that a driver of a file has on a node.

Owns `make_devices`: templates, partitions and counters of a plan, with placeholders filled, as the trees that
go into ResourceSlices. Everything here is a function of its arguments. What cannot be is a ConfigError with
the place in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.forms import DeviceRule, Form, write_device
from plimsoll.api.names import dns_label
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device
from plimsoll.drivers.fake.placeholders import Value, fill, fill_value
from plimsoll.drivers.fake.plan import Binding, DriverPlan, Gift, Partition, Shape, Template
from plimsoll.errors import ConfigError, InputError

NUMA_NODE = "resource.kubernetes.io/numaNode"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
Counters = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class FakeDevice:
    """A device on a node."""

    name: str
    tree: Mapping[str, Any]  #: as in a ResourceSlice
    #: What it draws from which counter set.
    consumes: Mapping[str, Counters] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    multiple: bool = False
    binding: Binding | None = None
    gift: Gift = field(default_factory=Gift)
    variables: Mapping[str, Value] = field(default_factory=dict)
    losses: tuple[str, ...] = ()  #: what the form of its node resources has no room for


@dataclass(frozen=True, slots=True)
class Arrangement:
    """All devices of a driver on a node."""

    pool: str
    devices: Mapping[str, FakeDevice]
    counters: Mapping[str, Counters]

    def counter_trees(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "counters": {key: {"value": str(value)} for key, value in counters.items()}}
            for name, counters in self.counters.items()
        ]


def make_devices(plan: DriverPlan, node: str, form: Form | None = Form.V1_37) -> Arrangement:
    """The devices on a node. `form` is that of node resources; None: the API server knows none."""
    pool = _fill(plan.pool, {"node": node}, f"{plan.where}.pool")
    counters: dict[str, Counters] = {}
    for sets in plan.counter_sets:
        for i in range(sets.count):
            variables: dict[str, Value] = {"node": node, "i": i}
            name = _fill_name(sets.name, variables, f"{sets.where}.name")
            _add(counters, name, _amounts(sets.counters, variables, f"{sets.where}.counters"), sets.where)
    devices: dict[str, FakeDevice] = {}
    for template in plan.templates:
        for device, own in _of_template(template, node, form):
            for name, amounts in own.items():
                _add(counters, name, amounts, template.where)
            if device is not None:
                _check_counters(device, counters, template.where)
                _add(devices, device.name, device, template.where)
    return Arrangement(pool, devices, counters)


def _of_template(
    template: Template, node: str, form: Form | None
) -> Iterator[tuple[FakeDevice | None, dict[str, Counters]]]:
    """Devices of a template, each with the counter sets that come with it."""
    where = template.where
    for i in range(template.count):
        variables: dict[str, Value] = {"node": node, "i": i, **_spread(template, i)}
        name = _fill_name(template.name, variables, f"{where}.name")
        variables |= {"device": name, "parent": name, "profile": "", "j": 0}
        shared = _amounts(template.counters, variables, f"{where}.counters")
        consumes = {
            _fill(of, variables, f"{where}.consumesCounters"): _amounts(
                amounts, variables, f"{where}.consumesCounters"
            )
            for of, amounts in template.consumes
        }
        if shared:
            yield None, {name: shared}
            consumes = {name: shared}
        if template.whole or not template.partitions:
            extra = _places(template, variables)
            yield _device(name, template.shape, variables, where, form, consumes=consumes, extra=extra), {}
        for partition in template.partitions:
            for j in range(partition.count):
                yield _part(template, partition, {**variables, "j": j}, form), {}


def _part(
    template: Template, partition: Partition, variables: dict[str, Value], form: Form | None
) -> FakeDevice:
    """A partition has the attributes of the whole, and what the whole gives containers, unless it differs."""
    parent, profile, where = str(variables["parent"]), partition.profile, partition.where
    own, whole = partition.shape, template.shape
    word = profile.lower().replace(".", "-").replace("+", "-").replace("_", "-")
    name = f"{parent}-{word}-{variables['j']}"
    if problems := dns_label(name):
        raise ConfigError(f"{where}.profile: a partition would be called {name!r}, but a name {problems[0]}")
    variables |= {"device": name, "profile": profile}
    shape = Shape(
        attributes={**whole.attributes, "profile": ("string", "{profile}"), "parent": ("string", "{parent}")}
        | dict(own.attributes),
        capacity=own.capacity,
        multiple=own.multiple,
        node_resources=own.node_resources,
        taints=(*whole.taints, *own.taints),
        binding=own.binding or whole.binding,
        gift=own.gift if own.gift != Gift() else whole.gift,
    )
    consumes = {parent: _amounts(partition.counters, variables, f"{where}.counters")}
    extra = _places(template, variables)
    return _device(name, shape, variables, where, form, consumes=consumes, extra=extra)


def _spread(template: Template, i: int) -> dict[str, Value]:
    """Where the device of a number is, if devices are spread: neighbours are together."""
    found: dict[str, Value] = {}
    if template.numa_nodes:
        found["numa"] = i * template.numa_nodes // template.count
    if template.pcie_roots:
        found["pcie"] = i * template.pcie_roots // template.count
    return found


def _places(template: Template, variables: Mapping[str, Value]) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    if template.numa_nodes:
        found[NUMA_NODE] = ("int", variables["numa"])
    if template.pcie_roots:
        found[PCIE_ROOT] = ("string", f"pci0000:{int(variables['pcie']):02x}")
    return found


def _device(
    name: str,
    shape: Shape,
    variables: Mapping[str, Value],
    where: str,
    form: Form | None,
    *,
    consumes: Mapping[str, Counters],
    extra: Mapping[str, tuple[str, Any]],
) -> FakeDevice:
    tree: dict[str, Any] = {"name": name}
    attributes = {
        _fill(key, variables, f"{where}.attributes"): _attribute(
            value, variables, f"{where}.attributes.{key}"
        )
        for key, value in {**extra, **shape.attributes}.items()
    }
    if attributes:
        tree["attributes"] = attributes
    capacity: dict[str, Quantity] = {}
    for key, plan in shape.capacity.items():
        at = f"{where}.capacity.{key}"
        capacity[key] = _quantity(plan.value, variables, at)
        entry: dict[str, Any] = {"value": str(capacity[key])}
        if plan.policy is not None:
            if not shape.multiple:
                raise ConfigError(f"{at}.requestPolicy: needs allowMultipleAllocations: true on the device")
            entry["requestPolicy"] = _fill_amounts(plan.policy, variables, f"{at}.requestPolicy")
        tree.setdefault("capacity", {})[key] = entry
    if consumes:
        tree["consumesCounters"] = [
            {"counterSet": of, "counters": {key: {"value": str(value)} for key, value in counters.items()}}
            for of, counters in consumes.items()
        ]
    if shape.multiple:
        tree["allowMultipleAllocations"] = True
    if shape.taints:
        tree["taints"] = [dict(taint) for taint in shape.taints]
    if shape.binding is not None:
        tree["bindingConditions"] = list(shape.binding.conditions)
        tree["bindingFailureConditions"] = list(shape.binding.failures)
        if shape.binding.binds_to_node:
            tree["bindsToNode"] = True
    resources, losses = _node_resources(shape, capacity, variables, where, form)
    known = {
        **variables,
        "DEVICE": as_variable(name),
        **{f"capacity.{key}": str(value) for key, value in capacity.items()},
    }
    device = FakeDevice(
        name=name,
        tree=tree | resources,
        consumes=dict(consumes),
        capacity=capacity,
        multiple=shape.multiple,
        binding=shape.binding,
        gift=shape.gift,
        variables=known,
        losses=losses,
    )
    fill_gift(device, _CLAIM, where)
    return device


#: What is known of a claim when containers are told of a device of it; here for trying.
_CLAIM: dict[str, Value] = {
    "claim": "c",
    "namespace": "n",
    "uid": "u",
    "request": "r",
    "REQUEST": "R",
    "share": "s",
    "pool": "p",
}


def as_variable(name: str) -> str:
    """A name as it can be part of the name of an environment variable."""
    return name.upper().replace("-", "_")


def fill_gift(device: FakeDevice, claim: Mapping[str, Value], where: str = "") -> Gift:
    """What containers of a claim get of a device, and what the claim tells of it; `claim` says which."""
    variables, gift = {**device.variables, **claim}, device.gift
    at = f"{where}.container"
    return Gift(
        env={
            _fill(name, variables, f"{at}.env"): _fill(text, variables, f"{at}.env.{name}")
            for name, text in gift.env.items()
        },
        mounts=tuple(_fill_texts(each, variables, f"{at}.mounts") for each in gift.mounts),
        device_nodes=tuple(_fill_texts(each, variables, f"{at}.deviceNodes") for each in gift.device_nodes),
        status={
            name: _fill_value(value, variables, f"{where}.status.{name}") if isinstance(value, str) else value
            for name, value in gift.status.items()
        },
    )


def _node_resources(
    shape: Shape,
    capacity: Mapping[str, Quantity],
    variables: Mapping[str, Value],
    where: str,
    form: Form | None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What the device takes of its node, in the form asked for."""
    rules = {}
    for name, given in shape.node_resources.items():
        at = f"{where}.nodeResources.{name}"
        if given.capacity is not None and given.capacity not in capacity:
            known = ", ".join(capacity) or "none"
            raise ConfigError(f"{at}.perCapacity.name: {given.capacity!r} is no capacity; there is {known}")
        multiplier = given.per_device if given.capacity is None else given.multiplier
        rules[name] = DeviceRule(
            capacity_key=given.capacity,
            multiplier=_optional(multiplier, variables, at),
            mapped=given.per_device is not None or given.capacity is not None,
            per_pod=_optional(given.per_pod, variables, at),
            per_container=_optional(given.per_container, variables, at),
            policy=given.policy,
        )
    if not rules:
        return {}, ()
    if form is None:
        return {}, (f"nodeResources {', '.join(rules)}: the API server knows no such fields",)
    written = write_device(Device(), rules, form)
    return codec.to_tree(written.view), written.losses


# -- filling


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
        raise ConfigError(f"{where}: {name!r} is no name: it {problems[0]}")
    return name


def _fill_texts(tree: Mapping[str, Any], variables: Mapping[str, Value], where: str) -> dict[str, Any]:
    """A mapping in which texts, and texts in lists, are filled."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, list):
            found[key] = [_fill(text, variables, f"{where}.{key}") for text in value]
        else:
            found[key] = _fill(value, variables, f"{where}.{key}") if isinstance(value, str) else value
    return found


def _fill_amounts(tree: Any, variables: Mapping[str, Value], where: str) -> Any:
    """A request policy: texts are amounts, wherever they are."""
    if isinstance(tree, Mapping):
        return {key: _fill_amounts(value, variables, f"{where}.{key}") for key, value in tree.items()}
    if isinstance(tree, list):
        return [_fill_amounts(value, variables, f"{where}[{i}]") for i, value in enumerate(tree)]
    return str(_quantity(tree, variables, where))


def _quantity(text: str, variables: Mapping[str, Value], where: str) -> Quantity:
    filled = _fill(text, variables, where)
    try:
        amount = Quantity.parse(filled)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None
    if amount.sign() < 0:
        raise ConfigError(f"{where}: {filled} must not be negative")
    return amount


def _optional(text: str | None, variables: Mapping[str, Value], where: str) -> Quantity | None:
    return None if text is None else _quantity(text, variables, where)


def _amounts(texts: Mapping[str, str], variables: Mapping[str, Value], where: str) -> Counters:
    found = {}
    for key, text in texts.items():
        found[_fill_name(key, variables, where)] = _quantity(text, variables, f"{where}.{key}")
    return found


def _attribute(given: tuple[str, Any], variables: Mapping[str, Value], where: str) -> dict[str, Any]:
    kind, value = given
    if kind.endswith("s"):
        return {kind: [_attribute((kind[:-1], item), variables, where)[kind[:-1]] for item in value]}
    if isinstance(value, str):
        value = _fill_value(value, variables, where)
        kind = kind or ("int" if isinstance(value, int) else "string")
    if kind == "int" and not isinstance(value, int):
        raise ConfigError(f"{where}: {value!r} is no whole number")
    return {kind: str(value) if kind in ("string", "version") else value}


def _add(into: dict[str, Any], name: str, value: Any, where: str) -> None:
    if name in into:
        raise ConfigError(
            f"{where}.name: {name!r} is there twice: put {{i}} in the name, or choose another one"
        )
    into[name] = value


def _check_counters(device: FakeDevice, counters: Mapping[str, Counters], where: str) -> None:
    for of, amounts in device.consumes.items():
        if of not in counters:
            known = ", ".join(list(counters)[:5]) or "none"
            raise ConfigError(f"{where}: {device.name} draws from the counter set {of!r}; there is {known}")
        for name, amount in amounts.items():
            whole = counters[of].get(name)
            if whole is None:
                known = ", ".join(counters[of])
                raise ConfigError(f"{where}: {device.name} draws {name!r} from {of}, which has {known}")
            if amount > whole:
                raise ConfigError(
                    f"{where}: {device.name} draws {amount} {name} from {of}, which has {whole}"
                )
