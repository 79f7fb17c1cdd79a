"""Node settings that cgroup values depend on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.errors import InputError
from plimsoll.ledger.qos import pod_qos
from plimsoll.ledger.requests import PodResourcesOptions


class MemoryReservationPolicy(Enum):
    """Memory protected by memory QoS (the kubelet's memoryReservationPolicy)."""

    NONE = "None"
    TIERED = "TieredReservation"


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupSettings:
    """Kubelet settings and sizes of a node.

    `form` selects the rules of 1.36, which ignore claims, or of 1.37, which count them. The draft form
    follows 1.37.
    """

    memory_capacity: int  #: bytes of memory the machine has
    form: Form = Form.V1_37
    count_claims: bool = True  #: the gate DRANodeAllocatableResources; 1.36 ignores claims either way
    claims_in_qos: bool = False  #: the gate DRANodeAllocatableResourcesQoS; requires that claims count
    pod_level: bool = True  #: the gate PodLevelResources
    memory_qos: bool = False  #: the gate MemoryQoS; requires cgroup v2
    reservation: MemoryReservationPolicy = MemoryReservationPolicy.NONE
    throttling: Fraction | None = Fraction(9, 10)  #: where between request and limit throttling starts
    allocatable_memory: int = 0  #: bytes allocatable to pods; 0 if unknown
    cgroup_version: int = 2
    cfs_quota: bool = True
    cfs_period: int = 100_000  #: microseconds
    single_process_oom_kill: bool = False  #: False: the kernel kills all processes of a container at once
    huge_page_sizes: tuple[str, ...] = ()  #: in the kernel's notation: 2MB, 1GB
    page_size: int = 4096

    def __post_init__(self) -> None:
        for name in ("memory_capacity", "cfs_period", "page_size"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name} must be positive, not {getattr(self, name)}")

    @property
    def claims_count(self) -> bool:
        """True if claims affect this node."""
        return self.count_claims and self.form is not Form.V1_36

    @property
    def claims_raise_qos(self) -> bool:
        """True if claims affect QoS classes, the CPU weight of containers and their memory protection."""
        return self.claims_in_qos and self.claims_count

    def qos_of(self, pod: Pod, charges: Iterable[ClaimCharge] | None = None) -> str:
        """Return the QoS class that this node enforces; `charges` default to those the pod carries."""
        return pod_qos(
            pod, self.form, pod_level=self.pod_level, claims=self.claims_raise_qos, charges=charges
        )

    @property
    def enforces_memory_qos(self) -> bool:
        return self.memory_qos and self.cgroup_version == 2

    @property
    def options(self) -> PodResourcesOptions:
        """Options for computing a pod's requests and limits on this node."""
        return PodResourcesOptions(
            form=self.form, count_claims=self.claims_count, skip_pod_level=not self.pod_level
        )
