"""Data model of a device file: drivers, device templates and injected faults.

`device_file.py` parses it, `devices.py` builds devices from it. Strings still contain placeholders, which are
filled for each device of each node. `where` is the position in the file, for errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from plimsoll.drivers.plugin import Health

BindingOutcome: TypeAlias = Literal["ready", "fail", "never"]
OUTCOMES: tuple[BindingOutcome, ...] = ("ready", "fail", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiEdits:
    """Container edits and device status for containers that use the device.

    Mounts and device nodes have the keys of CDI.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mapping[str, Any], ...] = ()
    device_nodes: tuple[Mapping[str, Any], ...] = ()
    status: Mapping[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingPlan:
    """Binding conditions of a device, and how they end."""

    conditions: tuple[str, ...]
    failures: tuple[str, ...]
    binds_to_node: bool = False
    outcome: BindingOutcome = "ready"
    after: float = 0.0  #: seconds after the allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """Capacity of a device with its request policy."""

    value: str
    policy: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResource:
    """Node resource consumed by a device: a quantity for each device, or for each unit of a capacity."""

    per_device: str | None = None
    capacity: str | None = None
    multiplier: str | None = None
    per_pod: str | None = None
    per_container: str | None = None
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShape:
    """Properties that full devices and partitions have in common."""

    attributes: Mapping[str, tuple[str, Any]] = field(default_factory=dict)  #: (type or "", value)
    capacity: Mapping[str, CapacityPlan] = field(default_factory=dict)
    multiple: bool = False
    node_resources: Mapping[str, NodeResource] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    binding: BindingPlan | None = None
    edits: CdiEdits = CdiEdits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Partitions of one profile."""

    where: str
    profile: str
    count: int
    counters: Mapping[str, str]
    shape: DeviceShape


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTemplate:
    """Template of similar devices that differ by their number."""

    where: str
    name: str
    count: int
    shape: DeviceShape
    numa_nodes: int = 0  #: number of NUMA nodes to spread over; 0: not set
    pcie_roots: int = 0
    counters: Mapping[str, str] = field(default_factory=dict)
    full: bool = True  #: publish the full device along with its partitions
    partitions: tuple[Partition, ...] = ()
    consumes: tuple[tuple[str, Mapping[str, str]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSetPlan:
    where: str
    name: str
    count: int
    counters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlan:
    """DeviceClass for devices of the driver."""

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    parameters: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """Injected delay and failures of one kind of call."""

    delay: float = 0.0
    fail_first: int = 0  #: number of failing calls for each claim
    fail_claims: tuple[str, ...] = ()  #: name patterns
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRule:
    """Health of matching devices from a time on; the last matching rule wins."""

    devices: tuple[str, ...]
    state: Health
    after: float = 0.0  #: seconds after the start of the driver
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRule:
    devices: tuple[str, ...]
    taint: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjection:
    """Injected faults of a driver; None in a control file means unchanged."""

    prepare: CallPlan | None = None
    unprepare: CallPlan | None = None
    health: tuple[HealthRule, ...] | None = None
    absent: tuple[str, ...] | None = None  #: name patterns of absent devices
    taints: tuple[TaintRule, ...] | None = None

    def merge_over(self, other: FaultInjection) -> FaultInjection:
        """Return these faults with unset fields taken from `other`."""
        return FaultInjection(
            prepare=other.prepare if self.prepare is None else self.prepare,
            unprepare=other.unprepare if self.unprepare is None else self.unprepare,
            health=other.health if self.health is None else self.health,
            absent=other.absent if self.absent is None else self.absent,
            taints=other.taints if self.taints is None else self.taints,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlan:
    """Driver of a device file."""

    where: str
    name: str
    pool: str = "{node}"
    classes: tuple[ClassPlan, ...] = ()
    counter_sets: tuple[CounterSetPlan, ...] = ()
    templates: tuple[DeviceTemplate, ...] = ()
    faults: FaultInjection = FaultInjection()
    metadata: bool = False  #: write device metadata files for containers

    def device_classes(self) -> list[dict[str, Any]]:
        """Return the DeviceClasses of the driver."""
        return [self._class(each) for each in self.classes]

    def _class(self, plan: ClassPlan) -> dict[str, Any]:
        mine = f'device.driver == "{self.name}"'
        expressions = [f"{mine} && ({text})" for text in plan.selectors] or [mine]
        spec: dict[str, Any] = {"selectors": [{"cel": {"expression": text}} for text in expressions]}
        if plan.extended_resource:
            spec["extendedResourceName"] = plan.extended_resource
        if plan.parameters is not None:
            spec["config"] = [{"opaque": {"driver": self.name, "parameters": plan.parameters}}]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": plan.name},
            "spec": spec,
        }
