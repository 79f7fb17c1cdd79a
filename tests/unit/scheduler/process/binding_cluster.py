"""Pod with three claims on an API in memory, and a writer with faults.

One claim is new, one has its finalizer from an attempt before, one has devices and another consumer. All of
them carry unknown fields.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge, read_pod
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError, UnreachableError
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.requests import PodResourcesOptions
from plimsoll.scheduler.binding.writer import FINALIZER
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.charge_writer import ChargeForm
from plimsoll.scheduler.result import Placement
from tests.unit.apiserver.build import ApiHarness, run

NODE, DRIVER, KEEP = "node-1", "dra.example.com", "example.com/keep"
NEW, BEGUN, SHARED = "new", "begun", "shared"
CLAIMS = (NEW, BEGUN, SHARED)
#: The writes of a binding of this pod, reservation and finalizer side by side.
WRITES = ("add_finalizer", "write_allocation", "reserve", "write_charges", "bind")


def results(device: str, **more: Any) -> dict[str, Any]:
    found = {"request": "r", "driver": DRIVER, "pool": NODE, "device": device, **more}
    return {"devices": {"results": [found]}}


def claim_tree(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "annotations": {KEEP: name},
            "finalizers": [KEEP],
            **metadata,
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
    }


def pod_tree(name: str = "p", claims: tuple[str, ...] = CLAIMS) -> dict[str, Any]:
    uses = [{"name": each} for each in claims]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {KEEP: "pod"}},
        "spec": {
            "schedulerName": "plimsoll",
            "containers": [{"name": "main", "image": "i", "resources": {"claims": uses}}],
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
        },
    }


def charge(claim: str, cpu: str) -> ClaimCharge:
    return ClaimCharge(claim, ("main",), {"cpu": ResourceCharge(Quantity.parse(cpu))})


class BindingCluster:
    """Pod and claims, read back from the API on access."""

    def __init__(self, harness: ApiHarness) -> None:
        self.harness = harness
        self.client = harness.client
        self.observed_claims: dict[str, ResourceClaim] = {}

    async def build(self) -> BindingCluster:
        create, patch = self.client.create, self.client.patch
        await create(RESOURCE_CLAIMS, claim_tree(NEW), "default")
        await create(RESOURCE_CLAIMS, claim_tree(BEGUN, finalizers=[KEEP, FINALIZER]), "default")
        await create(RESOURCE_CLAIMS, claim_tree(SHARED, finalizers=[KEEP, FINALIZER]), "default")
        other = {"resource": "pods", "name": "other", "uid": "uid-other"}
        extra = {"driver": DRIVER, "pool": NODE, "device": "gpu-0", "data": {"driver": "says", "so": [1]}}
        status = {"allocation": results("gpu-0"), "reservedFor": [other], "devices": [extra]}
        await patch(RESOURCE_CLAIMS, SHARED, {"status": status}, "default", subresource="status")
        await create(PODS, pod_tree(), "default")
        return self

    async def claim(self, name: str) -> ResourceClaim:
        return convert(await self.client.get(RESOURCE_CLAIMS, name, "default"), ResourceClaim)

    async def pod(self) -> Pod | None:
        try:
            return convert(await self.client.get(PODS, "p", "default"), Pod)
        except ApiError:
            return None

    async def placement(self, *, charges: bool = True, **more: Any) -> Placement:
        """Return the placement that the scheduler would decide for the current objects."""
        pod = await self.pod()
        assert pod is not None
        claims = tuple([await self.claim(name) for name in CLAIMS])
        pod_info = PodInfo(pod, claims, PodResourcesOptions())
        allocations = {
            each.metadata.name: convert(results(f"gpu-{each.metadata.name}", **more), AllocationResult)
            for each in pod_info.unallocated_claims
        }
        charged_claims = (ChargedClaim(charge(NEW, "2")), ChargedClaim(charge(BEGUN, "3"))) if charges else ()
        return Placement(pod_info, 0, NODE, allocations, charged_claims)

    async def placements(self, count: int, *claims: str, prefix: str = "q") -> list[Placement]:
        """Create pods that use these allocated claims; return their placements."""
        found = []
        for number in range(count):
            tree = await self.client.create(PODS, pod_tree(f"{prefix}{number}", claims), "default")
            infos = tuple([await self.claim(name) for name in claims])
            pod_info = PodInfo(convert(tree, Pod), infos, PodResourcesOptions())
            found.append(Placement(pod_info, 0, NODE))
        return found

    def on_claim(self, claim: ResourceClaim) -> None:
        known = self.observed_claims.get(claim.metadata.name)
        if known is None or int(known.metadata.resource_version) <= int(claim.metadata.resource_version):
            self.observed_claims[claim.metadata.name] = claim

    # -- invariants

    async def check_bound(self) -> None:
        pod = await self.pod()
        assert pod is not None
        assert pod.spec.node_name == NODE
        assert read_pod(pod) == (charge(BEGUN, "3"), charge(NEW, "2"))
        for name in CLAIMS:
            claim = await self.claim(name)
            users = sorted(each.uid for each in claim.status.reserved_for)
            assert users == sorted([*(["uid-other"] if name == SHARED else []), pod.metadata.uid])
            assert FINALIZER in claim.metadata.finalizers
            assert claim.status.allocation is not None
            device = "gpu-0" if name == SHARED else f"gpu-{name}"
            assert claim.status.allocation.devices.results[0].device == device
        await self.check_kept()

    async def check_undone(self) -> None:
        """Check the previous state: no devices allocated here, no consumer of ours, no charges."""
        pod = await self.pod()
        if pod is not None:
            assert read_pod(pod) == ()
        for name in (NEW, BEGUN):
            claim = await self.claim(name)
            assert claim.status.allocation is None, name
            assert claim.status.reserved_for == ()
        claim = await self.claim(SHARED)
        assert [each.uid for each in claim.status.reserved_for] == ["uid-other"]
        assert claim.status.allocation is not None
        await self.check_kept()

    async def check_kept(self) -> None:
        """Check that unknown fields are kept and that observed claims match the API."""
        for name in CLAIMS:
            claim = await self.claim(name)
            assert claim.metadata.annotations[KEEP] == name
            assert KEEP in claim.metadata.finalizers
            observed_claims = self.observed_claims.get(name)
            assert observed_claims is None or observed_claims.status.allocation == claim.status.allocation
        tree = await self.client.get(RESOURCE_CLAIMS, SHARED, "default")
        assert tree["status"]["devices"][0]["data"] == {"driver": "says", "so": [1]}
        pod = await self.pod()
        assert pod is None or pod.metadata.annotations[KEEP] == "pod"


class Crash(BaseException):
    """Crash of the process."""


Act = Callable[[BindingCluster], Awaitable[None]]


@dataclass
class Fault:
    """Fault at the nth call of a method, before or after it is carried out."""

    method: str
    nth: int = 1
    error: Callable[[], BaseException] | None = None
    after: bool = False
    times: int = 1
    act: Act | None = None


@dataclass
class FaultyWriter:
    """`ApiWriter` with faults that records its calls."""

    cluster: BindingCluster
    faults: list[Fault] = field(default_factory=list)
    charge_form: ChargeForm = ChargeForm.V1_36
    calls: list[str] = field(default_factory=list)
    pauses: int = 0

    def __post_init__(self) -> None:
        self.inner = ApiWriter(self.cluster.client, self.charge_form)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name in ("gather", "wait_for"):
            return method

        async def call(*args: Any, **named: Any) -> Any:
            self.calls.append(name)
            count = self.calls.count(name)
            fault = next(
                (each for each in self.faults if each.method == name and 0 <= count - each.nth < each.times),
                None,
            )
            if fault is None:
                return await method(*args, **named)
            if fault.act is not None:
                await fault.act(self.cluster)
            if fault.error is not None and not fault.after:
                raise fault.error()
            answer = await method(*args, **named)
            if fault.error is not None:
                raise fault.error()
            return answer

        return call

    async def pause(self, attempt: int, error: ApiError) -> None:
        self.pauses += 1
        assert self.pauses < 100, f"no end to {error}"


def lost() -> ApiError:
    return UnreachableError("the connection broke", sent=True)


def refusal(code: int, reason: str = "") -> Callable[[], ApiError]:
    return lambda: ApiError(code, reason, f"refused with {code}")


def show(tree: Any) -> str:
    return json.dumps(tree, indent=1)


T = TypeVar("T")


def run_scenario(scenario: Callable[[BindingCluster], Awaitable[T]]) -> T:
    async def on(harness: ApiHarness) -> T:
        return await scenario(await BindingCluster(harness).build())

    return run(on)
