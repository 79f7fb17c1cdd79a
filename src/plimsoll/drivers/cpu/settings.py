"""Settings of the CPU driver. Values only; `config_file.py` reads them from files and flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from plimsoll.api.config import format_value
from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.quantity import Quantity
from plimsoll.drivers.cpu.allocation import AssignOptions
from plimsoll.errors import InputError

DRIVER_NAME = "dra.cpu"
#: Capacity of grouped devices.
CAPACITY = "dra.cpu/cpu"


def plugin_dir(kubelet_root: Path) -> Path:
    """Return the driver's directory below the root directory of a kubelet."""
    return kubelet_root / "plugins" / DRIVER_NAME


class DeviceMode(StrEnum):
    """Device mode: one device for each group of CPUs, or one for each CPU."""

    GROUPED = "grouped"
    INDIVIDUAL = "individual"


class GroupBy(StrEnum):
    """Grouping of CPUs into devices."""

    NUMA = "numanode"
    SOCKET = "socket"
    L3 = "l3cache"
    PCIE = "pcieroot"
    MACHINE = "machine"


class Mapping(StrEnum):
    """Wire form of published node resource mappings; AUTO is the form that the API server supports."""

    AUTO = "auto"
    OFF = "off"
    V1_36 = "1.36"
    V1_37 = "1.37"


class PinEnforcement(StrEnum):
    """Mechanism that sets the cpusets of containers. AUTO is NRI if its socket exists, else cgroups."""

    AUTO = "auto"
    NRI = "nri"
    CGROUPS = "cgroups"


def _read_default(value: Any) -> int | None:
    if value == "all":
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"must be all or a number of CPUs from 1 on, not {format_value(value)}")
    return value


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """Published request policy for amounts of CPUs.

    `publish`: let the scheduler round amounts up to whole CPUs (or cores); off for API servers without the
    field. `default` is the amount of a request that names none; None: the full device, as without a policy.
    """

    publish: bool = True
    default: Annotated[int | None, _read_default] = None


def _read_overhead(value: Any) -> Quantity:
    amount = Quantity.from_json(value)
    if amount.sign() < 0:
        raise InputError(f"must not be negative, not {amount}")
    return amount


@dataclass(frozen=True, slots=True)
class CpuOverhead:
    """CPU charged in addition to the claimed CPUs: per pod, and per container that uses a claim."""

    per_pod: Annotated[Quantity | None, _read_overhead] = None
    per_container: Annotated[Quantity | None, _read_overhead] = None

    def __bool__(self) -> bool:
        return self.per_pod is not None or self.per_container is not None


@dataclass(frozen=True, slots=True)
class PinSettings:
    """Pinning options.

    `mems`: also set the memory nodes of the CPUs. `lift_quota`: remove the CFS quota of containers with
    exclusive CPUs only. `include_shared`: add the shared pool to containers with claims. `across_pods`:
    several pods may share a claim. `across_containers`: several containers of a pod may; only NRI can refuse
    one. `empty_pool`: a claim may take the last shared CPU while containers share it; they then stay on it.
    `per_request_cpus`: a container that names one request of a claim gets the
    CPUs of that request only. `push`: update running containers through NRI at any time; None: if the
    runtime's NRI version is known to be safe. `fail_closed`: containers are rejected if the driver dies while
    the runtime creates them.
    """

    enforcement: PinEnforcement = PinEnforcement.AUTO
    mems: bool = False
    lift_quota: bool = False
    include_shared: bool = False
    across_pods: bool = False
    across_containers: bool = True
    empty_pool: bool = False
    per_request_cpus: bool = False
    push: bool | None = None
    fail_closed: bool = True


@dataclass(frozen=True, slots=True)
class CpuSettings:
    """Settings of a CPU driver on one node.

    `reserved` are reserved CPUs, neither published nor shared, or their number. `min_shared` is the minimum
    number of CPUs in the shared pool that cannot be claimed (None: one once containers share CPUs), `shared`
    are CPUs that are always among them.
    `kubelet_root` is the root directory of the kubelet or node agent. `kubeconfig` is empty in a pod;
    `bind_address` is the address of health and metrics, served by HTTPS with the certificate in `cert_dir`,
    if given. `report_cpus`: publish the assigned CPUs in the claim status.
    """

    node: str
    mode: DeviceMode = DeviceMode.GROUPED
    group_by: GroupBy = GroupBy.NUMA
    reserved: CpuSet | int = 0
    min_shared: int | None = None
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
    overhead: CpuOverhead = field(default_factory=CpuOverhead)
    kubeconfig: str = ""
    #: DIFF: the Go driver listens on all addresses (test_health_and_metrics_are_local_by_default).
    bind_address: str = "127.0.0.1:8080"
    cert_dir: Path | None = None
    report_cpus: bool = True

    @property
    def needs_pcie(self) -> bool:
        """True if the topology must include the PCIe roots of CPUs."""
        return self.pcie_roots or (self.mode is DeviceMode.GROUPED and self.group_by is GroupBy.PCIE)

    @property
    def plugin_dir(self) -> Path:
        return plugin_dir(self.kubelet_root)

    @property
    def checkpoint_path(self) -> Path:
        return self.plugin_dir / "cpus.json"
