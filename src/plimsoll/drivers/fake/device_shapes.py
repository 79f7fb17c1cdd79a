"""Readers for the properties of a device: attributes, capacity, node resources, container edits.

Full devices and partitions have these fields in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.forms import POLICIES
from plimsoll.common.config_file import ConfigSection
from plimsoll.drivers.fake.fault_injection import read_taint
from plimsoll.drivers.fake.field_readers import (
    read_entries,
    read_optional_quantity,
    read_quantity,
    read_strings,
)
from plimsoll.drivers.fake.plan import (
    OUTCOMES,
    BindingPlan,
    CapacityPlan,
    CdiEdits,
    DeviceShape,
    NodeResource,
)

#: Attribute types with the YAML types of their values.
_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (int, str),
    "bool": (bool,),
    "string": (str,),
    "version": (str,),
}
_TYPES = (*_SCALARS, *(f"{name}s" for name in _SCALARS))
_NODE_KEYS = {
    "path": str,
    "hostPath": str,
    "type": str,
    "major": int,
    "minor": int,
    "fileMode": int,
    "permissions": str,
    "uid": int,
    "gid": int,
}


def read_shape(section: ConfigSection) -> DeviceShape:
    """Read the fields of a shape; other fields stay in the section."""
    attributes = section.section("attributes")
    capacity = section.section("capacity")
    resources = section.section("nodeResources")
    taints = section.take("taints")
    return DeviceShape(
        attributes={
            name: read_attribute(value, attributes, name) for name, value in attributes.rest().items()
        },
        capacity={name: _capacity(value, capacity, name) for name, value in capacity.rest().items()},
        multiple=section.flag("allowMultipleAllocations", False),
        node_resources={name: _resource(value, resources, name) for name, value in resources.rest().items()},
        taints=tuple(read_taint(each) for each in read_entries(taints or [], section, "taints")),
        binding=_binding(section),
        edits=_read_edits(section.section("container"), section.section("status")),
    )


def read_attribute(value: Any, section: ConfigSection, name: str) -> tuple[str, Any]:
    """Return (type, value); the type of a string stays open, because placeholders may make it a number."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return "int", value
    if isinstance(value, str):
        return "", value
    if isinstance(value, list) and value:
        (kinds,) = ({"bool" if isinstance(item, bool) else type(item).__name__ for item in value},)
        if kinds <= {"bool"} or kinds <= {"int"} or kinds <= {"str"}:
            return {"bool": "bools", "int": "ints", "str": "strings"}[kinds.pop()], value
    if isinstance(value, Mapping) and len(value) == 1:
        ((kind, inner),) = value.items()
        if kind in _TYPES and _is_of(kind, inner):
            return kind, inner
    raise section.bad(
        name,
        "must be a string, an integer, a boolean, a list of one of these, or one value with its type, "
        f"such as {{version: 1.2.3}} (types: {', '.join(_TYPES)}), not {value!r}",
    )


def _is_of(kind: str, value: Any) -> bool:
    if kind in _SCALARS:
        allowed = _SCALARS[kind]
        return isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
    return isinstance(value, list) and bool(value) and all(_is_of(kind[:-1], item) for item in value)


def _capacity(value: Any, section: ConfigSection, name: str) -> CapacityPlan:
    if not isinstance(value, Mapping):
        return CapacityPlan(value=read_quantity(value, section, name))
    inner = ConfigSection(value, f"{section.where}.{name}")
    full = inner.take("value")
    policy = inner.take("requestPolicy")
    found = CapacityPlan(
        value=read_quantity(full, inner, "value"),
        policy=None if policy is None else _policy(ConfigSection(policy, f"{inner.where}.requestPolicy")),
    )
    inner.end()
    return found


def _policy(section: ConfigSection) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (default := read_optional_quantity(section, "default")) is not None:
        found["default"] = default
    values = section.take("validValues")
    if values is not None:
        if not isinstance(values, list) or not values:
            raise section.bad("validValues", f"must be a list of quantities, not {values!r}")
        found["validValues"] = [read_quantity(each, section, "validValues") for each in values]
    given = section.take("validRange")
    if given is not None:
        span = ConfigSection(given, f"{section.where}.validRange")
        limits = {name: read_optional_quantity(span, name) for name in ("min", "max", "step")}
        span.end()
        found["validRange"] = {name: value for name, value in limits.items() if value is not None}
    section.end()
    return found


