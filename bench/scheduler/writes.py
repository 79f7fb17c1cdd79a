"""`python -m bench.scheduler.writes KUBECONFIG SCENARIO NODES DEVICES`: bind pods in order of arrival.

Stands where a scheduler would, follows pods and claims as one does and makes the same writes, but decides
nothing: the next pod goes to the next node and gets its next device. What this does per second is what the
API server, the controllers and the client can take at most.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.scheduler.processes import Program, Server
from bench.scheduler.workloads import DRIVER, NAMESPACE, Tree, Workload, node_name
from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.client.kubeconfig import find_config
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.requests import DEFAULTS
from plimsoll.scheduler.binding.result import BindFailure, BindSuccess
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.process.api_writer import ApiWriter
from plimsoll.scheduler.process.binder import PodBinder
from plimsoll.scheduler.process.event_recorder import SchedulerEventRecorder
from plimsoll.scheduler.result import Placement

_CHARGE = {
    "node-allocatable": {"cpu": "1", "memory": "1Gi"},
    "node-allocatable+consumable": {"cpu": "1", "memory": "2Gi"},
}


class Writes:
    """Binder of pods without scheduling."""

    def __init__(self, client: Client, workload: Workload) -> None:
        self._world = workload
        self._number = 0
        self._claims: dict[str, ResourceClaim] = {}
        self._waiting: dict[str, Pod] = {}
        self._seen: set[str] = set()
        writer = ApiWriter(client)
        self._bindings = PodBinder(writer, lambda claim: None, self._done)
        self.recorder = SchedulerEventRecorder(client, is_busy=lambda: len(self._bindings) > 0)

    def on_claim(self, claim: ResourceClaim) -> None:
        self._claims[claim.metadata.name] = claim
        for pod in list(self._waiting.values()):
            if claim.metadata.name in resolve_claim_names(pod).values():
                self._place(pod)

    def on_pod_event(self, pod: Pod) -> None:
        if pod.spec.node_name or pod.metadata.name in self._seen:
            self._waiting.pop(pod.metadata.name, None)
        elif not pod.metadata.name.startswith("h-"):
            self._place(pod)

    def _place(self, pod: Pod) -> None:
        """Bind a pod whose claims are known; the others wait for theirs."""
        names = list(resolve_claim_names(pod).values())
        claims = tuple(self._claims[name] for name in names if name in self._claims)
        if len(claims) < len(pod.spec.resource_claims):
            self._waiting[pod.metadata.name] = pod
            return
        self._waiting.pop(pod.metadata.name, None)
        self._seen.add(pod.metadata.name)
        number, self._number = self._number, self._number + 1
        place, device = number % self._world.nodes, number // self._world.nodes
        node = node_name(place)
        allocations = {c.metadata.name: _allocation(self._world, node, device) for c in claims}
        charged_claims = tuple(charged_claim for claim in claims for charged_claim in self._bill(claim))
        self._bindings.start(
            Placement(PodInfo(pod, claims, DEFAULTS), place, node, allocations, charged_claims)
        )

    def _bill(self, claim: ResourceClaim) -> list[ChargedClaim]:
        amounts = _CHARGE.get(self._world.scenario)
        if amounts is None:
            return []
        resources = {name: ResourceCharge(Quantity.parse(text)) for name, text in amounts.items()}
        return [ChargedClaim(ClaimCharge(claim.metadata.name, ("c",), resources), claim.metadata.uid)]

    def _done(self, placement: Placement, outcome: BindSuccess | BindFailure) -> None:
        assert isinstance(outcome, BindSuccess), outcome
        self.recorder.scheduled(placement.pod_info.pod, placement.node)


def _allocation(workload: Workload, node: str, number: int) -> AllocationResult:
    """Return the allocation of the `number`th pod on its node."""
    request, name = "r", f"dev-{number}"
    shared = "consumable" in workload.scenario
    if workload.scenario == "partitionable":
        name = f"p1-{number}"
    if workload.scenario == "prioritized":
        shared = number >= workload.devices // 2
        request = "r/share" if shared else "r/whole"
    result: Tree = {"request": request, "driver": DRIVER, "pool": node, "device": name}
    if shared:
        consumed = {f"{DRIVER}/cpu": "1", f"{DRIVER}/memory": "2Gi"}
        result |= {"device": "pool-0", "shareID": str(uuid4()), "consumedCapacity": consumed}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return codec.convert({"devices": {"results": [result]}, "nodeSelector": selector}, AllocationResult)


def start_writes(workload: Workload, server: Server, directory: Path) -> Program:
    command = [sys.executable, "-m", "bench.scheduler.writes", str(server.kubeconfig)]
    return Program(
        "writes", [*command, workload.scenario, str(workload.nodes), str(workload.devices)], directory
    )


class _UpdateHandler(EventHandler[Any]):
    """Event handler that calls a function with every object that is added or changed."""

    def __init__(self, callback: Callable[[Any], None]) -> None:
        self._callback = callback

    def on_added(self, new: Any) -> None:
        self._callback(new)

    def on_changed(self, old: Any, new: Any) -> None:
        self._callback(new)


async def run(kubeconfig: Path, workload: Workload) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sys.exit)
    async with Client.connect(find_config(kubeconfig, environ={})) as client:
        writes = Writes(client, workload)
        pods = Informer(client, PODS, partial(codec.decode, view=Pod), namespace=NAMESPACE)
        claims = Informer(
            client, RESOURCE_CLAIMS, partial(codec.decode, view=ResourceClaim), namespace=NAMESPACE
        )
        pods.add_handler(_UpdateHandler(writes.on_pod_event))
        claims.add_handler(_UpdateHandler(writes.on_claim))
        await asyncio.gather(pods.run(), claims.run(), writes.recorder.run())


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), Workload(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
