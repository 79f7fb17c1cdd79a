"""Pod to be scheduled, read once per attempt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from plimsoll.api.codec import encode
from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.requests import PodResourcesOptions, pod_requests
from plimsoll.ledger.units import to_units
from plimsoll.scheduler.extended_resources import build_claim, is_in_memory, provided_by
from plimsoll.scheduler.profile import SchedulerProfile


class PodInfo:
    """Pod with its distinct claims, in the order of its spec, and derived values.

    The claim for extended resources that device classes serve comes last. It exists only in memory, and the
    status of `pod` refers to it; `stored` is the pod as the API server has it. A node that advertises such a
    resource itself needs another claim, or none (`at_node`).
    """

    def __init__(
        self,
        pod: Pod,
        claims: tuple[ResourceClaim, ...],
        options: PodResourcesOptions,
        profile: SchedulerProfile | None = None,
        *,
        stored: Pod | None = None,
        extended_classes: Mapping[str, str] | None = None,
        stale_claim: ResourceClaim | None = None,
    ) -> None:
        self.pod = pod
        self.claims = claims
        self.options = options
        #: Profile of the attempt, for rules that have settings.
        self.profile = profile or SchedulerProfile.default()
        self.stored = stored or pod
        #: Device classes by the extended resource that they serve for the pod.
        self.extended_classes = extended_classes or {}
        #: Claim for extended resources that an interrupted binding left; it must be deleted first.
        self.stale_claim = stale_claim
        self._variants: dict[frozenset[str], PodInfo] = {}

    def with_profile(self, profile: SchedulerProfile) -> PodInfo:
        """Return the pod for an attempt with this profile."""
        return self if profile is self.profile else self.with_claims(self.claims, profile)

    def with_claims(
        self, claims: tuple[ResourceClaim, ...], profile: SchedulerProfile | None = None
    ) -> PodInfo:
        """Return the pod with other claims, or for another profile."""
        return PodInfo(
            self.pod,
            claims,
            self.options,
            profile or self.profile,
            stored=self.stored,
            extended_classes=self.extended_classes,
            stale_claim=self.stale_claim,
        )

    def without_stale_claim(self) -> PodInfo:
        """Return the pod as if no binding had been interrupted."""
        found = self.with_claims(self.claims)
        found.stale_claim = None
        return found

    def at_node(self, node: Node) -> PodInfo:
        """Return the pod with the claims that it needs on a node."""
        provided = self.provided_by(node)
        if not provided:
            return self
        known = self._variants.get(provided)
        if known is None:
            classes = {n: each for n, each in self.extended_classes.items() if n not in provided}
            pod, claim = build_claim(self.pod, classes)
            claims = (*(each for each in self.claims if not is_in_memory(each)), *((claim,) if claim else ()))
            known = self._variants[provided] = PodInfo(
                pod, claims, self.options, self.profile, stored=self.stored
            )
        return known

    def provided_by(self, node: Node) -> frozenset[str]:
        """Return the extended resources that a node provides instead of device classes."""
        return provided_by(node, self.extended_classes) if self.extended_classes else frozenset()

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