def _resource(value: Any, section: ConfigSection, name: str) -> NodeResource:
    """Read one node resource; a plain quantity is for each device."""
    if not isinstance(value, Mapping):
        return NodeResource(per_device=read_quantity(value, section, name))
    inner = ConfigSection(value, f"{section.where}.{name}")
    per_capacity = inner.take("perCapacity")
    capacity = multiplier = None
    if per_capacity is not None:
        unit = ConfigSection(per_capacity, f"{inner.where}.perCapacity")
        capacity, multiplier = unit.text("name", ""), read_optional_quantity(unit, "times")
        unit.end()
        if not capacity:
            raise unit.bad("name", "must be one of the device's capacities")
    found = NodeResource(
        per_device=read_optional_quantity(inner, "perDevice"),
        capacity=capacity,
        multiplier=multiplier,
        per_pod=read_optional_quantity(inner, "perPod"),
        per_container=read_optional_quantity(inner, "perContainer"),
        policy=inner.text("policy", "", choices=("", *POLICIES)),
    )
    inner.end()
    if found.per_device is not None and capacity is not None:
        raise inner.bad("perCapacity", "must not be set together with perDevice")
    if all(each is None for each in (found.per_device, capacity, found.per_pod, found.per_container)):
        raise section.bad(name, "must have perDevice, perCapacity, perPod or perContainer")
    return found


def _binding(section: ConfigSection) -> BindingPlan | None:
    value = section.take("binding")
    if value is None:
        return None
    inner = ConfigSection(value, f"{section.where}.binding")
    outcome = inner.text("outcome", "ready", choices=OUTCOMES)
    found = BindingPlan(
        conditions=read_strings(inner, "conditions"),
        failures=read_strings(inner, "failureConditions"),
        binds_to_node=inner.flag("bindsToNode", False),
        outcome=next(known for known in OUTCOMES if known == outcome),
        after=inner.seconds("after", 0.0),
    )
    inner.end()
    for name, given in (("conditions", found.conditions), ("failureConditions", found.failures)):
        if not given:
            raise inner.bad(name, "must have at least one type of condition, such as example.com/attached")
    return found


def _read_edits(section: ConfigSection, status: ConfigSection) -> CdiEdits:
    env = section.section("env")
    nodes = section.take("deviceNodes")
    mounts = section.sections("mounts")
    section.end()
    if nodes is not None and not isinstance(nodes, list):
        raise section.bad("deviceNodes", f"must be a list of paths or mappings, not {nodes!r}")
    return CdiEdits(
        env={name: _env(value, env, name) for name, value in env.rest().items()},
        mounts=tuple(_mount(each) for each in mounts),
        device_nodes=tuple(_device_node(node, section, i) for i, node in enumerate(nodes or ())),
        status={name: _status_value(value, status, name) for name, value in status.rest().items()},
    )


def _status_value(value: Any, section: ConfigSection, name: str) -> str | int | bool:
    if not isinstance(value, str | int | bool):
        raise section.bad(name, f"must be a string, an integer or a boolean, not {value!r}")
    return value


def _env(value: Any, section: ConfigSection, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise section.bad(name, f"must be a string, not {value!r}")
    if not name or "=" in name or "\0" in name or "\0" in str(value):
        raise section.bad(name, "is not a valid environment variable")
    return str(value)


def _mount(section: ConfigSection) -> dict[str, Any]:
    found: dict[str, Any] = {name: section.text(name, "") for name in ("hostPath", "containerPath", "type")}
    found["options"] = list(read_strings(section, "options"))
    section.end()
    for name in ("hostPath", "containerPath"):
        if not found[name].startswith(("/", "{")):
            raise section.bad(name, f"must be an absolute path, not {found[name]!r}")
    return {name: value for name, value in found.items() if value}


def _device_node(value: Any, section: ConfigSection, index: int) -> dict[str, Any]:
    where = f"{section.where}.deviceNodes[{index}]"
    inner = ConfigSection({"path": value} if isinstance(value, str) else value, where)
    found = {}
    for name, kind in _NODE_KEYS.items():
        given = inner.text(name, "") if kind is str else inner.number(name, 0, least=0, most=2**31)
        if given:
            found[name] = given
    inner.end()
    if not str(found.get("path", "")).startswith(("/", "{")):
        raise inner.bad("path", "must be an absolute path, such as /dev/null")
    return found
