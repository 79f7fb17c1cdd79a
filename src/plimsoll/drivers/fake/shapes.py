"""What a device is, read from a file: attributes, capacity, what it takes of its node, what containers get.

Owns the reading of those fields, which whole devices and partitions have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.forms import POLICIES
from plimsoll.common.config_file import Section
from plimsoll.drivers.fake.fault_injection import read_taint
from plimsoll.drivers.fake.fields import amount, entries, optional_amount, texts
from plimsoll.drivers.fake.plan import OUTCOMES, Binding, CapacityPlan, Gift, NodeResource, Shape

#: The types of attributes, and what a value of each looks like in a file.
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


def read_shape(section: Section) -> Shape:
    """The fields of a shape; the others are left in the section."""
    attributes = section.section("attributes")
    capacity = section.section("capacity")
    resources = section.section("nodeResources")
    taints = section.take("taints")
    return Shape(
        attributes={
            name: read_attribute(value, attributes, name) for name, value in attributes.rest().items()
        },
        capacity={name: _capacity(value, capacity, name) for name, value in capacity.rest().items()},
        multiple=section.flag("allowMultipleAllocations", False),
        node_resources={name: _resource(value, resources, name) for name, value in resources.rest().items()},
        taints=tuple(read_taint(each) for each in entries(taints or [], section, "taints")),
        binding=_binding(section),
        gift=_gift(section.section("container"), section.section("status")),
    )


def read_attribute(value: Any, section: Section, name: str) -> tuple[str, Any]:
    """(type, value): a text may turn out to be a number when it is filled, so its type is left open."""
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
        "must be a text, a whole number, true or false, a list of one of them, or one value with its type, "
        f"such as {{version: 1.2.3}} (types: {', '.join(_TYPES)}), not {value!r}",
    )


def _is_of(kind: str, value: Any) -> bool:
    if kind in _SCALARS:
        allowed = _SCALARS[kind]
        return isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
    return isinstance(value, list) and bool(value) and all(_is_of(kind[:-1], item) for item in value)


def _capacity(value: Any, section: Section, name: str) -> CapacityPlan:
    if not isinstance(value, Mapping):
        return CapacityPlan(value=amount(value, section, name))
    inner = Section(value, f"{section.where}.{name}")
    whole = inner.take("value")
    policy = inner.take("requestPolicy")
    found = CapacityPlan(
        value=amount(whole, inner, "value"),
        policy=None if policy is None else _policy(Section(policy, f"{inner.where}.requestPolicy")),
    )
    inner.end()
    return found


def _policy(section: Section) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (default := optional_amount(section, "default")) is not None:
        found["default"] = default
    values = section.take("validValues")
    if values is not None:
        if not isinstance(values, list) or not values:
            raise section.bad("validValues", f"must be a list of amounts, not {values!r}")
        found["validValues"] = [amount(each, section, "validValues") for each in values]
    given = section.take("validRange")
    if given is not None:
        span = Section(given, f"{section.where}.validRange")
        limits = {name: optional_amount(span, name) for name in ("min", "max", "step")}
        span.end()
        found["validRange"] = {name: value for name, value in limits.items() if value is not None}
    section.end()
    return found


def _resource(value: Any, section: Section, name: str) -> NodeResource:
    """What is taken of one resource of the node; an amount alone is for each device."""
    if not isinstance(value, Mapping):
        return NodeResource(per_device=amount(value, section, name))
    inner = Section(value, f"{section.where}.{name}")
    per_capacity = inner.take("perCapacity")
    capacity = multiplier = None
    if per_capacity is not None:
        unit = Section(per_capacity, f"{inner.where}.perCapacity")
        capacity, multiplier = unit.text("name", ""), optional_amount(unit, "times")
        unit.end()
        if not capacity:
            raise unit.bad("name", "must be one of the device's capacities")
    found = NodeResource(
        per_device=optional_amount(inner, "perDevice"),
        capacity=capacity,
        multiplier=multiplier,
        per_pod=optional_amount(inner, "perPod"),
        per_container=optional_amount(inner, "perContainer"),
        policy=inner.text("policy", "", choices=("", *POLICIES)),
    )
    inner.end()
    if found.per_device is not None and capacity is not None:
        raise inner.bad("perCapacity", "must not be given along with perDevice")
    if all(each is None for each in (found.per_device, capacity, found.per_pod, found.per_container)):
        raise section.bad(name, "must have perDevice, perCapacity, perPod or perContainer")
    return found


def _binding(section: Section) -> Binding | None:
    value = section.take("binding")
    if value is None:
        return None
    inner = Section(value, f"{section.where}.binding")
    outcome = inner.text("outcome", "ready", choices=OUTCOMES)
    found = Binding(
        conditions=texts(inner, "conditions"),
        failures=texts(inner, "failureConditions"),
        binds_to_node=inner.flag("bindsToNode", False),
        outcome=next(known for known in OUTCOMES if known == outcome),
        after=inner.seconds("after", 0.0),
    )
    inner.end()
    for name, given in (("conditions", found.conditions), ("failureConditions", found.failures)):
        if not given:
            raise inner.bad(name, "must have at least one type of condition, such as example.com/attached")
    return found


def _gift(section: Section, status: Section) -> Gift:
    env = section.section("env")
    nodes = section.take("deviceNodes")
    mounts = section.sections("mounts")
    section.end()
    if nodes is not None and not isinstance(nodes, list):
        raise section.bad("deviceNodes", f"must be a list of paths or mappings, not {nodes!r}")
    return Gift(
        env={name: _env(value, env, name) for name, value in env.rest().items()},
        mounts=tuple(_mount(each) for each in mounts),
        device_nodes=tuple(_device_node(node, section, i) for i, node in enumerate(nodes or ())),
        status={name: _saying(value, status, name) for name, value in status.rest().items()},
    )


def _saying(value: Any, section: Section, name: str) -> str | int | bool:
    if not isinstance(value, str | int | bool):
        raise section.bad(name, f"must be a text, a whole number, true or false, not {value!r}")
    return value


def _env(value: Any, section: Section, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise section.bad(name, f"must be a text, not {value!r}")
    if not name or "=" in name or "\0" in name or "\0" in str(value):
        raise section.bad(name, "is no name and value of an environment variable")
    return str(value)


def _mount(section: Section) -> dict[str, Any]:
    found: dict[str, Any] = {name: section.text(name, "") for name in ("hostPath", "containerPath", "type")}
    found["options"] = list(texts(section, "options"))
    section.end()
    for name in ("hostPath", "containerPath"):
        if not found[name].startswith(("/", "{")):
            raise section.bad(name, f"must be a path from the root, not {found[name]!r}")
    return {name: value for name, value in found.items() if value}


def _device_node(value: Any, section: Section, place: int) -> dict[str, Any]:
    where = f"{section.where}.deviceNodes[{place}]"
    inner = Section({"path": value} if isinstance(value, str) else value, where)
    found = {}
    for name, kind in _NODE_KEYS.items():
        given = inner.text(name, "") if kind is str else inner.number(name, 0, least=0, most=2**31)
        if given:
            found[name] = given
    inner.end()
    if not str(found.get("path", "")).startswith(("/", "{")):
        raise inner.bad("path", "must be a path from the root, such as /dev/null")
    return found
