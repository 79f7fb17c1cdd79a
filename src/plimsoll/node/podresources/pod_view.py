"""Resources of a pod as a value, and its PodResources messages. Pure.

Defines which containers and claims are listed, in which order, and builds the messages of `v1` and `v1alpha1`
(docs/spec/node-protocols.md, "PodResources"). A view holds everything a message is made of: equal views,
equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from plimsoll.api.core import Container, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import claim_for_entry
from plimsoll.ledger.containers import is_sidecar
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.podresources.source import Allocatable, MemoryBlock, PluginDevices, PodResourcesSource
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.protocols.messages import podresources_v1alpha1 as v1alpha1

_INT64 = 2**63 - 1
_UINT64 = 2**64 - 1


@dataclass(frozen=True, slots=True)
class PodResourcesGates:
    """Feature gates of the PodResources API."""

    get: bool = True
    claims: bool = True
    extended: bool = True

    @staticmethod
    def of(gates: Gates) -> PodResourcesGates:
        return PodResourcesGates(
            get=gates.enabled("KubeletPodResourcesGet"),
            claims=gates.enabled("KubeletPodResourcesDynamicResources")
            and gates.enabled("DynamicResourceAllocation"),
            extended=gates.enabled("DRAExtendedResource"),
        )


#: CPUs and memory of the pod itself, then CPUs, memory, devices and claims of each listed container.
CollectedResources: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ContainerResourcesView:
    """Resources of a container."""

    name: str
    sidecar: bool = False
    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()
    devices: tuple[PluginDevices, ...] = ()
    claims: tuple[ClaimInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class PodResourcesView:
    """Resources of a pod."""

    name: str
    namespace: str
    containers: tuple[ContainerResourcesView, ...] = ()
    cpus: tuple[int, ...] = ()
    memory: tuple[MemoryBlock, ...] = ()


# -- reading from the node


def collect_resources(pod: Pod, source: PodResourcesSource, gates: PodResourcesGates) -> CollectedResources:
    """Collect a source's data on a pod unprocessed: cheap to obtain and to compare."""
    extended = pod.status.extended_resource_claim_status is not None
    return (
        source.pod_cpus_of(pod),
        source.pod_memory_of(pod),
        *(
            (
                source.cpus_of(pod, container),
                source.memory_of(pod, container),
                source.devices_of(pod, container),
                source.claims_of(pod, container)
                if gates.claims and (extended or container.resources.claims)
                else (),
            )
            for container in listed_containers(pod)
        ),
    )


def listed_containers(pod: Pod) -> tuple[Container, ...]:
    """Return sidecars first, then the regular containers; other init containers are left out."""
    if not pod.spec.init_containers:
        return pod.spec.containers
    return (*filter(is_sidecar, pod.spec.init_containers), *pod.spec.containers)


def view_pod(pod: Pod, collected: CollectedResources, gates: PodResourcesGates) -> PodResourcesView:
    """Build the view of a pod from its collected resources."""
    cpus, memory, *parts = collected
    listed = listed_containers(pod)
    sidecars = len(listed) - len(pod.spec.containers)
    return PodResourcesView(
        pod.metadata.name,
        pod.metadata.namespace,
        tuple(
            ContainerResourcesView(
                container.name,
                place < sidecars,
                part[0],
                part[1],
                part[2],
                _claims(pod, container, part[3], gates),
            )
            for place, (container, part) in enumerate(zip(listed, parts, strict=True))
        ),
        cpus,
        memory,
    )


def _claims(
    pod: Pod, container: Container, known: tuple[ClaimInfo, ...] | None, gates: PodResourcesGates
) -> tuple[ClaimInfo, ...]:
    wanted = claim_names(pod, container, extended=gates.extended) if gates.claims else ()
    return choose_claims(wanted, known) if wanted else ()


def claim_names(pod: Pod, container: Container, *, extended: bool = True) -> tuple[str, ...] | None:
    """Return the claims a container references, in the order of the pod's own list, then the claim of its
    extended resources; None if one of them is not yet created from its template.
    """
    named = {claim.name for claim in container.resources.claims}
    found = []
    for entry in pod.spec.resource_claims if named else ():
        if entry.name not in named:
            continue
        claim = claim_for_entry(pod, entry)
        if not claim.known:
            return None
        if claim.name is not None:  # otherwise no claim is needed
            found.append(claim.name)
    served = pod.status.extended_resource_claim_status
    if (
        extended
        and served is not None
        and container.name in (m.container_name for m in served.request_mappings)
    ):
        found.append(served.resource_claim_name)
    return tuple(found)


