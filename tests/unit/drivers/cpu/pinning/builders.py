"""Builders for pinning tests: a small CPU state, containers and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plimsoll.api.cpuset import CpuSet, union
from plimsoll.common.checkpoint import NodeFinding
from plimsoll.drivers.cpu.pinning.plan import ContainerView, PinSnapshot
from plimsoll.drivers.cpu.settings import CpuSettings, PinSettings
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation, CpuAssignment
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def hold(uid: str, text: str, *, namespace: str = "default", **more: Any) -> ClaimAllocation:
    """Return a claim with one request, or with several: `a=0-1;b=2`."""
    assignments = []
    for part in text.split(";"):
        request, _, value = part.rpartition("=")
        assignments.append(CpuAssignment(request or "cpus", "node-a", "cpudevnuma000", cpus(value)))
    return ClaimAllocation(ClaimRef(namespace, f"name-{uid}", uid), tuple(assignments), **more)


def env(*allocations: ClaimAllocation) -> list[str]:
    return [
        "PATH=/bin",
        *(f"DRA_CPUSET_{allocation.ref.uid}={allocation.assigned}" for allocation in allocations),
    ]


def view(id: str, *allocations: ClaimAllocation, pod: str = "", **more: Any) -> ContainerView:
    env_claims = {allocation.ref.uid: allocation.assigned for allocation in allocations}
    return ContainerView(
        **{
            "id": id,
            "pod_uid": f"uid-{pod or id}",
            "namespace": "default",
            "pod": pod or id,
            "name": id,
            "claims": env_claims,
            **more,
        }
    )


class FakeCPUState:
    """CPU state as the pinning code reads it; `hold` and `release` change it."""

    def __init__(self, topology: Topology, *allocations: ClaimAllocation, reserved: str = "") -> None:
        self.topology = topology
        self.reserved = cpus(reserved)
        self.revision = 1
        self.witnessed: list[tuple[ContainerView, ...]] = []
        self.answers: tuple[NodeFinding, ...] = ()
        self._holdings = {allocation.ref.uid: allocation for allocation in allocations}

    @property
    def allocations(self) -> Mapping[str, ClaimAllocation]:
        return self._holdings

    @property
    def shared(self) -> CpuSet:
        return self.topology.all - self.reserved - union(h.cpus for h in self._holdings.values())

    def check_containers(self, containers: Iterable[ContainerView]) -> tuple[NodeFinding, ...]:
        self.witnessed.append(tuple(containers))
        return self.answers

    def hold(self, allocation: ClaimAllocation) -> ClaimAllocation:
        self._holdings = {**self._holdings, allocation.ref.uid: allocation}
        self.revision += 1
        return allocation

    def release(self, uid: str) -> None:
        self._holdings = {other: h for other, h in self._holdings.items() if other != uid}
        self.revision += 1

    def change(self, topology: Topology) -> None:
        self.topology = topology
        self.revision += 1


def machine(count: int = 4) -> Topology:
    return make_machine(cores=count)


def snapshot(state: FakeCPUState, **pin: Any) -> PinSnapshot:
    return PinSnapshot(state.allocations, state.shared, state.topology, PinSettings(**pin))


def settings(directory: Path, **pin: Any) -> CpuSettings:
    return CpuSettings(
        node="node-a",
        pin=PinSettings(**pin),
        host_root=directory / "host",
        kubelet_root=directory / "kubelet",
        cdi=directory / "cdi",
        nri=directory / "nri" / "nri.sock",
    )
