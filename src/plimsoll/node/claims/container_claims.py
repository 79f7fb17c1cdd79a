"""Prepared claims and CDI devices of a container.

A container references claims by `resources.claims`, each with an optional request, and by the mappings of the
claim created for extended resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from plimsoll.api.core import Container, Pod
from plimsoll.errors import StateError
from plimsoll.ledger.units import is_dra_extended_resource
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.claims.checks import EXTENDED, named_claims
from plimsoll.node.claims.faults import ClaimFault

#: Lookup of the claim that a pod uses under this ResourceClaim name.
Find = Callable[[Pod, str], ClaimInfo | None]


def claims_of(pod: Pod, container: Container, find: Find) -> tuple[ClaimInfo, ...] | None:
    """Return the claims a container references, in the pod's order; None if one of them is not known."""
    names = {each.name for each in container.resources.claims}
    found = []
    for own, name, _ in named_claims(pod):
        if own not in names if own != EXTENDED else not _is_mapped(pod, container):
            continue
        if isinstance(name, ClaimFault):
            return None
        if name is not None:
            claim = find(pod, name)
            if claim is None:
                return None
            found.append(claim)
    return tuple(found)


# DIFF: the kubelet repeats CDI devices that two requests share, in any order:
# test_cdi_devices_are_unique_and_ordered.
def cdi_ids(pod: Pod, container: Container, find: Find) -> tuple[str, ...]:
    """Return the CDI device IDs of a container, each once; raise StateError if a claim is not prepared."""
    found: dict[str, None] = {}
    for name, requests in _requests(pod, container):
        claim = find(pod, name)
        if claim is None or not claim.ready:
            text = f"container {container.name} of pod {pod.metadata.full_name}"
            raise StateError(f"{text}: ResourceClaim {name} is not prepared")
        for request in requests:
            found |= dict.fromkeys(_devices(claim, request))
    return tuple(found)


def _devices(claim: ClaimInfo, request: str) -> Iterator[str]:
    for driver in sorted(claim.drivers):
        for device in claim.drivers[driver]:
            if not request or not device.requests or request in device.requests:
                yield from device.cdi


def _requests(pod: Pod, container: Container) -> Iterator[tuple[str, list[str]]]:
    """Yield the claims of a container by name, with the requests it references; none means all."""
    wanted: dict[str, list[str]] = {}
    for each in container.resources.claims:
        wanted.setdefault(each.name, []).append(each.request)
    for own, name, _ in named_claims(pod):
        requests = _extended_requests(pod, container) if own == EXTENDED else wanted.get(own, [])
        if requests and isinstance(name, ClaimFault):
            raise StateError(name.message)
        if requests and isinstance(name, str):
            yield name, requests


def _extended_requests(pod: Pod, container: Container) -> list[str]:
    status = pod.status.extended_resource_claim_status
    return [
        mapping.request_name
        for mapping in (status.request_mappings if status is not None else ())
        if mapping.container_name == container.name and _asks_for(container, mapping.resource_name)
    ]


def _asks_for(container: Container, resource: str) -> bool:
    amount = container.resources.requests.get(resource)
    if amount is None or amount.is_zero():
        return False
    return is_dra_extended_resource(resource)


def _is_mapped(pod: Pod, container: Container) -> bool:
    status = pod.status.extended_resource_claim_status
    return status is not None and any(
        mapping.container_name == container.name for mapping in status.request_mappings
    )
