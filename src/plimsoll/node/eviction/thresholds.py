"""Eviction thresholds: the amounts that must stay free on a node.

As in the kubelet: hard thresholds that take effect at once, soft ones that take effect after a grace period,
the minimum reclaim, and the resource and condition of each signal.

DIFF: disks are only watched if thresholds for them are given; the kubelet evicts pods from a disk that is 90%
full (test_disk_thresholds_are_optional).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plimsoll.api.quantity import Format, Quantity
from plimsoll.errors import ConfigError, InputError
from plimsoll.node.eviction.ranking import PIDS
from plimsoll.node.machine.machine import EVICTION_HARD, SIGNALS, check_threshold, threshold_amount

MEMORY_AVAILABLE = "memory.available"
ALLOCATABLE_MEMORY = "allocatableMemory.available"
PID_AVAILABLE = "pid.available"
NODEFS_AVAILABLE = "nodefs.available"
NODEFS_INODES = "nodefs.inodesFree"

MEMORY_PRESSURE = "MemoryPressure"
DISK_PRESSURE = "DiskPressure"
PID_PRESSURE = "PIDPressure"
CONDITIONS = (MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE)

_MEMORY = (MEMORY_AVAILABLE, ALLOCATABLE_MEMORY)
#: Thresholds watched by default. Unlike the kubelet, the agent has no images to delete instead of pods.
DEFAULTS: Mapping[str, str] = {MEMORY_AVAILABLE: EVICTION_HARD[MEMORY_AVAILABLE]}


@dataclass(frozen=True, slots=True)
class Threshold:
    """Threshold of a signal; values are amounts (100Mi) or percentages of the capacity (5%)."""

    signal: str
    value: str
    grace: float = 0.0  #: time it has to be met, in seconds; 0 for a hard threshold
    min_reclaim: str = ""

    @property
    def is_hard(self) -> bool:
        return self.grace == 0

    @property
    def resource(self) -> str:
        """Resource by which pods are ranked."""
        if self.signal in _MEMORY:
            return "memory"
        if self.signal == PID_AVAILABLE:
            return PIDS
        return "inodes" if self.signal.endswith(".inodesFree") else "ephemeral-storage"

    @property
    def condition(self) -> str:
        """Node condition of the signal."""
        if self.signal in _MEMORY:
            return MEMORY_PRESSURE
        return PID_PRESSURE if self.signal == PID_AVAILABLE else DISK_PRESSURE

    def amount(self, capacity: int) -> Quantity:
        """Return the amount that must be free."""
        return threshold_amount(self.value, Quantity.of(capacity, Format.BINARY_SI))

    def amount_to_reclaim(self, capacity: int) -> Quantity:
        """Return the amount that must be free before the threshold is no longer met."""
        whole = Quantity.of(capacity, Format.BINARY_SI)
        amount = self.amount(capacity)
        return amount + threshold_amount(self.min_reclaim, whole) if self.min_reclaim else amount


def parse_thresholds(
    hard: Mapping[str, str] = DEFAULTS,
    soft: Mapping[str, str] | None = None,
    soft_grace: Mapping[str, float] | None = None,
    min_reclaim: Mapping[str, str] | None = None,
) -> tuple[Threshold, ...]:
    """Parse the eviction thresholds of a node's settings; raise ConfigError for invalid ones.

    Hard memory thresholds also apply to all pods together, within the memory allocatable to them.
    """
    soft, soft_grace, min_reclaim = soft or {}, soft_grace or {}, min_reclaim or {}
    found = [Threshold(signal, value) for signal, value in _checked(hard, "hard eviction threshold")]
    for signal, value in _checked(soft, "soft eviction threshold"):
        grace = soft_grace.get(signal)
        if grace is None:
            raise ConfigError(f"grace period must be specified for the soft eviction threshold {signal}")
        found.append(Threshold(signal, value, float(grace)))
    for signal, seconds in soft_grace.items():
        if signal not in SIGNALS:
            raise ConfigError(f"unsupported eviction signal {signal} has a grace period")
        if seconds < 0:
            raise ConfigError(f"eviction grace period of {signal} must not be negative, but is {seconds} s")
    reclaims = dict(_checked(min_reclaim, "minimum reclaim"))
    found = [Threshold(t.signal, t.value, t.grace, reclaims.get(t.signal, "")) for t in found]
    found += [
        Threshold(ALLOCATABLE_MEMORY, t.value, t.grace, t.min_reclaim)
        for t in found
        if t.signal == MEMORY_AVAILABLE and t.is_hard and ALLOCATABLE_MEMORY not in hard
    ]
    return tuple(found)


def _checked(texts: Mapping[str, str], what: str) -> Iterable[tuple[str, str]]:
    for signal, text in texts.items():
        try:
            check_threshold(signal, text)
        except InputError as error:
            raise ConfigError(f"{what} {error}") from None
        if text not in ("0%", "100%"):  # no threshold
            yield signal, text


def sort_by_urgency(thresholds: Iterable[Threshold]) -> list[Threshold]:
    """Sort thresholds by urgency: memory first, then in the given order."""
    return sorted(thresholds, key=lambda threshold: threshold.signal not in _MEMORY)
