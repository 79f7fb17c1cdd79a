"""START HERE: simulated driver on one node.

`FakeDriver` keeps the state (present devices, allocations, injected faults) and waits; decisions are made by
the pure functions of `devices.py`, `conflicts.py` and `fault_injection.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from plimsoll.api.forms import Form
from plimsoll.api.resource import DeviceRequestAllocationResult
from plimsoll.drivers.fake.conflicts import DeviceAllocation, find_conflict
from plimsoll.drivers.fake.devices import FakeDevice, fill_edits, make_devices, to_variable_name
from plimsoll.drivers.fake.fault_injection import (
    find_failure,
    find_next_change,
    get_health,
    get_taints,
    matches_any,
)
from plimsoll.drivers.fake.placeholders import Value
from plimsoll.drivers.fake.plan import CallPlan, DriverPlan, FaultInjection
from plimsoll.drivers.plugin import (
    AllocatedClaim,
    ClaimError,
    ClaimRef,
    DeviceHealth,
    DevicePool,
    Driver,
    InjectedDevice,
    PluginNotifier,
    Prepared,
)
from plimsoll.drivers.plugin.prepared_claim_store import PreparedClaimRecord

#: Number of claims whose calls are counted; the oldest are dropped first.
_MAX_COUNTED = 10_000


class FakeDriver(Driver):
    """Driver of a device file on one node, to be passed to a `PluginServer`."""

    def __init__(
        self,
        plan: DriverPlan,
        node: str,
        *,
        form: Form | None = Form.V1_37,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`form` is the form of node resources: see `make_devices`."""
        self.name = plan.name
        self.plan = plan
        self.node = node
        self.inventory = make_devices(plan, node, form)
        self.allocated: dict[str, tuple[DeviceAllocation, ...]] = {}
        #: Callbacks for changes of the devices and of their health.
        self.on_devices: Callable[[], None] = lambda: None
        self.on_health: Callable[[], None] = lambda: None
        #: Prepared claims by UID, including those of earlier processes: see `PluginServer.prepared_claims`.
        self.known: Callable[[], Mapping[str, PreparedClaimRecord]] = dict
        #: Function that reads a claim from the API.
        self.read_claim: Callable[[ClaimRef], Awaitable[AllocatedClaim | ClaimError]] = _not_found
        self._faults = plan.faults
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self._calls: dict[tuple[str, str], int] = {}
        self._changed = asyncio.Event()

    # -- faults

    @property
    def faults(self) -> FaultInjection:
        return self._faults

    def apply_control(self, faults: FaultInjection) -> None:
        """Apply injected faults; fields that are not set are as in the device file."""
        desired = faults.merge_over(self.plan.faults)
        if desired == self._faults:
            return
        before, self._faults = self._faults, desired
        if (before.absent, before.taints) != (desired.absent, desired.taints):
            self.on_devices()
        if before.health != desired.health or before.absent != desired.absent:
            self.on_health()
        self._changed.set()

    async def watch(self, server: PluginNotifier) -> None:
        """Publish health when it changes with time."""
        while True:
            self._changed.clear()
            elapsed = self._clock() - self._started
            due = find_next_change(self._faults.health or (), elapsed)
            waiting = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((waiting,), timeout=None if due is None else max(0.0, due - elapsed))
            finally:
                waiting.cancel()
            if not self._changed.is_set():
                server.publish_health()

    # -- Driver interface

    def pools(self) -> Sequence[DevicePool]:
        devices = [self._published_tree(device) for device in self.present_devices()]
        return [DevicePool(self.inventory.pool, devices, self.inventory.counter_trees())]

    def present_devices(self) -> list[FakeDevice]:
        """Return the devices that are not absent."""
        absent = self._faults.absent or ()
        return [device for device in self.inventory.devices.values() if not matches_any(device.name, absent)]

    def _published_tree(self, device: FakeDevice) -> dict[str, object]:
        taints = get_taints(self._faults.taints or (), device.name)
        tree = dict(device.tree)
        return {**tree, "taints": [*tree.get("taints", ()), *map(dict, taints)]} if taints else tree

    def health(self) -> Iterable[DeviceHealth]:
        elapsed, rules = self._clock() - self._started, self._faults.health or ()
        found = []
        for device in self.present_devices():
            state, message = get_health(rules, device.name, elapsed)
            found.append(DeviceHealth(self.inventory.pool, device.name, state, message))
        return found

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        problem = await self._start_call("prepare", self._faults.prepare, claim.ref)
        if problem:
            return ClaimError(problem)
        present_devices = {device.name: device for device in self.present_devices()}
        for result in claim.results:
            if result.pool != self.inventory.pool or result.device not in present_devices:
                return ClaimError(
                    f"device {result.pool}/{result.device} of {self.name} is not on node {self.node}"
                )
        await self.load_allocations(claim.ref.uid)
        desired = _list_allocations(claim)
        others = [
            each for uid, allocated in self.allocated.items() if uid != claim.ref.uid for each in allocated
        ]
        conflict = find_conflict(self.inventory, others, desired)
        if conflict is not None:
            return ClaimError(str(conflict), code="Conflict")
        self.allocated[claim.ref.uid] = desired
        return [self._inject(claim.ref, result, present_devices[result.device]) for result in claim.results]

    async def load_allocations(self, uid: str) -> None:
        """Load the allocations of claims prepared by an earlier process."""
        for other, prepared in self.known().items():
            if other == uid or other in self.allocated:
                continue
            found = await self.read_claim(prepared.ref)
            if isinstance(found, AllocatedClaim):
                self.allocated[other] = _list_allocations(found)
            else:  # deleted from the API, but still prepared on this node
                self.allocated[other] = tuple(
                    DeviceAllocation(prepared.ref, device.device) for device in prepared.devices
                )

    async def unprepare(self, claim: ClaimRef) -> ClaimError | None:
        problem = await self._start_call("unprepare", self._faults.unprepare, claim)
        if problem:
            return ClaimError(problem)
        self.allocated.pop(claim.uid, None)
        for call in ("prepare", "unprepare"):
            self._calls.pop((call, claim.uid), None)
        return None

    async def _start_call(self, call: str, plan: CallPlan | None, claim: ClaimRef) -> str:
        """Count a call and wait for its configured delay; return the injected error or ""."""
        key = (call, claim.uid)
        self._calls[key] = count = self._calls.pop(key, 0) + 1
        while len(self._calls) > _MAX_COUNTED:
            del self._calls[next(iter(self._calls))]
        if plan is not None and plan.delay:
            await self._sleep(plan.delay)
        return find_failure(plan, claim.name, count)

    def _inject(
        self, claim: ClaimRef, result: DeviceRequestAllocationResult, device: FakeDevice
    ) -> InjectedDevice:
        request = result.request.partition("/")[0]
        known: dict[str, Value] = {
            "claim": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "request": request,
            "REQUEST": to_variable_name(request),
            "share": result.share_id or "",
            "pool": result.pool,
            **{f"capacity.{name}": str(amount) for name, amount in result.consumed_capacity.items()},
        }
        edits = fill_edits(device, known)
        return InjectedDevice(
            (request,),
            result.pool,
            result.device,
            env=edits.env,
            mounts=edits.mounts,
            device_nodes=edits.device_nodes,
            share_id=result.share_id,
            metadata={"attributes": device.tree.get("attributes", {})} if self.plan.metadata else None,
            data=edits.status or None,
        )


def _list_allocations(claim: AllocatedClaim) -> tuple[DeviceAllocation, ...]:
    """Return the allocations of a claim; admin access does not allocate a device."""
    return tuple(
        DeviceAllocation(claim.ref, result.device, result.consumed_capacity)
        for result in claim.results
        if not result.admin_access
    )


async def _not_found(claim: ClaimRef) -> ClaimError:
    return ClaimError(f"claim {claim} is not available")
