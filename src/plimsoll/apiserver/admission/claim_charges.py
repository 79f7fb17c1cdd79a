"""Claims and their charges, as quota admission reads them from the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.controllers.quota.usage import CLAIMS, PODS
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.placement import charge_claims
from plimsoll.ledger.profile import AccountingProfile

_CLASSES = "deviceclasses.resource.k8s.io"
_SLICES = "resourceslices.resource.k8s.io"


class StoredClaims:
    """Claims of one namespace in the store."""

    def __init__(self, store: Store, namespace: str, gates: Gates) -> None:
        self._store = store
        self._namespace = namespace
        self._profile = AccountingProfile.for_gates(gates)

    def find_pod(self, name: str) -> Pod | None:
        stored = self._store.get(ObjectKey(PODS, self._namespace, name))
        return None if stored is None else codec.decode(stored.raw, Pod)

    def find_claim(self, name: str) -> ResourceClaim | None:
        stored = self._store.get(ObjectKey(CLAIMS, self._namespace, name))
        return None if stored is None else codec.decode(stored.raw, ResourceClaim)

    def find_consumers(self, pod: Pod, name: str) -> Iterator[Pod]:
        """Yield the other pods for which a claim is reserved and that carry its charges."""
        claim = self.find_claim(name)
        for consumer in claim.status.reserved_for if claim is not None else ():
            other = self.find_pod(consumer.name) if consumer.resource == PODS else None
            if other is None or other.metadata.uid != consumer.uid or pod_key(other) == pod_key(pod):
                continue
            if any(charge.claim == name for charge in read_charges(other)):
                yield other

    def charge_allocated(self, pod: Pod) -> Sequence[ChargedClaim]:
        """Compute the charges of those claims of a pod that are allocated; unknown devices charge nothing."""
        claims = {}
        for name in dict.fromkeys(resolve_claim_names(pod).values()):
            claim = self.find_claim(name)
            if claim is not None and claim.status.allocation is not None:
                claims[name] = claim
        if not claims:
            return ()
        allocations = [claim.status.allocation for claim in claims.values() if claim.status.allocation]
        context = ChargeContext(
            DeviceIndex(self._slices(allocations), self._profile), None, self._classes(), self._profile
        )
        return [
            charged
            for charged in charge_claims(pod, claims, {}, context)
            if isinstance(charged, ChargedClaim)
        ]

    def _slices(self, allocations: Sequence[AllocationResult]) -> Iterator[ResourceSlice]:
        """Yield the slices of the allocated pools; the others are not decoded."""
        pools = {result.pool.encode() for each in allocations for result in each.devices.results}
        for stored in self._store.list(_SLICES, None).items:
            if any(pool in stored.rest for pool in pools):
                yield codec.decode(stored.raw, ResourceSlice)

    def _classes(self) -> dict[str, DeviceClass]:
        found = (codec.decode(stored.raw, DeviceClass) for stored in self._store.list(_CLASSES, None).items)
        return {each.metadata.name: each for each in found}
