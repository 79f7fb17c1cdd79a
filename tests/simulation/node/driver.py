"""Driver of the simulated devices: the product's `Driver` interface over the hardware of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from plimsoll.drivers.plugin import (
    AllocatedClaim,
    ClaimError,
    ClaimRef,
    DevicePool,
    Driver,
    InjectedDevice,
    Prepared,
)
from tests.simulation.faults import Dice
from tests.simulation.history import History
from tests.simulation.loop import Process
from tests.simulation.node.call_faults import DriverFaultKind, NodeFaults
from tests.simulation.node.hardware import Hardware, Hold, Inventory

#: Most time for one device (seconds).
_WORK_SECONDS = 0.05
#: Length of a slow call, and of one that hangs: the kubelet waits for 45 seconds.
_SLOW_SECONDS = (1.0, 20.0)
_HANG_SECONDS = (40.0, 80.0)


class SimulatedDriver(Driver):
    """Driver of one process; what it has set up is in the hardware."""

    def __init__(
        self,
        process: Process,
        hardware: Hardware,
        inventory: Inventory,
        faults: NodeFaults,
        history: History,
        crash: Callable[[], None],
    ) -> None:
        """Create a driver; `crash` kills its process."""
        self.name = inventory.driver
        self._process = process
        self._hardware = hardware
        self._inventory = inventory
        self._faults = faults
        self._history = history
        self._crash = crash
        self._calls = 0

    def pools(self) -> Sequence[DevicePool]:
        inventory = self._inventory
        return [
            DevicePool(
                inventory.pool, inventory.published(), inventory.counters, per_slice=inventory.per_slice
            )
        ]

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        fault, dice = self._begin("prepare", claim.ref)
        problem = await self._before(fault, dice)
        if problem:
            return ClaimError(problem)
        prepared = []
        for result in claim.results:
            if result.pool != self._inventory.pool or result.device not in self._inventory.devices:
                return ClaimError(f"device {result.pool}/{result.device} is not on this node")
            consumed = tuple((name, str(amount)) for name, amount in sorted(result.consumed_capacity.items()))
            hold = Hold(
                self.name,
                result.pool,
                result.device,
                result.share_id or "",
                consumed,
                bool(result.admin_access),
            )
            self._note("sets up", result.device, claim.ref)
            problem = self._hardware.set_up(claim.ref.uid, hold)
            if problem:
                return ClaimError(problem)
            prepared.append(
                InjectedDevice(
                    (result.request.partition("/")[0],),
                    result.pool,
                    result.device,
                    env={"DEVICE": result.device},
                    share_id=result.share_id,
                )
            )
            await asyncio.sleep(self._process.loop.dice.random() * _WORK_SECONDS)
            await self._after(fault)
        return prepared

    async def unprepare(self, claim: ClaimRef) -> ClaimError | None:
        fault, dice = self._begin("unprepare", claim)
        problem = await self._before(fault, dice)
        if problem:
            return ClaimError(problem)
        await asyncio.sleep(self._process.loop.dice.random() * _WORK_SECONDS)
        if self._hardware.tear_down(self.name, claim.uid):
            self._note("tears down", "all devices", claim)
        await self._after(fault)
        return None

    # -- faults

    def _begin(self, method: str, ref: ClaimRef) -> tuple[DriverFaultKind | None, Dice]:
        self._calls += 1
        fault, dice = self._faults.choose_for_work(f"{self._process.name}/{method}/{self._calls}")
        if fault is not None:
            self._history.note(self._process.name, f"! {fault.value}:", f"{method} {ref} {ref.uid}")
        return fault, dice

    async def _before(self, fault: DriverFaultKind | None, dice: Dice) -> str:
        """Do what happens before the hardware is changed; return why it is not."""
        match fault:
            case DriverFaultKind.REFUSE:
                return "the device is busy"
            case DriverFaultKind.RAISE:
                raise OSError("the device does not respond")
            case DriverFaultKind.SLOW:
                await asyncio.sleep(dice.between(*_SLOW_SECONDS))
            case DriverFaultKind.HANG:
                await asyncio.sleep(dice.between(*_HANG_SECONDS))
            case DriverFaultKind.KILL_BEFORE:
                await self._die()
        return ""

    async def _after(self, fault: DriverFaultKind | None) -> None:
        if fault is DriverFaultKind.RAISE_AFTER:
            raise OSError("the device was reset")
        if fault is DriverFaultKind.KILL_AFTER:
            await self._die()

    async def _die(self) -> None:
        self._crash()
        await self._process.loop.create_future()  # nothing of a killed process runs

    def _note(self, what: str, device: str, ref: ClaimRef) -> None:
        self._history.note(self._process.name, what, f"{device} for claim {ref} {ref.uid}")
