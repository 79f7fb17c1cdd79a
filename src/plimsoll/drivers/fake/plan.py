"""Data model and format of a device file: drivers, device templates and injected faults.

docs/drivers.md ("Devices from a file") describes the fields. `devices.py` builds devices from them. Strings
still contain placeholders, which are filled for each device of each node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Meta

from plimsoll.api.config import NOT_IN_FILE, convert_config
from plimsoll.common.config_file import Seconds
from plimsoll.drivers.fake.values import (
    Amount,
    Attribute,
    ClassName,
    DeviceNode,
    DriverName,
    Environment,
    Mount,
    Patterns,
    Policy,
    RequestPolicyTree,
    Strings,
    read_quantity,
)
from plimsoll.drivers.plugin import Health
from plimsoll.errors import DecodeError, InputError

MAX_DEVICES = 10_000
T = TypeVar("T")
BindingOutcome: TypeAlias = Literal["ready", "fail", "never"]
_Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_DEVICES)]
_Entries: TypeAlias = Annotated[tuple[T, ...], Meta(min_length=1)]
_Rules: TypeAlias = Annotated[tuple[T, ...], Meta(max_length=1000)]
_Amounts: TypeAlias = Mapping[str, Amount]


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiEdits:
    """Container edits and device status for containers that use the device.

    Mounts and device nodes have the keys of CDI.
    """

    env: Environment = field(default_factory=dict)
    mounts: _Entries[Mount] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    status: Mapping[str, str | int | bool] = field(default_factory=dict, metadata=NOT_IN_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingPlan:
    """Binding conditions of a device, and how they end."""

    conditions: Strings = ()
    failures: Strings = field(default=(), metadata={"name": "failureConditions"})
    binds_to_node: bool = False
    outcome: BindingOutcome = "ready"
    after: Seconds = 0.0  #: seconds after the allocation

    def __post_init__(self) -> None:
        for name, given in (("conditions", self.conditions), ("failureConditions", self.failures)):
            if not given:
                raise DecodeError(
                    "must have at least one type of condition, such as example.com/attached", name
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """Capacity of a device with its request policy."""

    value: Amount
    policy: RequestPolicyTree | None = field(default=None, metadata={"name": "requestPolicy"})


def _read_capacity(value: Any) -> CapacityPlan:
    if not isinstance(value, Mapping):
        return CapacityPlan(value=read_quantity(value))
    found: CapacityPlan = convert_config(value, CapacityPlan)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityFactor:
    """Quantity for each unit of a capacity; None: one."""

    name: Annotated[str, Meta(min_length=1, examples=["the name of one of the capacities"])]
    times: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResource:
    """Node resource consumed by a device: a quantity for each device, or for each unit of a capacity."""

    per_device: Amount | None = None
    per_capacity: CapacityFactor | None = None
    per_pod: Amount | None = None
    per_container: Amount | None = None
    policy: Policy = ""

    def __post_init__(self) -> None:
        if self.per_device is not None and self.per_capacity is not None:
            raise DecodeError("must not be set together with perDevice", "perCapacity")
        given = (self.per_device, self.per_capacity, self.per_pod, self.per_container)
        if all(each is None for each in given):
            raise InputError("must have perDevice, perCapacity, perPod or perContainer")


def _read_resource(value: Any) -> NodeResource:
    """Convert a node resource; a plain quantity is for each device."""
    if not isinstance(value, Mapping):
        return NodeResource(per_device=read_quantity(value))
    found: NodeResource = convert_config(value, NodeResource)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaintPlan:
    """Taint of a device."""

    key: Annotated[str, Meta(min_length=1, examples=["example.com/maintenance"])]
    effect: Literal["NoSchedule", "NoExecute", "None"] = "NoSchedule"
    value: str = ""

    @property
    def tree(self) -> dict[str, str]:
        """Taint as in the API."""
        taint: dict[str, str] = {"key": self.key, "effect": self.effect}
        return {**taint, "value": self.value} if self.value else taint


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceShape:
    """Properties that full devices and partitions have in common."""

    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, Annotated[CapacityPlan, _read_capacity]] = field(default_factory=dict)
    #: By name, for capacities with a requestPolicyName.
    request_policies: Mapping[str, RequestPolicyTree] = field(default_factory=dict)
    multiple: bool = field(default=False, metadata={"name": "allowMultipleAllocations"})
    node_resources: Mapping[str, Annotated[NodeResource, _read_resource]] = field(default_factory=dict)
    taints: _Rules[DeviceTaintPlan] = ()
    binding: BindingPlan | None = None
    container: CdiEdits = CdiEdits()
    status: Mapping[str, str | int | bool] = field(default_factory=dict)

    @property
    def edits(self) -> CdiEdits:
        return replace(self.container, status=self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(DeviceShape):
    """Partitions of one profile."""

    profile: Annotated[str, Meta(min_length=1, examples=["1g.5gb"])]
    count: _Count = 1
    counters: _Amounts = field(default_factory=dict)
    compatibility_groups: Strings = ()

    def __post_init__(self) -> None:
        if not self.counters:
            problem = "must be set: the counters that the partition consumes, such as {memory: 5Gi}"
            raise DecodeError(problem, "counters")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Number of NUMA nodes and PCIe roots that devices are spread over; 0: not set."""

    numa_nodes: Annotated[int, Meta(ge=1, le=1024)] = 0
    pcie_roots: Annotated[int, Meta(ge=1, le=256)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterUse:
    """Counters of a counter set that a device consumes."""

    counter_set: Annotated[str, Meta(min_length=1, examples=["the name of one of counterSets"])]
    counters: _Amounts = field(default_factory=dict)
    compatibility_groups: Strings = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTemplate(DeviceShape):
    """Template of similar devices that differ by their number."""

    name: Annotated[str, Meta(min_length=1, examples=["gpu-{i}"])]
    count: _Count = 1
    spread: Spread = Spread()
    counters: _Amounts = field(default_factory=dict)
    compatibility_groups: Strings = ()  #: of the full device, together with its partitions
    #: publish the full device along with its partitions
    full: bool = field(default=True, metadata={"name": "whole"})
    partitions: _Entries[Partition] = ()
    consumes: _Entries[CounterUse] = field(default=(), metadata={"name": "consumesCounters"})

    def __post_init__(self) -> None:
        if self.partitions and not self.counters:
            problem = "must be set for a device with partitions: the counters that they share"
            raise DecodeError(problem, "counters")
        if self.compatibility_groups and not self.counters:
            raise DecodeError("must not be set without counters", "compatibilityGroups")
        if self.counters and self.consumes:
            raise DecodeError("must not be set together with counters", "consumesCounters")
        if self.partitions and self.multiple:
            raise DecodeError("must not be set together with allowMultipleAllocations", "partitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSetPlan:
    name: Annotated[str, Meta(min_length=1, examples=["gpu-{i}"])]
    count: _Count = 1
    counters: _Amounts = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.counters:
            raise DecodeError("must have at least one counter, such as {memory: 40Gi}", "counters")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlan:
    """DeviceClass for devices of the driver."""

    name: ClassName
    selectors: Strings = ()
    extended_resource: str = field(default="", metadata={"name": "extendedResourceName"})
    parameters: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """Injected delay and failures of one kind of call."""

    delay: Seconds = 0.0
    fail_first: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  #: number of failing calls for each claim
    fail_claims: Strings = ()  #: name patterns
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRule:
    """Health of matching devices from a time on; the last matching rule wins."""

    devices: Patterns = ("*",)
    state: Health = Health.UNHEALTHY
    after: Seconds = 0.0  #: seconds after the start of the driver
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRule(DeviceTaintPlan):
    devices: Patterns = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjection:
    """Injected faults of a driver; None in a control file means unchanged."""

    prepare: CallPlan | None = None
    unprepare: CallPlan | None = None
    health: _Rules[HealthRule] | None = None
    absent: Strings | None = None  #: name patterns of absent devices
    taints: _Rules[TaintRule] | None = None

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
class DriverPlan(FaultInjection):
    """Driver of a device file. `where` is its position, for errors."""

    where: str = field(default="drivers[0]", metadata=NOT_IN_FILE)
    name: DriverName
    pool: str = "{node}"
    classes: _Rules[ClassPlan] | None = None
    counter_sets: _Entries[CounterSetPlan] = ()
    templates: _Entries[DeviceTemplate] = field(default=(), metadata={"name": "devices"})
    metadata: bool = False  #: write device metadata files for containers

    def __post_init__(self) -> None:
        count = sum(each.count * (1 + sum(p.count for p in each.partitions)) for each in self.templates)
        if count > MAX_DEVICES:
            raise DecodeError(f"must be at most {MAX_DEVICES} for a node, not {count}", "devices")

    @property
    def faults(self) -> FaultInjection:
        return self.merge_over(FaultInjection())

    def device_classes(self) -> list[dict[str, Any]]:
        """Return the DeviceClasses of the driver; the default is one for all devices, named like it."""
        classes = (ClassPlan(name=self.name),) if self.classes is None else self.classes
        return [self._class(each) for each in classes]

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
