"""Why a claim gets no CPUs: values with numbers in them, and their words.

The words are the Go driver's where it has the case: users search for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.settings import GroupBy
from plimsoll.drivers.plugin.driver import ClaimError

#: The capacity of a device of many CPUs.
CAPACITY = "dra.cpu/cpu"


class Why(StrEnum):
    """What is wrong with a claim, or with the moment."""

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
class PrepareFault:
    """Why a claim gets no CPUs. Which of the numbers mean something depends on `why`."""

    why: Why
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
        return _TEXTS[self.why](self)

    def refusal(self) -> ClaimError:
        return ClaimError(self.message, self.why.value)


def quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def unknown_device(device: str, group: GroupBy | None) -> PrepareFault:
    return PrepareFault(Why.UNKNOWN_DEVICE, device=device, text="" if group is None else group.value)


#: What devices are sought by; the first two in the Go driver's words.
_IDS = {
    "numanode": "NUMA node ID",
    "socket": "socket ID",
    "l3cache": "L3 cache ID",
    "pcieroot": "PCIe root",
    "machine": "machine",
}


def _unknown(fault: PrepareFault) -> str:
    if not fault.text:
        return f"device {quote(fault.device)} not found in device to CPU ID map"
    return f"no valid {_IDS[fault.text]} found for device {fault.device}"


_OPAQUE = "requested CPUs {0.cpus} from opaque config "
_TEXTS: dict[Why, Callable[[PrepareFault], str]] = {
    Why.NO_ALLOCATION: "claim {0.claim} has no allocation".format,
    Why.UNKNOWN_DEVICE: _unknown,
    Why.CAPACITY_MISSING: lambda f: f"CPU capacity {quote(CAPACITY)} for device {quote(f.device)} is missing",
    Why.CAPACITY_NOT_POSITIVE: lambda f: (
        f"CPU capacity for device {quote(f.device)} must be positive, got {f.amount}"
    ),
    Why.CAPACITY_NOT_WHOLE: lambda f: (
        f"CPU capacity for device {quote(f.device)} must be a whole number, got {f.amount}"
    ),
    Why.CONFIG: "{0.text}".format,
    Why.CPUSET_SIZE: (
        "opaque config cpuset size {0.available} does not match requested capacity {0.requested}".format
    ),
    Why.CPUSET_OFFLINE: (_OPAQUE + "contain offline cores: {0.other}").format,
    Why.CPUSET_UNKNOWN: (_OPAQUE + "contain cores whose place in the machine is not known: {0.other}").format,
    Why.CPUSET_RESERVED: (_OPAQUE + "contain reserved cores: {0.other}").format,
    Why.CPUSET_FLOOR: (_OPAQUE + "contain cores that are always shared: {0.other}").format,
    Why.CPUSET_TWICE: (_OPAQUE + "are already assigned to another device in this claim").format,
    Why.CPUSET_TAKEN: (_OPAQUE + "conflict with already allocated claims").format,
    Why.NOT_ENOUGH: lambda f: f"{f.text} (device {f.device}: {f.requested} asked for, {f.available} free)",
    Why.OVERLAP: "claim {0.claim} has overlapping device assignment with other claims".format,
    Why.POOL_EMPTY: (
        "claim {0.claim} would take CPUs {0.cpus} and leave no CPU to the containers that share CPUs".format
    ),
    Why.POOL_SMALL: (
        "claim {0.claim} would take CPUs {0.cpus} and leave {0.available} to the containers that share CPUs "
        "({0.other}): {0.requested} must be left".format
    ),
    Why.OTHER_CPUS: (
        "claim {0.claim} is already prepared with different CPUs {0.cpus} (requested {0.other})".format
    ),
    Why.OTHER_ALLOCATION: (
        "claim {0.claim} is already prepared with CPUs {0.cpus} for another allocation: {0.text}; "
        "it has to be unprepared first".format
    ),
    Why.UNFIT: (
        "claim {0.claim} was prepared by another driver with CPUs {0.cpus}, which do not fit its allocation: "
        "{0.text}; it has to be unprepared first".format
    ),
    Why.DISPUTED: (
        "claim {0.claim} is disputed: {0.text}; CPUs {0.cpus} are kept from everybody until it is unprepared"
    ).format,
    Why.UID: "claim {0.claim} cannot be prepared: {0.text}".format,
    Why.STORE: "claim {0.claim} cannot be recorded: {0.text}".format,
    Why.CDI: "{0.text}".format,
}
