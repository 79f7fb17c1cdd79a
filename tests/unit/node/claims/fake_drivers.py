"""Pods, claims and fake drivers for tests of the claim cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.api.core import (
    Container,
    ContainerClaim,
    Pod,
    PodResourceClaim,
    PodSpec,
    ResourceRequirements,
)
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from plimsoll.node.claim_info import ClaimInfo, ClaimRef, Devices, DriverFault, PreparedDevice
from plimsoll.node.claims.checkpoint import ClaimCheckpoint, claims_file
from plimsoll.node.layout import Layout

GPU, NIC = "gpu.example.com", "nic.example.com"


def make_claim(
    name: str,
    *drivers: str,
    uid: str = "",
    users: Sequence[str] = (),
    results: Sequence[DeviceRequestAllocationResult] | None = None,
    namespace: str = "default",
) -> ResourceClaim:
    """Return a claim with one device of each driver (GPU by default), reserved for pods."""
    if results is None:
        results = [
            DeviceRequestAllocationResult(request="r", driver=driver, pool="node", device=f"{name}-dev")
            for driver in drivers or (GPU,)
        ]
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=uid or f"uid-{name}"),
        status=ResourceClaimStatus(
            allocation=AllocationResult(devices=DeviceAllocationResult(results=tuple(results))),
            reserved_for=tuple(
                ResourceClaimConsumerReference(resource="pods", name=user, uid=user) for user in users
            ),
        ),
    )


def make_pod(uid: str, *claims: str, containers: Sequence[Container] = ()) -> Pod:
    """Return a pod with one container that uses all of the claims."""
    whole = Container(
        name="c", resources=ResourceRequirements(claims=tuple(ContainerClaim(name=name) for name in claims))
    )
    return Pod(
        metadata=ObjectMeta(name=uid, namespace="default", uid=uid),
        spec=PodSpec(
            containers=tuple(containers) or (whole,),
            resource_claims=tuple(PodResourceClaim(name=name, resource_claim_name=name) for name in claims),
        ),
    )


def cdi_of(driver: str, uid: str) -> str:
    return f"{driver}/claim={uid}"


@dataclass
class FakeDrivers:
    """Drivers that record their prepared claims. `hook` is called before and after every call."""

    claims: dict[str, ResourceClaim] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    #: (method, driver) or (method, driver, uid) -> the kind of fault to answer with.
    faults: dict[tuple[str, ...], str] = field(default_factory=dict)
    calls: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    answers: dict[tuple[str, str], Devices] = field(default_factory=dict)
    busy: set[tuple[str, str]] = field(default_factory=set)
    hook: Callable[[str], None] = lambda _: None

    def add(self, *claims: ResourceClaim) -> None:
        self.claims |= {claim.metadata.uid: claim for claim in claims}

    def named(self, *names: str) -> dict[str, ResourceClaim]:
        """Return claims by their names in the pod."""
        known = {claim.metadata.name: claim for claim in self.claims.values()}
        return {name: known[name] for name in names if name in known}

    async def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, Devices | DriverFault]:
        kind = await self._begin("prepare", driver, claims)
        found: dict[str, Devices | DriverFault] = {}
        for claim in claims:
            own = kind or self.faults.get(("prepare", driver, claim.uid), "")
            if own not in ("absent", "refused"):
                self.held.setdefault(driver, set()).add(claim.uid)
            found[claim.uid] = DriverFault(driver, own, f"{own}!") if own else self.devices(driver, claim.uid)
            self.hook("prepared")
        await self._end("prepare", driver, claims)
        return found

    async def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, DriverFault | None]:
        kind = await self._begin("unprepare", driver, claims)
        found: dict[str, DriverFault | None] = {}
        for claim in claims:
            own = kind or self.faults.get(("unprepare", driver, claim.uid), "")
            if own not in ("absent", "refused"):
                self.held.setdefault(driver, set()).discard(claim.uid)
            found[claim.uid] = DriverFault(driver, own, f"{own}!") if own else None
            self.hook("unprepared")
        await self._end("unprepare", driver, claims)
        return found

    def devices(self, driver: str, uid: str) -> Devices:
        if (driver, uid) in self.answers:
            return self.answers[driver, uid]
        allocation = self.claims[uid].status.allocation
        assert allocation is not None
        return tuple(
            PreparedDevice(each.pool, each.device, (each.request,), (cdi_of(driver, uid),), each.share_id)
            for each in allocation.devices.results
            if each.driver == driver
        )

    async def _begin(self, method: str, driver: str, claims: Sequence[ClaimRef]) -> str:
        self.hook(method)
        self.calls.append((method, driver, tuple(claim.uid for claim in claims)))
        for claim in claims:
            # Calls for one claim never overlap.
            assert (driver, claim.uid) not in self.busy
            self.busy.add((driver, claim.uid))
        await asyncio.sleep(0)
        return "absent" if driver in self.absent else self.faults.get((method, driver), "")

    async def _end(self, method: str, driver: str, claims: Sequence[ClaimRef]) -> None:
        await asyncio.sleep(0)
        self.busy -= {(driver, claim.uid) for claim in claims}
        self.hook(f"{method} answered")


def on_disk(layout: Layout) -> dict[str, ClaimInfo]:
    """Return the claims in the checkpoint, by UID."""
    recorded: ClaimCheckpoint | None = claims_file(layout).look().value
    return {claim.ref.uid: claim for claim in recorded.claims} if recorded is not None else {}
