"""How a CPU driver is set up. Values only; reading them from files and flags is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.quantity import Quantity
from plimsoll.drivers.cpu.allocation import AssignOptions

DRIVER_NAME = "dra.cpu"


class Mode(StrEnum):
    """A device for each group of CPUs, or one for each of them."""

    GROUPED = "grouped"
    INDIVIDUAL = "individual"


class GroupBy(StrEnum):
    """What CPUs of one device have in common."""

    NUMA = "numanode"
    SOCKET = "socket"
    L3 = "l3cache"
    PCIE = "pcieroot"
    MACHINE = "machine"


class Mapping(StrEnum):
    """Whether devices say what they take from the node's allocatable, and in which form.

    AUTO asks the API server which form it knows.
    """

    AUTO = "auto"
    OFF = "off"
    V1_36 = "1.36"
    V1_37 = "1.37"


class Enforcement(StrEnum):
    """Who sets the CPUs of containers. AUTO is NRI where there is a socket, else cgroups."""

    AUTO = "auto"
    NRI = "nri"
    CGROUPS = "cgroups"


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """What the scheduler does with amounts of CPUs before it books them.

    `publish`: amounts are rounded up to whole CPUs (or cores) by the scheduler; off for API servers that do
    not know the field. `default` is what a request without an amount takes, None: the whole device, as a
    request without an amount does of any device without a policy.
    """

    publish: bool = True
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Overhead:
    """CPU that is charged to a pod beside its claims: once, and for each container that uses a claim."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None

    def __bool__(self) -> bool:
        return self.per_pod is not None or self.per_container is not None


@dataclass(frozen=True, slots=True)
class PinSettings:
    """What containers get beside their CPUs.

    `mems`: the memory nodes of its CPUs. `lift_quota`: no CFS quota for containers that have only exclusive
    CPUs. `mix`: containers with a claim may use the shared pool too. `across_pods`: pods may share a claim.
    `requests_apart`: a container that names one request of a claim gets the CPUs of that request only.
    `push`: containers are changed through NRI at any time, None: if the runtime's NRI is known to be safe.
    `fail_closed`: containers are not made if the driver dies while the runtime waits for its answer.
    """

    enforcement: Enforcement = Enforcement.AUTO
    mems: bool = False
    lift_quota: bool = False
    mix: bool = False
    across_pods: bool = False
    requests_apart: bool = False
    push: bool | None = None
    fail_closed: bool = True


@dataclass(frozen=True, slots=True)
class CpuSettings:
    """A CPU driver on one node.

    `reserved` are CPUs that are never published and never shared, or how many. `min_shared` is how many CPUs
    of the shared pool cannot be claimed, `shared` are CPUs that are among them for sure. `folder` is where
    the driver's record is; `kubelet_root` is the root folder of the kubelet or node agent. `kubeconfig` is
    empty in a pod; `bind_address` is where health and metrics are told. `report_cpus`: the status of claims
    tells which CPUs they have.
    """

    node: str
    mode: Mode = Mode.GROUPED
    group_by: GroupBy = GroupBy.NUMA
    reserved: CpuSet | int = 0
    min_shared: int = 0
    mapping: Mapping = Mapping.AUTO
    pcie_roots: bool = False
    assign: AssignOptions = field(default_factory=AssignOptions)
    pin: PinSettings = field(default_factory=PinSettings)
    host_root: Path = Path("/")
    overlay: Path | None = None
    kubelet_root: Path = Path("/var/lib/kubelet")
    cdi: Path = Path("/var/run/cdi")
    nri: Path = Path("/var/run/nri/nri.sock")
    shared: CpuSet = EMPTY
    policy: RequestPolicy = field(default_factory=RequestPolicy)
    overhead: Overhead = field(default_factory=Overhead)
    kubeconfig: str = ""
    bind_address: str = ":8080"
    report_cpus: bool = True

    @property
    def needs_pcie(self) -> bool:
        """Whether the topology must know the PCIe roots of CPUs."""
        return self.pcie_roots or (self.mode is Mode.GROUPED and self.group_by is GroupBy.PCIE)

    @property
    def folder(self) -> Path:
        return self.kubelet_root / "plugins" / DRIVER_NAME

    @property
    def record(self) -> Path:
        return self.folder / "cpus.json"
