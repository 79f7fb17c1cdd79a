"""Extended resources that device classes serve (KEP-5004): the claim that a pod gets for them.

A DeviceClass serves the resource in its `extendedResourceName`, and implicitly
`deviceclass.resource.kubernetes.io/NAME`. For what a pod requests of them on a node that does not advertise
the resource itself, the scheduler allocates devices: it builds one claim per pod, which exists only in memory
until the pod is bound. The claim has a request per container and resource; init containers use the devices of
later containers before they add a request of their own, because they do not run at the same time.

The pod is passed on with the status that it will have, so that all code that reads bound pods reads it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from plimsoll.api.core import Container, ExtendedResourceClaimStatus, ExtendedResourceRequest, Node, Pod
from plimsoll.api.meta import ObjectMeta, OwnerReference
from plimsoll.api.pod_claims import EXTENDED_RESOURCE_CLAIM
from plimsoll.api.quantity import NANO
from plimsoll.api.resource import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.containers import is_sidecar

_EXACT_COUNT = "ExactCount"


# -- the claim


def build_claim(pod: Pod, classes: Mapping[str, str]) -> tuple[Pod, ResourceClaim | None]:
    """Return a pod that has a claim for the resources served by these classes, and the claim.

    The claim is None, and the pod has no status for one, if no container requests such a resource.
    """
    requests, mappings = build_requests(pod, classes)
    if not requests:
        return without_claim(pod), None
    name = f"<{pod.metadata.name}-extended-resources>"
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True
    )
    metadata = ObjectMeta(
        name=name,
        generate_name=f"{pod.metadata.name}-extended-resources-",
        namespace=pod.metadata.namespace,
        uid=in_memory_uid(pod.metadata.uid or pod.metadata.full_name),
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        owner_references=(owner,),
    )
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests))
    status = ExtendedResourceClaimStatus(request_mappings=mappings, resource_claim_name=name)
    claim = ResourceClaim(
        api_version="resource.k8s.io/v1", kind="ResourceClaim", metadata=metadata, spec=spec
    )
    return replace(pod, status=replace(pod.status, extended_resource_claim_status=status)), claim


def without_claim(pod: Pod) -> Pod:
    """Return a pod without the status of a claim for extended resources."""
    if pod.status.extended_resource_claim_status is None:
        return pod
    return replace(pod, status=replace(pod.status, extended_resource_claim_status=None))


def in_memory_uid(pod_uid: str) -> str:
    """Return the UID of a pod's claim until the API server assigns one; it is the same in every attempt."""
    return f"extended-resources/{pod_uid}"


def is_in_memory(claim: ResourceClaim) -> bool:
    """Return whether a claim for extended resources has not been created yet."""
    return claim.metadata.name.startswith("<")


def rename_charges(
    charged_claims: Sequence[ChargedClaim], built: ResourceClaim, name: str
) -> tuple[ChargedClaim, ...]:
    """Return charges with the name of the created claim instead of the one in memory."""
    return tuple(
        replace(each, charge=replace(each.charge, claim=name)) if each.claim == built.metadata.name else each
        for each in charged_claims
    )


def provided_by(node: Node, resources: Mapping[str, str]) -> frozenset[str]:
    """Return the resources that a node advertises itself: no devices are allocated for them there."""
    allocatable = node.status.allocatable
    return frozenset(name for name in resources if name in allocatable and not allocatable[name].is_zero())


# -- requests


def build_requests(
    pod: Pod, classes: Mapping[str, str]
) -> tuple[tuple[DeviceRequest, ...], tuple[ExtendedResourceRequest, ...]]:
    """Return the requests of a pod's claim, by name, and which container uses which of them.

    `classes` are the device classes by the resource they serve. A request is named after the index of its
    container and that of the resource among all requests of the container, as upstream does.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ExtendedResourceRequest] = []
    for resource in sorted(classes):
        own_requests, own_mappings = _requests_of(pod, resource, classes[resource])
        requests += own_requests
        mappings += own_mappings
    return tuple(sorted(requests, key=lambda request: request.name)), tuple(mappings)


def _requests_of(
    pod: Pod, resource: str, device_class: str
) -> tuple[list[DeviceRequest], list[ExtendedResourceRequest]]:
    """Return the requests and mappings for one resource.

    Containers and sidecars each have a request. Init containers share the devices of the containers and
    sidecars after them; what the largest needs in addition is one more request that all of them use.
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    starts = len(pod.spec.init_containers)
    long_lived = [n for n, each in enumerate(containers) if n >= starts or is_sidecar(each)]
    requests: dict[int, DeviceRequest] = {}
    mappings: list[ExtendedResourceRequest] = []
    for index in long_lived:
        wanted = _count(containers[index], resource)
        if wanted:
            requests[index] = _request(containers, index, resource, device_class, wanted)
            mappings.append(_mapping(containers[index], resource, requests[index].name))
    largest: DeviceRequest | None = None
    used: list[tuple[Container, list[str], bool]] = []
    for index in range(starts):
        if index in long_lived:
            continue
        wanted, names = _count(containers[index], resource), []
        for later in (n for n in long_lived if n > index and n in requests):
            if wanted <= 0:
                break
            names.append(requests[later].name)
            wanted -= _size(requests[later])
        if wanted > 0 and (largest is None or wanted > _size(largest)):
            largest = _request(containers, index, resource, device_class, wanted)
        used.append((containers[index], names, wanted > 0))
    for container, names, needs_more in used:
        extra = [largest.name] if needs_more and largest is not None else []
        mappings += [_mapping(container, resource, name) for name in (*names, *extra)]
    return [*([largest] if largest is not None else ()), *requests.values()], mappings


def _count(container: Container, resource: str) -> int:
    """Return the requested number of devices; 0 for an amount that is no whole number."""
    amount = container.resources.requests.get(resource)
    if amount is None or amount.nano % NANO:
        return 0
    return amount.nano // NANO


def _size(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def _request(
    containers: Sequence[Container], index: int, resource: str, device_class: str, count: int
) -> DeviceRequest:
    place = sorted(containers[index].resources.requests).index(resource)
    body = ExactDeviceRequest(device_class_name=device_class, allocation_mode=_EXACT_COUNT, count=count)
    return DeviceRequest(name=f"container-{index}-request-{place}", exactly=body)


def _mapping(container: Container, resource: str, request: str) -> ExtendedResourceRequest:
    return ExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )


def served_resources(pod: Pod) -> Iterator[str]:
    """Yield the extended resources of a pod that its claim serves, each once."""
    status = pod.status.extended_resource_claim_status
    mappings = status.request_mappings if status is not None else ()
    yield from dict.fromkeys(mapping.resource_name for mapping in mappings)
