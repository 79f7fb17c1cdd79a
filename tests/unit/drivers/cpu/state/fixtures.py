"""Fixtures for CPU state tests: claims as values, and CPU states opened on a directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.api.codec import decode
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.resource import ResourceClaim
from plimsoll.drivers.cpu.devices.groups import compute_layout
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.cpu.state.cpu_state import CPUState, read_allocated_cpus
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.driver import AllocatedClaim
from plimsoll.protocols.dra import ClaimRef

NODE = "node-a"


def uid_of(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


@dataclass(frozen=True)
class AllocationSpec:
    """One allocation result; an amount makes it one of many CPUs."""

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
    """A claim as the kit hands it over. `config` is the cpuConfig of all of it."""
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
        """A file as the Go driver writes it."""
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
