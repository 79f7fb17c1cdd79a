"""Allocation state of a cluster: allocated devices, shares, and consumed capacity.

`AllocationState` is built from the allocations in claim statuses. `hold` and `release` are exact inverses.
docs/spec/allocator.md, "Inputs and outputs", and KEP-5075, "Scheduling enhancement": results with admin
access hold nothing; a result with a shareID holds a share and its consumed capacity; any other holds the
entire device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from plimsoll.errors import StateError

K = TypeVar("K")

#: A share, and what it consumes of each capacity.
ShareRecord: TypeAlias = "tuple[str, tuple[tuple[str, int], ...]]"


@dataclass(slots=True)
class DeviceAllocations:
    """Allocations of one device. Amounts are in nano-units, as in `Quantity.nano`."""

    exclusive: int = 0  #: results that hold the device exclusively; more than one is a double allocation
    shares: dict[str, int] = field(default_factory=dict)  #: shareID -> number of results
    consumed: dict[str, int] = field(default_factory=dict)  #: capacity -> sum over the shares, unless zero
    recorded: dict[ShareRecord, int] = field(default_factory=dict)  #: share and amounts -> number of results

    @property
    def empty(self) -> bool:
        return not (self.exclusive or self.shares or self.recorded)

    def covers(self, share: str | None, amounts: Mapping[str, Quantity]) -> bool:
        """Return whether this much is allocated: the entire device, or the share with its amounts."""
        if share is None:
            return self.exclusive > 0
        if amounts:
            return share in self.shares and _record(share, amounts) in self.recorded
        with_amounts = sum(count for (known, _), count in self.recorded.items() if known == share)
        return self.shares.get(share, 0) > with_amounts

    def copy(self) -> DeviceAllocations:
        return DeviceAllocations(self.exclusive, dict(self.shares), dict(self.consumed), dict(self.recorded))


class AllocationState:
    """Allocated devices of a cluster, by pool and device."""

    __slots__ = ("_counted", "_shared", "_uncounted")

    def __init__(self, shared: bool = True) -> None:
        """With `shared` off (no DRAConsumableCapacity) a share holds the entire device."""
        self._counted: dict[PoolId, dict[str, DeviceAllocations]] = {}
        #: Allocations that are counted when the state is read: many uses of a cluster never do.
        self._uncounted: list[AllocationResult] = []
        self._shared = shared

    @property
    def _pools(self) -> dict[PoolId, dict[str, DeviceAllocations]]:
        if self._uncounted:
            allocations, self._uncounted = self._uncounted, []
            for allocation in allocations:
                for result in allocation.devices.results:
                    self.hold(result)
        return self._counted

    @staticmethod
    def of(claims: Iterable[ResourceClaim], shared: bool = True) -> AllocationState:
        """Build the state from the allocations of these claims."""
        state = AllocationState(shared)
        for claim in claims:
            if claim.status.allocation is not None:
                state.hold_all(claim.status.allocation)
        return state

    # -- queries

    def pool(self, pool: PoolId) -> Mapping[str, DeviceAllocations]:
        """Return the allocated devices of one pool, by device name."""
        return self._pools.get(pool, {})

    def pools(self) -> Iterable[PoolId]:
        """Return the pools with allocated devices."""
        return self._pools.keys()

    def holding(self, device: DeviceId) -> DeviceAllocations | None:
        return self.pool(device.pool_id).get(device.device)

    def __iter__(self) -> Iterator[tuple[DeviceId, DeviceAllocations]]:
        for (driver, pool), devices in self._pools.items():
            for name, holding in devices.items():
                yield DeviceId(driver, pool, name), holding

    def __len__(self) -> int:
        return sum(map(len, self._pools.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AllocationState):
            return NotImplemented
        return self._pools == other._pools and self._shared == other._shared

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> AllocationState:
        clone = AllocationState(self._shared)
        clone._counted = {
            pool: {name: holding.copy() for name, holding in devices.items()}
            for pool, devices in self._pools.items()
        }
        return clone

    # -- updates

    def hold_all(self, allocation: AllocationResult) -> None:
        self._uncounted.append(allocation)

    def release_all(self, allocation: AllocationResult) -> None:
        for result in reversed(allocation.devices.results):
            self.release(result)

    def hold(self, result: DeviceRequestAllocationResult) -> None:
        """Add the device or share of a result."""
        if result.admin_access:
            return
        holding = self._holding(result.driver, result.pool, result.device)
        if result.share_id is None or not self._shared:
            holding.exclusive += 1
            return
        _add(holding.shares, result.share_id, 1)
        if result.consumed_capacity:
            _consume(holding, result.consumed_capacity, result.share_id)

    def release(self, result: DeviceRequestAllocationResult) -> None:
        """Remove exactly what `hold` added; raises StateError if it is not allocated."""
        if result.admin_access:
            return
        device = DeviceId.of(result)
        holding = self.holding(device)
        share = result.share_id if self._shared else None
        if holding is None or not holding.covers(share, result.consumed_capacity):
            raise StateError(f"device {device} is released but not held" + (f": {share}" if share else ""))
        if share is None:
            holding.exclusive -= 1
        else:
            _add(holding.shares, share, -1)
            if result.consumed_capacity:
                _add(holding.recorded, _record(share, result.consumed_capacity), -1)
                for name, amount in result.consumed_capacity.items():
                    _add(holding.consumed, name, -amount.nano)
        if holding.empty:
            pool = self._pools[device.pool_id]
            del pool[device.device]
            if not pool:
                del self._pools[device.pool_id]

    def _holding(self, driver: str, pool: str, device: str) -> DeviceAllocations:
        pools = self._pools
        pool_id = PoolId(driver, pool)
        devices = pools.get(pool_id)
        if devices is None:
            devices = pools[pool_id] = {}
        holding = devices.get(device)
        if holding is None:
            holding = devices[device] = DeviceAllocations()
        return holding


def _consume(holding: DeviceAllocations, amounts: Mapping[str, Quantity], share: str) -> None:
    _add(holding.recorded, _record(share, amounts), 1)
    for name, amount in amounts.items():
        _add(holding.consumed, name, amount.nano)


def _record(share: str, amounts: Mapping[str, Quantity]) -> ShareRecord:
    found = [(name, amount.nano) for name, amount in amounts.items()]
    if len(found) > 1:
        found.sort()
    return share, tuple(found)


def _add(sums: dict[K, int], key: K, amount: int) -> None:
    """Add to a sum; zero sums are removed, so that equal states compare equal."""
    total = sums.get(key, 0) + amount
    if total:
        sums[key] = total
    else:
        sums.pop(key, None)
