"""Strict parser of device files: every error names the position and the fix.

Defines the format (docs/drivers.md, "Devices from a file") and the built-in files; `find_drivers` accepts a
path, a built-in name or YAML text. Parsing builds the devices once, so that later builds cannot fail. The API
server's validation rules are checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from plimsoll.api.names import dns_subdomain
from plimsoll.common.config_file import ConfigSection, read_document
from plimsoll.common.yaml import load_documents
from plimsoll.drivers.fake.device_shapes import read_shape
from plimsoll.drivers.fake.devices import make_devices
from plimsoll.drivers.fake.fault_injection import read_fault_injection
from plimsoll.drivers.fake.field_readers import read_entries, read_quantities, read_quantity, read_strings
from plimsoll.drivers.fake.plan import ClassPlan, CounterSetPlan, DeviceTemplate, DriverPlan, Partition
from plimsoll.errors import ConfigError, InputError

KIND = "FakeDrivers"
#: The files that come with the package.
BUILT_IN = ("accelerators", "gpus", "nics")
MAX_DEVICES = 10_000
_DRIVER_MAX = 63


def find_drivers(source: str | Path) -> tuple[DriverPlan, ...]:
    """Read the drivers of a file, given as path, built-in name or YAML text."""
    if isinstance(source, Path):
        return parse_drivers(read_document(source, "device file"), str(source))
    if source in BUILT_IN:
        text = files("plimsoll.drivers.fake").joinpath(f"{source}.yaml").read_text(encoding="utf-8")
        return parse_text(text, f"{source}.yaml")
    if "\n" in source or ": " in source:
        return parse_text(source)
    path = Path(source)
    if not path.exists():
        known = ", ".join(BUILT_IN)
        raise ConfigError(f"{source}: no such file; built-in device files: {known}")
    return find_drivers(path)


def parse_text(text: str, where: str = "drivers") -> tuple[DriverPlan, ...]:
    try:
        documents = [tree for _, tree in load_documents(text)]
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None
    if len(documents) != 1:
        raise ConfigError(f"{where}: a device file must contain one YAML document, found {len(documents)}")
    return parse_drivers(documents[0], where)


def parse_drivers(tree: Any, where: str = "drivers") -> tuple[DriverPlan, ...]:
    """Parse and check the drivers in a decoded document."""
    top = ConfigSection(tree, where)
    top.text("kind", KIND, choices=(KIND,))
    top.text("apiVersion", "")
    found = tuple(_driver(section) for section in top.sections("drivers"))
    top.end()
    if not found:
        raise top.bad("drivers", "must be a list with at least one driver")
    names = [plan.name for plan in found]
    for plan in found:
        if names.count(plan.name) > 1:
            raise ConfigError(
                f"{plan.where}.name: duplicate driver {plan.name}; list all its devices in one entry"
            )
        make_devices(plan, "node")
    return found


def _driver(section: ConfigSection) -> DriverPlan:
    name = section.text("name", "")
    problems = dns_subdomain(name)
    if problems or len(name) > _DRIVER_MAX:
        problem = problems[0] if problems else f"must be at most {_DRIVER_MAX} bytes long"
        raise section.bad(
            "name", f"{name!r} is not a valid driver name: it {problem}, such as gpu.example.com"
        )
    plan = DriverPlan(
        where=section.where,
        name=name,
        pool=section.text("pool", "{node}"),
        classes=_classes(section, name),
        counter_sets=tuple(_counter_set(each) for each in section.sections("counterSets")),
        templates=tuple(_template(each) for each in section.sections("devices")),
        metadata=section.flag("metadata", False),
        faults=read_fault_injection(section),
    )
    section.end()
    count = sum(each.count * (1 + sum(p.count for p in each.partitions)) for each in plan.templates)
    if count > MAX_DEVICES:
        raise section.bad("devices", f"must be at most {MAX_DEVICES} for a node, not {count}")
    return plan


def _classes(section: ConfigSection, driver: str) -> tuple[ClassPlan, ...]:
    """Read the DeviceClasses; the default is one for all devices, named like the driver."""
    value = section.take("classes")
    if value is None:
        return (ClassPlan(name=driver),)
    found = []
    for each in read_entries(value, section, "classes"):
        name = each.text("name", "")
        if problems := dns_subdomain(name):
            raise each.bad("name", f"{name!r} is not a valid class name: it {problems[0]}")
        found.append(
            ClassPlan(
                name=name,
                selectors=read_strings(each, "selectors"),
                extended_resource=each.text("extendedResourceName", ""),
                parameters=each.take("parameters"),
            )
        )
        each.end()
    return tuple(found)


def _counter_set(section: ConfigSection) -> CounterSetPlan:
    found = CounterSetPlan(
        where=section.where,
        name=_name(section),
        count=section.number("count", 1, most=MAX_DEVICES),
        counters=read_quantities(section, "counters"),
    )
    section.end()
    if not found.counters:
        raise section.bad("counters", "must have at least one counter, such as {memory: 40Gi}")
    return found


def _template(section: ConfigSection) -> DeviceTemplate:
    spread = section.section("spread")
    found = DeviceTemplate(
        where=section.where,
        name=_name(section),
        count=section.number("count", 1, most=MAX_DEVICES),
        shape=read_shape(section),
        numa_nodes=spread.number("numaNodes", 0, most=1024),
        pcie_roots=spread.number("pcieRoots", 0, most=256),
        counters=read_quantities(section, "counters"),
        full=section.flag("whole", True),
        partitions=tuple(_partition(each) for each in section.sections("partitions")),
        consumes=_consumes(section),
    )
    spread.end()
    section.end()
    if found.partitions and not found.counters:
        raise section.bad(
            "counters", "must be set for a device with partitions: the counters that they share"
        )
    if found.counters and found.consumes:
        raise section.bad("consumesCounters", "must not be set together with counters")
    if found.partitions and found.shape.multiple:
        raise section.bad("partitions", "must not be set together with allowMultipleAllocations")
    return found


def _name(section: ConfigSection) -> str:
    name = section.text("name", "")
    if not name:
        raise section.bad("name", "must be given, such as gpu-{i}")
    return name


def _partition(section: ConfigSection) -> Partition:
    profile = section.text("profile", "")
    if not profile:
        raise section.bad("profile", "must be given, such as 1g.5gb")
    found = Partition(
        where=section.where,
        profile=profile,
        count=section.number("count", 1, most=MAX_DEVICES),
        counters=read_quantities(section, "counters"),
        shape=read_shape(section),
    )
    section.end()
    if not found.counters:
        raise section.bad(
            "counters", "must be set: the counters that the partition consumes, such as {memory: 5Gi}"
        )
    return found


def _consumes(section: ConfigSection) -> tuple[tuple[str, Mapping[str, str]], ...]:
    found = []
    for each in section.sections("consumesCounters"):
        name = each.text("counterSet", "")
        counters = each.section("counters").rest()
        each.end()
        if not name:
            raise each.bad("counterSet", "must be the name of one of counterSets")
        found.append(
            (name, {key: read_quantity(value, each, f"counters.{key}") for key, value in counters.items()})
        )
    return tuple(found)
