"""Fixtures for CPU state tests: claims, and CPU states opened on a directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.api.codec import decode
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.cpu.state.cdi import CpuClaimCdiFile
from plimsoll.drivers.cpu.state.claim_allocation import (
    ClaimAllocation,
    CpuAssignment,
)
from plimsoll.drivers.cpu.state.cpu_state import CPUState, read_allocated_cpus
from plimsoll.drivers.cpu.state.prepare import PrepareContext
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.driver import AllocatedClaim
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine

NODE = "node-a"


def uid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@dataclass(frozen=True)
class AllocationSpec:
    """One allocation result; with an amount, one of many CPUs."""

    device: str
    amount: str | None = None
    request: str = "cpus"
    share: str | None = None
    driver: str = DRIVER_NAME
    admin: bool = False

    def tree(self) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "request": self.request,
            "driver": self.driver,
            "pool": NODE,
            "device": self.device,
        }
        if self.amount is not None:
            tree["consumedCapacity"] = {"dra.cpu/cpu": self.amount}
        if self.share is not None:
            tree["shareID"] = self.share
        if self.admin:
            tree["adminAccess"] = True
        return tree


def make_claim(
    uid: str | int,
    *asked: AllocationSpec,
    config: Mapping[str, Any] | None = None,
    configs: Iterable[Mapping[str, Any]] = (),
    constraints: Iterable[Mapping[str, Any]] = (),
    allocated: bool = True,
    namespace: str = "default",
) -> AllocatedClaim:
    """Return a claim as the plugin server passes it to a driver. `config` is its cpuConfig for all
    requests.
    """
    uid = uid_of(uid) if isinstance(uid, int) else uid
    given = list(configs)
    if config is not None:
        given.append(opaque(config))
    tree: dict[str, Any] = {
        "metadata": {"name": f"claim-{uid[-4:]}", "namespace": namespace, "uid": uid},
        "spec": {
            "devices": {
                "requests": [
                    {"name": name} for name in dict.fromkeys(a.request.partition("/")[0] for a in asked)
                ],
                "constraints": list(constraints),
            }
        },
    }
    if allocated:
        tree["status"] = {"allocation": {"devices": {"results": [a.tree() for a in asked], "config": given}}}
    claim = decode(msgspec.json.encode(tree), ResourceClaim)
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation else ()
    return AllocatedClaim(
        ClaimRef(namespace, claim.metadata.name, uid),
        claim,
        tuple(r for r in results if r.driver == DRIVER_NAME),
        allocation.devices.config if allocation else (),
        tree,
    )


def opaque(config: Mapping[str, Any], *requests: str, source: str = "FromClaim") -> dict[str, Any]:
    parameters = {"apiVersion": "v1alpha1", "cpuConfig": dict(config)}
    return {
        "source": source,
        "requests": list(requests),
        "opaque": {"driver": DRIVER_NAME, "parameters": parameters},
    }


@dataclass(frozen=True)
class Container:
    """A running container."""

    where: str
    claims: Mapping[str, CpuSet]
    namespace: str = "default"
    pod_uid: str = "pod"


@dataclass
class CPUStateFixture:
    """A node's directory, its machine and settings, and CPU states opened on them."""

    root: Path
    topology: Topology
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> CpuSettings:
        return CpuSettings(node=NODE, kubelet_root=self.root / "kubelet", cdi=self.root / "cdi", **self.extra)

    def open(self) -> CPUState:
        layout = compute_layout(self.topology, self.settings, allocated=read_allocated_cpus(self.settings))
        return CPUState.open(self.settings, self.topology, layout)

    def file(self, uid: str | int) -> Path:
        uid = uid_of(uid) if isinstance(uid, int) else uid
        return self.settings.cdi / f"dra.k8s.io-cpu_claim-{uid}.json"

    def write_foreign(self, uid: str | int, cpus: str) -> str:
        """Write a CDI file as the Go driver does."""
        uid = uid_of(uid) if isinstance(uid, int) else uid
        tree = {
            "cdiVersion": "0.8.0",
            "kind": "dra.k8s.io/cpu",
            "devices": [{"name": f"claim-{uid}", "containerEdits": {"env": [f"DRA_CPUSET_{uid}={cpus}"]}}],
            "containerEdits": {},
        }
        self.settings.cdi.mkdir(parents=True, exist_ok=True)
        self.file(uid).write_bytes(msgspec.json.encode(tree))
        return uid


INDIVIDUAL: dict[str, Any] = {"mode": DeviceMode.INDIVIDUAL}
MACHINE: dict[str, Any] = {"group_by": GroupBy.MACHINE}
SOCKET: dict[str, Any] = {"group_by": GroupBy.SOCKET}


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def scene_of(offline: str = "", **extra: Any) -> PrepareContext:
    topology = make_machine(sockets=2, cores=4, offline=cpus(offline))
    settings = CpuSettings(node=NODE, kubelet_root=Path("/nowhere"), cdi=Path("/nowhere"), **extra)
    return PrepareContext(settings, topology, compute_layout(topology, settings))


def allocated(uid: str, text: str, **more: Any) -> ClaimAllocation:
    assignment = CpuAssignment("a", NODE, "cpudevnuma000", cpus(text))
    return ClaimAllocation(ClaimRef("default", f"name-{uid}", uid), (assignment,), **more)


def record(*allocations: ClaimAllocation) -> dict[str, ClaimAllocation]:
    return {allocation.ref.uid: allocation for allocation in allocations}


def files(**contents: str) -> dict[str, CpuClaimCdiFile]:
    return {uid: CpuClaimCdiFile(uid, cpus(text)) for uid, text in contents.items()}


ROOT, NUMA = "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode"


def make_rooted() -> Topology:
    """Return two NUMA nodes of four CPUs, of which two each are near one PCIe root."""
    plain = make_machine(sockets=2, cores=4)
    return replace(plain, cpus=tuple(replace(c, pcie_roots=(f"pci0000:{c.id // 2}0",)) for c in plain.cpus))


def slice_of(
    generation: int = 1, driver: str = "nic.example.com", **devices: dict[str, Any]
) -> ResourceSlice:
    tree = {
        "spec": {
            "driver": driver,
            "pool": {"name": "node-a", "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": name, "attributes": given} for name, given in devices.items()],
        }
    }
    return decode(msgspec.json.encode(tree), ResourceSlice)


NICS = slice_of(
    eth0={ROOT: {"string": "pci0000:10"}, NUMA: {"int": 0}},
    eth1={ROOT: {"strings": ["pci0000:20", "pci0000:30"]}, NUMA: {"int": 1}},
    bare={},
    far={ROOT: {"string": "pci0000:f0"}, NUMA: {"int": 7}},
)
