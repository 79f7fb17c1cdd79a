"""Errors of preparing a claim: structured values and their messages.

The messages are the Go driver's where it has the case: users search for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.go_text import quote_go
from plimsoll.drivers.cpu.settings import CAPACITY, GroupBy
from plimsoll.drivers.plugin.driver import ClaimError


class PrepareErrorReason(StrEnum):
    """Reason why a claim cannot be prepared."""

    NO_ALLOCATION = "NoAllocation"
    UNKNOWN_DEVICE = "UnknownDevice"
    CAPACITY_MISSING = "CapacityMissing"
    CAPACITY_NOT_POSITIVE = "CapacityNotPositive"
    CAPACITY_NOT_WHOLE = "CapacityNotWhole"
    CONFIG = "InvalidConfig"
    CPUSET_SIZE = "CpusetSize"
    CPUSET_OFFLINE = "CpusetOffline"
    CPUSET_UNKNOWN = "CpusetUnknown"
    CPUSET_RESERVED = "CpusetReserved"
    CPUSET_FLOOR = "CpusetShared"
    CPUSET_TWICE = "CpusetTwice"
    CPUSET_TAKEN = "CpusetTaken"
    NOT_ENOUGH = "NotEnoughCPUs"
    OVERLAP = "Overlap"
    POOL_EMPTY = "SharedPoolEmpty"
    POOL_SMALL = "SharedPoolSmall"
    OTHER_CPUS = "AlreadyPrepared"
    OTHER_ALLOCATION = "AlreadyAllocated"
    UNFIT = "Unfit"
    DISPUTED = "Disputed"
    UID = "InvalidUID"
    STORE = "StoreFailed"
    CDI = "CDIFailed"


@dataclass(frozen=True, slots=True)
class PrepareError:
    """Error of preparing a claim. The meaning of the fields depends on `why`."""

    why: PrepareErrorReason
    claim: str = ""
    device: str = ""
    amount: str = ""
    cpus: CpuSet = EMPTY
    other: CpuSet = EMPTY
    requested: int = 0
    available: int = 0
    text: str = ""

    @property
    def message(self) -> str:
        return _MESSAGES[self.why](self)

    def to_claim_error(self) -> ClaimError:
        return ClaimError(self.message, self.why.value)


def unknown_device(device: str, group: GroupBy | None) -> PrepareError:
    return PrepareError(
        PrepareErrorReason.UNKNOWN_DEVICE, device=device, text="" if group is None else group.value
    )


#: Identifiers in messages; the first two are the Go driver's.
_IDS = {
    "numanode": "NUMA node ID",
    "socket": "socket ID",
    "l3cache": "L3 cache ID",
    "pcieroot": "PCIe root",
    "machine": "machine",
}


def _unknown(fault: PrepareError) -> str:
    if not fault.text:
        return f"device {quote_go(fault.device)} not found in device to CPU ID map"
    return f"no valid {_IDS[fault.text]} found for device {fault.device}"


_OPAQUE = "requested CPUs {0.cpus} from opaque config "
_MESSAGES: dict[PrepareErrorReason, Callable[[PrepareError], str]] = {
    PrepareErrorReason.NO_ALLOCATION: "claim {0.claim} has no allocation".format,
    PrepareErrorReason.UNKNOWN_DEVICE: _unknown,
    PrepareErrorReason.CAPACITY_MISSING: lambda f: (
        f"CPU capacity {quote_go(CAPACITY)} for device {quote_go(f.device)} is missing"
    ),
    PrepareErrorReason.CAPACITY_NOT_POSITIVE: lambda f: (
        f"CPU capacity for device {quote_go(f.device)} must be positive, got {f.amount}"
    ),
    PrepareErrorReason.CAPACITY_NOT_WHOLE: lambda f: (
        f"CPU capacity for device {quote_go(f.device)} must be a whole number, got {f.amount}"
    ),
    PrepareErrorReason.CONFIG: "{0.text}".format,
    PrepareErrorReason.CPUSET_SIZE: (
        "opaque config cpuset size {0.available} does not match requested capacity {0.requested}".format
    ),
    PrepareErrorReason.CPUSET_OFFLINE: (_OPAQUE + "contain offline cores: {0.other}").format,
    PrepareErrorReason.CPUSET_UNKNOWN: (_OPAQUE + "contain cores with unknown topology: {0.other}").format,
    PrepareErrorReason.CPUSET_RESERVED: (_OPAQUE + "contain reserved cores: {0.other}").format,
    PrepareErrorReason.CPUSET_FLOOR: (_OPAQUE + "contain cores that are always shared: {0.other}").format,
    PrepareErrorReason.CPUSET_TWICE: (
        _OPAQUE + "are already assigned to another device in this claim"
    ).format,
    PrepareErrorReason.CPUSET_TAKEN: (_OPAQUE + "conflict with already allocated claims").format,
    PrepareErrorReason.NOT_ENOUGH: lambda f: (
        f"{f.text} (device {f.device}: {f.requested} requested, {f.available} free)"
    ),
    PrepareErrorReason.OVERLAP: "claim {0.claim} has overlapping device assignment with other claims".format,
    PrepareErrorReason.POOL_EMPTY: (
        "claim {0.claim} would take CPUs {0.cpus} and leave no CPU to the containers that share CPUs".format
    ),
    PrepareErrorReason.POOL_SMALL: (
        "claim {0.claim} would take CPUs {0.cpus} and leave {0.available} to the containers that share CPUs "
        "({0.other}): {0.requested} must be left".format
    ),
    PrepareErrorReason.OTHER_CPUS: (
        "claim {0.claim} is already prepared with different CPUs {0.cpus} (requested {0.other})".format
    ),
    PrepareErrorReason.OTHER_ALLOCATION: (
        "claim {0.claim} is already prepared with CPUs {0.cpus} for another allocation: {0.text}; "
        "it has to be unprepared first".format
    ),
    PrepareErrorReason.UNFIT: (
        "claim {0.claim} was prepared by another driver with CPUs {0.cpus}, which do not fit its allocation: "
        "{0.text}; it has to be unprepared first".format
    ),
    PrepareErrorReason.DISPUTED: (
        "claim {0.claim} is disputed: {0.text}; CPUs {0.cpus} are withheld from others until it is unprepared"
    ).format,
    PrepareErrorReason.UID: "claim {0.claim} cannot be prepared: {0.text}".format,
    PrepareErrorReason.STORE: "claim {0.claim} cannot be recorded: {0.text}".format,
    PrepareErrorReason.CDI: "{0.text}".format,
}
