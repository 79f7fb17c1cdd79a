"""What a file of devices says, as values: drivers, templates of devices, and how they are to behave.

Owns the types; `reading.py` makes them, `devices.py` makes devices of them. Texts still have their
placeholders, which are filled for each device of each node. `where` is the place in the file, for errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from plimsoll.drivers.plugin import Health

Outcome: TypeAlias = Literal["ready", "fail", "never"]
OUTCOMES: tuple[Outcome, ...] = ("ready", "fail", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gift:
    """What a container with the device gets, and what its claim's status tells of it.

    Mounts and device nodes have the keys of CDI.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mapping[str, Any], ...] = ()
    device_nodes: tuple[Mapping[str, Any], ...] = ()
    status: Mapping[str, str | int | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Conditions that the scheduler waits for before it binds a pod, and what becomes of them."""

    conditions: tuple[str, ...]
    failures: tuple[str, ...]
    binds_to_node: bool = False
    outcome: Outcome = "ready"
    after: float = 0.0  #: seconds from the allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """An amount of something, and how much of it a claim can ask for."""

    value: str
    policy: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResource:
    """What a device takes of its node: an amount for each device, or for each unit of a capacity."""

    per_device: str | None = None
    capacity: str | None = None
    multiplier: str | None = None
    per_pod: str | None = None
    per_container: str | None = None
    policy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a device is, whether whole or part of one."""

    attributes: Mapping[str, tuple[str, Any]] = field(default_factory=dict)  #: (type or "", value)
    capacity: Mapping[str, CapacityPlan] = field(default_factory=dict)
    multiple: bool = False
    node_resources: Mapping[str, NodeResource] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    binding: Binding | None = None
    gift: Gift = Gift()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A way to take part of a device, so many times."""

    where: str
    profile: str
    count: int
    counters: Mapping[str, str]
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """So many devices that are alike but for what their number makes of them."""

    where: str
    name: str
    count: int
    shape: Shape
    numa_nodes: int = 0  #: over how many they are spread; 0: nothing is said
    pcie_roots: int = 0
    counters: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True  #: a device with partitions can also be had as a whole
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
    """A DeviceClass for devices of the driver."""

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    parameters: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """How calls of one kind go: after how long they are answered, and which of them fail."""

    delay: float = 0.0
    fail_first: int = 0  #: so many calls for every claim
    fail_claims: tuple[str, ...] = ()  #: patterns of names
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRule:
    """From a time on, devices whose names fit are like this; of several rules the last one counts."""

    devices: tuple[str, ...]
    state: Health
    after: float = 0.0  #: seconds from the start of the driver
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRule:
    devices: tuple[str, ...]
    taint: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How a driver behaves; in a control file None means: as before."""

    prepare: CallPlan | None = None
    unprepare: CallPlan | None = None
    health: tuple[HealthRule, ...] | None = None
    absent: tuple[str, ...] | None = None  #: patterns of devices that are not there
    taints: tuple[TaintRule, ...] | None = None

    def over(self, other: Conduct) -> Conduct:
        """What this says, and where it says nothing, what the other one says."""
        return Conduct(
            prepare=other.prepare if self.prepare is None else self.prepare,
            unprepare=other.unprepare if self.unprepare is None else self.unprepare,
            health=other.health if self.health is None else self.health,
            absent=other.absent if self.absent is None else self.absent,
            taints=other.taints if self.taints is None else self.taints,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlan:
    """One driver of a file."""

    where: str
    name: str
    pool: str = "{node}"
    classes: tuple[ClassPlan, ...] = ()
    counter_sets: tuple[CounterSetPlan, ...] = ()
    templates: tuple[Template, ...] = ()
    conduct: Conduct = Conduct()
    metadata: bool = False  #: containers find files about their devices

    def device_classes(self) -> list[dict[str, Any]]:
        """The DeviceClasses of the driver, as the API takes them."""
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
