"""START HERE: a driver of a file, on one node.

Owns `FakeDriver`: which devices are there now, how claims are made ready and released, how devices are. What
is decided is decided in `devices.py`, `holdings.py` and `conduct.py`; here it is remembered and waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from plimsoll.api.forms import Form
from plimsoll.api.resource import AllocationDevice
from plimsoll.drivers.fake.devices import FakeDevice, as_variable, fill_gift, make_devices
from plimsoll.drivers.fake.fault_injection import failure, fits, health_of, next_change, taints_of
from plimsoll.drivers.fake.holdings import Holding, find_conflict
from plimsoll.drivers.fake.placeholders import Value
from plimsoll.drivers.fake.plan import CallPlan, Conduct, DriverPlan
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

#: Calls are counted for so many claims; the oldest are forgotten first.
_MOST_COUNTED = 10_000


class FakeDriver(Driver):
    """One driver of a file on one node; give it to a `PluginServer`."""

    def __init__(
        self,
        plan: DriverPlan,
        node: str,
        *,
        form: Form | None = Form.V1_37,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`form` is how node resources are written: see `make_devices`."""
        self.name = plan.name
        self.plan = plan
        self.node = node
        self.arrangement = make_devices(plan, node, form)
        self.held: dict[str, tuple[Holding, ...]] = {}
        #: Called when devices have changed, and when their health has.
        self.on_devices: Callable[[], None] = _nothing
        self.on_health: Callable[[], None] = _nothing
        #: What claims have on record, by UID, those of former runs too: see `PluginServer.handed`.
        self.known: Callable[[], Mapping[str, PreparedClaimRecord]] = dict
        #: Reads a claim: see `read_claim`.
        self.look_up: Callable[[ClaimRef], Awaitable[AllocatedClaim | ClaimError]] = _not_found
        self._conduct = plan.conduct
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self._calls: dict[tuple[str, str], int] = {}
        self._changed = asyncio.Event()

    # -- behaviour

    @property
    def conduct(self) -> Conduct:
        return self._conduct

    def follow(self, orders: Conduct) -> None:
        """Behave like this from now on, and otherwise as the file says."""
        wanted = orders.over(self.plan.conduct)
        if wanted == self._conduct:
            return
        before, self._conduct = self._conduct, wanted
        if (before.absent, before.taints) != (wanted.absent, wanted.taints):
            self.on_devices()
        if before.health != wanted.health or before.absent != wanted.absent:
            self.on_health()
        self._changed.set()

    async def watch(self, server: PluginNotifier) -> None:
        """Tell of health as it changes with time."""
        while True:
            self._changed.clear()
            elapsed = self._clock() - self._started
            due = next_change(self._conduct.health or (), elapsed)
            waiting = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((waiting,), timeout=None if due is None else max(0.0, due - elapsed))
            finally:
                waiting.cancel()
            if not self._changed.is_set():
                server.publish_health()

    # -- for the station

    def pools(self) -> Sequence[DevicePool]:
        devices = [self._shown(device) for device in self.present()]
        return [DevicePool(self.arrangement.pool, devices, self.arrangement.counter_trees())]

    def present(self) -> list[FakeDevice]:
        """The devices that are there now."""
        absent = self._conduct.absent or ()
        return [device for device in self.arrangement.devices.values() if not fits(device.name, absent)]

    def _shown(self, device: FakeDevice) -> dict[str, object]:
        taints = taints_of(self._conduct.taints or (), device.name)
        tree = dict(device.tree)
        return {**tree, "taints": [*tree.get("taints", ()), *map(dict, taints)]} if taints else tree

    def health(self) -> Iterable[DeviceHealth]:
        elapsed, rules = self._clock() - self._started, self._conduct.health or ()
        found = []
        for device in self.present():
            state, message = health_of(rules, device.name, elapsed)
            found.append(DeviceHealth(self.arrangement.pool, device.name, state, message))
        return found

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        problem = await self._begin("prepare", self._conduct.prepare, claim.ref)
        if problem:
            return ClaimError(problem)
        present = {device.name: device for device in self.present()}
        for result in claim.results:
            if result.pool != self.arrangement.pool or result.device not in present:
                return ClaimError(
                    f"device {result.pool}/{result.device} of {self.name} is not on node {self.node}"
                )
        await self._remember(claim.ref.uid)
        wanted = _holdings(claim)
        others = [each for uid, held in self.held.items() if uid != claim.ref.uid for each in held]
        conflict = find_conflict(self.arrangement, others, wanted)
        if conflict is not None:
            return ClaimError(str(conflict), code="Conflict")
        self.held[claim.ref.uid] = wanted
        return [self._hand(claim.ref, result, present[result.device]) for result in claim.results]

    async def _remember(self, uid: str) -> None:
        """Find out what a former run gave to other claims."""
        for other, handed in self.known().items():
            if other == uid or other in self.held:
                continue
            found = await self.look_up(handed.ref)
            if isinstance(found, AllocatedClaim):
                self.held[other] = _holdings(found)
            else:  # gone from the API, but not from this node
                self.held[other] = tuple(Holding(handed.ref, device.device) for device in handed.devices)

    async def unprepare(self, claim: ClaimRef) -> ClaimError | None:
        problem = await self._begin("unprepare", self._conduct.unprepare, claim)
        if problem:
            return ClaimError(problem)
        self.held.pop(claim.uid, None)
        for call in ("prepare", "unprepare"):
            self._calls.pop((call, claim.uid), None)
        return None

    async def _begin(self, call: str, plan: CallPlan | None, claim: ClaimRef) -> str:
        """Count a call and wait as long as it is to take; why it fails, if it does."""
        key = (call, claim.uid)
        self._calls[key] = count = self._calls.pop(key, 0) + 1
        while len(self._calls) > _MOST_COUNTED:
            del self._calls[next(iter(self._calls))]
        if plan is not None and plan.delay:
            await self._sleep(plan.delay)
        return failure(plan, claim.name, count)

    def _hand(self, claim: ClaimRef, result: AllocationDevice, device: FakeDevice) -> InjectedDevice:
        request = result.request.partition("/")[0]
        known: dict[str, Value] = {
            "claim": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "request": request,
            "REQUEST": as_variable(request),
            "share": result.share_id or "",
            "pool": result.pool,
            **{f"capacity.{name}": str(amount) for name, amount in result.consumed_capacity.items()},
        }
        gift = fill_gift(device, known)
        return InjectedDevice(
            (request,),
            result.pool,
            result.device,
            env=gift.env,
            mounts=gift.mounts,
            device_nodes=gift.device_nodes,
            share_id=result.share_id,
            metadata={"attributes": device.tree.get("attributes", {})} if self.plan.metadata else None,
            data=gift.status or None,
        )


def _holdings(claim: AllocatedClaim) -> tuple[Holding, ...]:
    """What a claim has; with admin access a device is looked at, not taken."""
    return tuple(
        Holding(claim.ref, result.device, result.consumed_capacity)
        for result in claim.results
        if not result.admin_access
    )


async def _not_found(claim: ClaimRef) -> ClaimError:
    return ClaimError(f"claim {claim} is not to be had")


def _nothing() -> None:
    """What happens on a change that nobody waits for."""