def choose_claims(names: tuple[str, ...], known: tuple[ClaimInfo, ...] | None) -> tuple[ClaimInfo, ...]:
    """Return the claims of these names, in this order; none at all if one of them is not known."""
    by_name = {claim.ref.name: claim for claim in known or ()}
    if any(name not in by_name for name in names):
        return ()
    return tuple(by_name[name] for name in names)


# -- messages


def build_pod_message(view: PodResourcesView) -> v1.PodResources:
    return v1.PodResources(
        name=_text(view.name),
        namespace=_text(view.namespace),
        containers=[
            v1.ContainerResources(
                name=_text(container.name),
                devices=_devices(container.devices),
                cpu_ids=_numbers(container.cpus),
                memory=_memory(container.memory),
                dynamic_resources=[_claim(claim) for claim in container.claims],
            )
            for container in view.containers
        ],
        cpu_ids=_numbers(view.cpus),
        memory=_memory(view.memory),
    )


def build_allocatable_message(allocatable: Allocatable) -> v1.AllocatableResourcesResponse:
    return v1.AllocatableResourcesResponse(
        devices=_devices(allocatable.devices),
        cpu_ids=_numbers(allocatable.cpus),
        memory=_memory(allocatable.memory),
    )


def build_alpha_pod_message(view: PodResourcesView) -> v1alpha1.PodResources:
    """Build a v1alpha1 message, which has neither sidecars nor anything but device-plugin devices."""
    return v1alpha1.PodResources(
        name=_text(view.name),
        namespace=_text(view.namespace),
        containers=[
            v1alpha1.ContainerResources(
                name=_text(container.name),
                devices=[
                    v1alpha1.ContainerDevices(
                        resource_name=_text(group.resource), device_ids=[_text(id) for id in group.ids]
                    )
                    for group in container.devices
                ],
            )
            for container in view.containers
            if not container.sidecar
        ],
    )


def _claim(claim: ClaimInfo) -> v1.DynamicResource:
    # DIFF: upstream's devices of one driver also carry the CDI IDs of the devices before them, so that a
    # monitoring agent cannot attribute them; here each has its own (KEP-3695: each device maps to zero or
    # more CDI devices). Drivers are sorted by name, upstream's order is arbitrary
    # (test_each_device_has_its_own_cdi_ids).
    return v1.DynamicResource(
        claim_name=_text(claim.ref.name),
        claim_namespace=_text(claim.ref.namespace),
        claim_resources=[
            v1.ClaimResource(
                cdi_devices=[v1.CDIDevice(name=_text(name)) for name in device.cdi],
                driver_name=_text(driver),
                pool_name=_text(device.pool),
                device_name=_text(device.device),
                share_id=None if device.share_id is None else _text(device.share_id),
            )
            for driver, devices in sorted(claim.drivers.items())
            for device in devices
        ],
    )


def _devices(groups: Iterable[PluginDevices]) -> list[v1.ContainerDevices]:
    return [
        v1.ContainerDevices(
            resource_name=_text(group.resource),
            device_ids=[_text(id) for id in group.ids],
            topology=_topology(group.nodes) if group.nodes else None,
        )
        for group in groups
    ]


def _memory(blocks: Iterable[MemoryBlock]) -> list[v1.ContainerMemory]:
    return [
        v1.ContainerMemory(
            memory_type=_text(block.type),
            size=min(max(block.size, 0), _UINT64),
            topology=_topology(block.nodes),
        )
        for block in blocks
    ]


def _topology(nodes: Iterable[int]) -> v1.TopologyInfo:
    return v1.TopologyInfo(nodes=[v1.NUMANode(ID=node) for node in _numbers(nodes)])


def _numbers(numbers: Iterable[int]) -> list[int]:
    return [number for number in numbers if -_INT64 <= number <= _INT64]


def _text(text: str) -> str:
    """Replace characters that cannot be encoded: a checkpoint may hold lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
