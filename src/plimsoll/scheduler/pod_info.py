"""Pod to be scheduled, read once per attempt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from plimsoll.api.codec import encode
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.requests import PodResourcesOptions, pod_requests
from plimsoll.ledger.units import to_units


class PodInfo:
    """Pod with its distinct claims, in the order of its spec, and derived values."""

    def __init__(self, pod: Pod, claims: tuple[ResourceClaim, ...], options: PodResourcesOptions) -> None:
        self.pod = pod
        self.claims = claims
        self.options = options

    @cached_property
    def key(self) -> str:
        """Key of the pod in ledgers."""
        return pod_key(self.pod)

    @property
    def priority(self) -> int:
        return self.pod.priority

    @cached_property
    def unallocated_claims(self) -> tuple[ResourceClaim, ...]:
        """Claims without an allocation."""
        return tuple(claim for claim in self.claims if claim.status.allocation is None)

    @cached_property
    def requests(self) -> Mapping[str, int]:
        """Requests of the pod itself in base units, without claims and charges in its status."""
        return to_units(pod_requests(self.pod, self.options, ()))

    @cached_property
    def resource_signature(self) -> bytes:
        """Key that is equal for pods with the same resources and claim requests."""
        spec = self.pod.spec
        containers = [(c.resources, c.restart_policy) for c in (*spec.init_containers, *spec.containers)]
        own = (len(spec.init_containers), containers, spec.resources, spec.overhead)
        claims = [claim.spec for claim in self.unallocated_claims]
        fixed = [claim.metadata.uid for claim in self.claims if claim.status.allocation is not None]
        return encode(
            (own, [(r.name, bool(r.resource_claim_name)) for r in spec.resource_claims], claims, fixed)
        )
