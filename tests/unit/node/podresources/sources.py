"""Fake node and pods for tests of PodResources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.core import Container, Pod
from plimsoll.node.claim_info import ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.podresources.pod_view import claim_names
from plimsoll.node.podresources.source import Allocatable, MemoryBlock, PluginDevices, PodResourcesSource
from tests.build import container, pod, sidecar

DRIVER = "gpu.example.com"
NAMESPACE = "default"


@dataclass
class FakeNode(PodResourcesSource):
    """State of a node, by (UID of a pod, name of a container)."""

    known: list[Pod] = field(default_factory=list)
    claims: dict[tuple[str, str], ClaimInfo] = field(default_factory=dict)
    cpus: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    memory: dict[tuple[str, str], tuple[MemoryBlock, ...]] = field(default_factory=dict)
    devices: dict[tuple[str, str], tuple[PluginDevices, ...]] = field(default_factory=dict)
    pod_cpus: dict[str, tuple[int, ...]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    of_node: Allocatable = field(default_factory=Allocatable)
    changes: int = 0
    asked: int = 0

    def revision(self) -> object:
        return self.changes

    def pods(self) -> Sequence[Pod]:
        self.asked += 1
        return self.known

    def is_active(self, pod: Pod) -> bool:
        return pod.metadata.uid not in self.ended

    def claims_of(self, pod: Pod, container: Container) -> tuple[ClaimInfo, ...] | None:
        names = claim_names(pod, container)
        if names is None or any((pod.metadata.namespace, name) not in self.claims for name in names):
            return None
        return tuple(self.claims[pod.metadata.namespace, name] for name in sorted(names))

    def cpus_of(self, pod: Pod, container: Container) -> tuple[int, ...]:
        return self.cpus.get((pod.metadata.uid, container.name), ())

    def memory_of(self, pod: Pod, container: Container) -> tuple[MemoryBlock, ...]:
        return self.memory.get((pod.metadata.uid, container.name), ())

    def devices_of(self, pod: Pod, container: Container) -> tuple[PluginDevices, ...]:
        return self.devices.get((pod.metadata.uid, container.name), ())

    def pod_cpus_of(self, pod: Pod) -> tuple[int, ...]:
        return self.pod_cpus.get(pod.metadata.uid, ())

    def allocatable(self) -> Allocatable:
        return self.of_node

    # -- changing it

    def add(self, pod: Pod) -> Pod:
        self.known.append(pod)
        self.changes += 1
        return pod

    def prepare(self, claim: ClaimInfo) -> None:
        self.claims[claim.ref.namespace, claim.ref.name] = claim
        self.changes += 1

    def end(self, uid: str) -> None:
        self.ended.add(uid)
        self.changes += 1


def make_pod(
    name: str,
    containers: dict[str, list[str]] | None = None,
    *,
    sidecars: Sequence[str] = (),
    inits: Sequence[str] = (),
    namespace: str = NAMESPACE,
    uid: str = "",
    status: dict[str, Any] | None = None,
    claims: list[dict[str, Any]] | None = None,
) -> Pod:
    """Return a pod whose containers use claims; a claim has the same name inside the pod."""
    containers = {"app": []} if containers is None else containers
    references: dict[str, Any] = {} if claims is None else {"resourceClaims": claims}
    return pod(
        name,
        *(container(one, *used) for one, used in containers.items()),
        init=[*map(container, inits), *map(sidecar, sidecars)],
        namespace=namespace,
        uid=uid or None,
        status=status,
        **references,
    )


def make_claim(name: str, *devices: PreparedDevice, driver: str = DRIVER) -> ClaimInfo:
    ref = ClaimRef(NAMESPACE, name, f"uid-{name}")
    return ClaimInfo(ref, drivers={driver: devices}, ready=True)
